#include "coscheduling/placement/planner/planner.h"

#include <map>
#include <utility>
#include <vector>

#include "coscheduling/placement/planner/problem.h"
#include "coscheduling/placement/planner/solution.h"

namespace muster::coscheduling {
namespace {

using planner::NodeSlot;
using planner::Problem;
using planner::Scope;
using planner::Score;
using planner::Slot;
using planner::Slots;

// Cuts a scope into parts, in the order of their numbers; nodes with a negative one are left out.
template <typename PartOf>
std::vector<Scope> Cut(const Scope& scope, PartOf part_of) {
  std::map<int, Scope> parts;
  for (size_t c = 0; c < scope.candidates.size(); ++c) {
    for (int node : scope.candidates[c]) {
      int part = part_of(node);
      if (part < 0) continue;
      Scope& target = parts[part];
      target.candidates.resize(scope.candidates.size());
      target.candidates[c].push_back(node);
    }
  }
  std::vector<Scope> list;
  for (auto& [part, part_scope] : parts) list.push_back(std::move(part_scope));
  return list;
}

class Planning {
 public:
  explicit Planning(const Problem& problem) : problem_(problem) {}

  // Zones first; then the whole cluster or the whole of each required domain, if that is more.
  void Run() {
    Scope whole = planner::WholeScope(problem_);
    auto home = [&](int node) {
      return problem_.home_zones.empty() || problem_.home_zones[problem_.nodes[node].zone];
    };
    TryAll(Cut(whole, [&](int node) {
      int domain = DomainOf(node);
      return domain < 0 || !home(node) ? -1 : domain * problem_.zones + problem_.nodes[node].zone;
    }));
    // Where nothing is required, something in another zone is better than nothing.
    if ((score_.complete && score_.placed > 0) || !SpansZones(whole)) return;
    TryAll(Cut(whole, [&](int node) { return DomainOf(node); }));
  }

  const Slots& slots() const { return slots_; }

 private:
  int DomainOf(int node) const {
    int domain = problem_.nodes[node].domain;
    if (domain >= 0 && !problem_.home_domains.empty() && !problem_.home_domains[domain]) return -1;
    return domain;
  }

  bool SpansZones(const Scope& scope) const {
    if (!problem_.home_zones.empty()) return true;
    int zone = -1;
    for (const auto& candidates : scope.candidates) {
      for (int node : candidates) {
        if (zone >= 0 && problem_.nodes[node].zone != zone) return true;
        zone = problem_.nodes[node].zone;
      }
    }
    return false;
  }

  void TryAll(const std::vector<Scope>& scopes) {
    for (const Scope& scope : scopes) {
      Slots slots = planner::Pack(problem_, scope);
      Score score = planner::ScoreOf(problem_, slots);
      if (tried_ && !planner::Better(score, score_)) continue;
      tried_ = true;
      score_ = score;
      slots_ = std::move(slots);
    }
  }

  const Problem& problem_;
  bool tried_ = false;
  Score score_;
  Slots slots_;
};

// Which member takes which place. By member: its node, -1 if the slots hold fewer of its class (the
// last in rank then go without). Members are taken in rank order; each goes to the node of the one
// before it if that has a place for its class, else to the next in position that has one, round the
// end if need be.
std::vector<int> AssignRanks(const Problem& problem, const Slots& slots) {
  struct Places {
    int node = 0;
    int count = 0;
  };
  std::vector<std::map<int, Places>> places(problem.classes.size());  // by class: by position
  for (const Slot& slot : slots) {
    Places& here = places[slot.member_class][problem.nodes[slot.node].position];
    here.node = slot.node;
    here.count += slot.count;
  }
  std::vector<int> class_of(problem.members());
  for (size_t c = 0; c < problem.classes.size(); ++c) {
    for (int member : problem.classes[c].members) class_of[member] = static_cast<int>(c);
  }
  std::vector<int> node_of(problem.members(), -1);
  int position = 0;
  for (int m = 0; m < problem.members(); ++m) {
    auto& open = places[class_of[m]];
    if (open.empty()) continue;
    auto next = open.lower_bound(position);
    if (next == open.end()) next = open.begin();
    position = next->first;
    node_of[m] = next->second.node;
    if (--next->second.count == 0) open.erase(next);
  }
  return node_of;
}

}  // namespace

Plan MakePlan(const cluster::Snapshot& snapshot, const PlanRequest& request) {
  Problem problem = planner::BuildProblem(snapshot, request);
  Planning planning(problem);
  planning.Run();
  Plan plan;
  std::vector<int> node_of = AssignRanks(problem, planning.slots());
  for (size_t m = 0; m < node_of.size(); ++m) {
    if (node_of[m] < 0) continue;
    plan.placements.emplace(request.members[m]->meta.uid, problem.nodes[node_of[m]].info->name());
  }
  plan.complete = plan.placements.size() >= request.required;
  if (!plan.complete) plan.shortfall = planner::ExplainShortfall(problem, planning.slots());
  return plan;
}

}  // namespace muster::coscheduling
