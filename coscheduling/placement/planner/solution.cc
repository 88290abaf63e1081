#include "coscheduling/placement/planner/solution.h"

#include <algorithm>

#include "cluster/tree_fill.h"

namespace muster::coscheduling::planner {

Scope WholeScope(const Problem& problem) {
  Scope scope;
  for (const MemberClass& member_class : problem.classes) {
    scope.candidates.push_back(member_class.candidates);
  }
  return scope;
}

std::vector<int> NodesOf(const Scope& scope) {
  std::vector<int> nodes;
  for (const auto& candidates : scope.candidates) {
    nodes.insert(nodes.end(), candidates.begin(), candidates.end());
  }
  if (scope.candidates.size() == 1) return nodes;
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

int64_t PreferenceOf(const MemberClass& member_class, int node) {
  if (member_class.preference.empty()) return 0;
  auto it = std::lower_bound(member_class.candidates.begin(), member_class.candidates.end(), node);
  return member_class.preference[it - member_class.candidates.begin()];
}

Score ScoreOf(const Problem& problem, const Slots& slots) {
  Score score;
  std::vector<int> nodes;
  for (const Slot& slot : slots) {
    score.placed += slot.count;
    score.preference += slot.count * PreferenceOf(problem.classes[slot.member_class], slot.node);
    nodes.push_back(slot.node);
  }
  std::ranges::sort(nodes, {}, [&](int node) { return problem.nodes[node].position; });
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  std::vector<int> domains;
  for (int node : nodes) {
    score.virtual_nodes += problem.nodes[node].is_virtual;
    score.devices += problem.nodes[node].devices;
    domains.push_back(problem.nodes[node].domain);
  }
  score.domains = cluster::CountDomains(*problem.tree, domains);
  score.one_zone = problem.zone_level < 0 || score.domains[problem.zone_level] == 1;
  score.complete = score.placed >= static_cast<int>(problem.request->required);
  return score;
}

bool Better(const Score& a, const Score& b) {
  if (a.complete != b.complete) return a.complete;
  if (a.complete && a.one_zone != b.one_zone) return a.one_zone;
  if (a.placed != b.placed) return a.placed > b.placed;
  if (a.domains != b.domains) return a.domains < b.domains;
  if (a.virtual_nodes != b.virtual_nodes) return a.virtual_nodes < b.virtual_nodes;
  if (a.devices != b.devices) return a.devices < b.devices;
  return a.preference > b.preference;
}

Room::Room(const Problem& problem) : problem_(problem), local_(problem.nodes.size(), -1) {
  for (const MemberClass& member_class : problem.classes) {
    const auto& clashes = member_class.clashes;
    clashes_ |= std::find(clashes.begin(), clashes.end(), 1) != clashes.end();
  }
}

int Room::Fits(int member_class, int node, int limit) const {
  const MemberClass& wanted = problem_.classes[member_class];
  int local = local_[node];
  if (local < 0) return FitCount(wanted, problem_.FreeOf(node), limit);
  if (clashes_ && used_[local] > 0) {
    const int* placed = placed_.data() + local * problem_.classes.size();
    for (size_t c = 0; c < problem_.classes.size(); ++c) {
      if (placed[c] > 0 && wanted.clashes[c]) return 0;
    }
  }
  return FitCount(wanted, free_.data() + local * problem_.resources.size(), limit);
}

int64_t Room::Free(int node, size_t resource) const {
  if (local_[node] < 0) return problem_.FreeOf(node)[resource];
  return free_[local_[node] * problem_.resources.size() + resource];
}

void Room::Take(int member_class, int node, int count) {
  if (local_[node] < 0) {
    local_[node] = static_cast<int>(used_.size());
    used_.push_back(0);
    const int64_t* free = problem_.FreeOf(node);
    free_.insert(free_.end(), free, free + problem_.resources.size());
    if (clashes_) placed_.resize(placed_.size() + problem_.classes.size());
  }
  int local = local_[node];
  const auto& request = problem_.classes[member_class].request;
  int64_t* free = free_.data() + local * problem_.resources.size();
  for (size_t r = 0; r < request.size(); ++r) free[r] -= count * request[r];
  used_[local] += count;
  if (clashes_) placed_[local * problem_.classes.size() + member_class] += count;
}

}  // namespace muster::coscheduling::planner
