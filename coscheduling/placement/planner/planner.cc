#include "coscheduling/placement/planner/planner.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <ranges>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cluster/label_bits.h"
#include "cluster/subtree.h"
#include "coscheduling/placement/planner/problem.h"
#include "coscheduling/placement/planner/solution.h"

namespace muster::coscheduling {
namespace {

using planner::MemberClass;
using planner::Problem;
using planner::Scope;
using planner::Score;
using planner::Slot;
using planner::Slots;

// --- members that are alike ---

// False if a pod that stands can't keep any of the members away, for all that their labels say.
bool MayBeKeptAway(const cluster::Snapshot& snapshot, const PlanRequest& request) {
  if (snapshot.anti_affinity_pods().empty()) return false;
  uint64_t labels = 0;
  for (const kube::Pod* member : request.members) {
    labels |= cluster::LabelBits(member->meta.labels);
  }
  return std::ranges::any_of(snapshot.anti_affinity_pods(), [&](const auto& stands) {
    const auto& terms = snapshot.FindPod(stands.first)->spec->affinity.required_pod_anti_affinity;
    return std::ranges::any_of(terms, [&](const kube::PodAffinityTerm& term) {
      return term.selector && (cluster::NeededBits(*term.selector) & ~labels) == 0;
    });
  });
}

bool AreAlike(const cluster::Snapshot& snapshot, const PlanRequest& request) {
  if (request.members.empty() || !request.sibling_nodes.empty()) return false;
  const kube::Pod& first = *request.members.front();
  const kube::PodSpec& spec = *first.spec;
  if (!first.spec_error.empty() || !cluster::ShapeRoom::CanFollow(spec) ||
      cluster::HasRelations(spec) || cluster::HasPreferredRelations(spec)) {
    return false;
  }
  const bool alike = std::ranges::all_of(request.members, [&](const kube::Pod* member) {
    return member->spec_error.empty() && (member->spec == first.spec || *member->spec == spec) &&
           snapshot.FindNodeOfPod(member->meta.uid) == nullptr;
  });
  return alike && !MayBeKeptAway(snapshot, request);
}

// --- all others ---

// Of one level, so many domains at most are looked into: those with the fewest devices to leave
// idle.
constexpr size_t kMostScopes = 64;

class Planning {
 public:
  explicit Planning(const Problem& problem)
      : problem_(problem),
        tree_(*problem.tree),
        nodes_(planner::NodesOf(planner::WholeScope(problem))) {
    std::ranges::sort(nodes_, {}, [&](int node) { return problem.nodes[node].position; });
  }

  void Run() {
    const int all = problem_.members();
    const auto required = static_cast<int>(problem_.request->required);
    const std::vector<int> levels = LevelsFromBelow();
    for (int level : levels) {
      if (level >= problem_.zone_level && TryLevel(level, all)) return;
    }
    if (problem_.zone_level >= 0 && required < all && TryLevel(kZones, std::max(1, required))) {
      return;
    }
    for (int level : levels) {
      if (level < problem_.zone_level && TryLevel(level, all)) return;
    }
    TryLevel(kWhole, 0);
  }

  const Slots& slots() const { return slots_; }

 private:
  // All that may be used, of each part.
  static constexpr int kWhole = -1;
  // Zones, and whatever hangs in none.
  static constexpr int kZones = -2;

  int Hosts() const { return static_cast<int>(tree_.levels().size()); }

  std::vector<int> LevelsFromBelow() const {
    std::vector<int> levels = {Hosts()};
    std::vector<char> seen(tree_.domains().size());
    for (int node : nodes_) {
      int domain = problem_.nodes[node].domain;
      for (; domain != cluster::Domains::kRoot && !std::exchange(seen[domain], 1);
           domain = tree_.domains()[domain].parent) {
        levels.push_back(tree_.domains()[domain].level);
      }
    }
    std::ranges::sort(levels, std::greater<>());
    levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
    return levels;
  }

  // The domain of this level; the root for all; for hosts a number below zero.
  int PlaceOf(int node, int level) const {
    if (level == kWhole) return cluster::Domains::kRoot;
    const int domain = problem_.nodes[node].domain;
    const int host = -2 - problem_.nodes[node].info->slot;
    if (level == Hosts()) return host;
    if (level != kZones) return tree_.Above(domain, level);
    int place = host;
    for (int at = domain; tree_.domains()[at].level >= problem_.zone_level;
         at = tree_.domains()[at].parent) {
      place = at;
    }
    return place;
  }

  // Where one of the gang stands already, if any does.
  bool IsAtHome(int part, int place, int level) const {
    if (problem_.homes.empty()) return true;
    return std::ranges::any_of(problem_.homes, [&](const Problem::Home& home) {
      if (home.part != part) return false;
      if (level == kWhole) return true;
      if (place < 0) return place == -2 - home.slot;
      return place == tree_.Above(home.domain, tree_.domains()[place].level);
    });
  }

  // Domains of one level, or parts of them by the required key: by node the number of its scope, -1
  // if it is in none.
  std::vector<int> NumberScopes(int level, size_t* count) const {
    std::vector<int> scope_of(problem_.nodes.size(), -1);
    absl::flat_hash_map<std::pair<int, int>, int> numbers;
    for (int node : nodes_) {
      const int part = problem_.nodes[node].part;
      const int place = PlaceOf(node, level);
      if (part < 0 || place == -1 || !IsAtHome(part, place, level)) continue;
      scope_of[node] = numbers.try_emplace({part, place}, numbers.size()).first->second;
    }
    *count = numbers.size();
    return scope_of;
  }

  // What a scope has, looked at without placing anybody.
  struct Outline {
    int number = 0;
    int64_t members = 0;  // for so many there is room at most
    int64_t devices = 0;
    std::vector<int64_t> free;
  };

  std::vector<Outline> Outlines(const std::vector<int>& scope_of, size_t count) const {
    std::vector<Outline> outlines(count);
    for (size_t number = 0; number < count; ++number) {
      outlines[number].number = static_cast<int>(number);
      outlines[number].free.resize(problem_.resources.size());
    }
    for (int node : nodes_) {
      if (scope_of[node] < 0) continue;
      Outline& outline = outlines[scope_of[node]];
      outline.devices += problem_.nodes[node].devices;
      for (size_t r = 0; r < outline.free.size(); ++r) {
        const int64_t free = problem_.FreeOf(node)[r];
        if (__builtin_add_overflow(outline.free[r], free, &outline.free[r])) {
          outline.free[r] = std::numeric_limits<int64_t>::max();
        }
      }
    }
    std::vector<int64_t> room(count);
    for (const MemberClass& member_class : problem_.classes) {
      room.assign(count, 0);
      for (int node : member_class.candidates) {
        if (scope_of[node] < 0) continue;
        room[scope_of[node]] +=
            planner::FitCount(member_class, problem_.FreeOf(node), member_class.size());
      }
      for (size_t number = 0; number < count; ++number) {
        outlines[number].members += std::min<int64_t>(room[number], member_class.size());
      }
    }
    return outlines;
  }

  // All members together ask for no more than is free.
  bool HasFree(const Outline& outline) const {
    for (size_t r = 0; r < outline.free.size(); ++r) {
      int64_t wanted = 0;
      for (const MemberClass& member_class : problem_.classes) {
        int64_t of_class = 0;
        if (__builtin_mul_overflow(member_class.request[r], member_class.size(), &of_class) ||
            __builtin_add_overflow(wanted, of_class, &wanted)) {
          return false;
        }
      }
      if (wanted > outline.free[r]) return false;
    }
    return true;
  }

  std::vector<Scope> ScopesOf(int level, int target) const {
    size_t count = 0;
    const std::vector<int> scope_of = NumberScopes(level, &count);
    std::vector<Outline> outlines = Outlines(scope_of, count);
    std::erase_if(outlines, [&](const Outline& outline) {
      return outline.members < std::max(1, target) ||
             (target == problem_.members() && !HasFree(outline));
    });
    if (outlines.size() > kMostScopes) {
      std::ranges::stable_sort(outlines, {}, [&](const Outline& outline) {
        return std::pair(target == 0 ? -outline.members : 0, outline.devices);
      });
      outlines.resize(kMostScopes);
      std::ranges::sort(outlines, {}, &Outline::number);
    }
    std::vector<int> position(count, -1);
    for (size_t i = 0; i < outlines.size(); ++i) {
      position[outlines[i].number] = static_cast<int>(i);
    }
    std::vector<Scope> scopes(outlines.size());
    for (Scope& scope : scopes) scope.candidates.resize(problem_.classes.size());
    for (size_t c = 0; c < problem_.classes.size(); ++c) {
      for (int node : problem_.classes[c].candidates) {
        const int number = scope_of[node];
        if (number < 0 || position[number] < 0) continue;
        scopes[position[number]].candidates[c].push_back(node);
      }
    }
    return scopes;
  }

  // What the domain's fullness is measured by, once it is no longer the emptiest itself.
  static int64_t LeastOfOthers(const cluster::Relations::Spread& spread, int domain) {
    if (spread.domains < spread.min_domains) return 0;
    int64_t least = std::numeric_limits<int32_t>::max();
    for (size_t other = 0; other < spread.matching.size(); ++other) {
      if (static_cast<int>(other) == domain || !spread.taking_part[other]) continue;
      least = std::min<int64_t>(least, spread.matching[other]);
    }
    return least;
  }

  // Spread and kept apart as they are, one domain of the key can't hold all.
  bool IsKeptApart(const Scope& scope) const {
    const cluster::Relations& relations = problem_.relations;
    const std::vector<int> nodes = planner::NodesOf(scope);
    const auto one_domain = [&](int key) {
      const std::vector<int>& domain = relations.keys()[key].domain;
      const int first = domain[nodes.front()];
      const bool same = std::ranges::all_of(nodes, [&](int node) { return domain[node] == first; });
      return same ? first : -1;
    };
    return std::ranges::any_of(problem_.classes, [&](const MemberClass& member_class) {
      const int kind = member_class.kind;
      for (int index : relations.PartsOf(kind).own_spreads) {
        const cluster::Relations::Spread& spread = relations.spreads()[index];
        if (!spread.between_members || !spread.selects[kind] || spread.domains < 2) continue;
        const int domain = one_domain(spread.key);
        if (domain < 0 || !spread.taking_part[domain]) continue;
        if (member_class.size() >
            LeastOfOthers(spread, domain) + spread.max_skew - spread.matching[domain]) {
          return true;
        }
      }
      for (int index : relations.PartsOf(kind).own_anti_affinities) {
        const cluster::Relations::AntiAffinity& anti = relations.anti_affinities()[index];
        if (anti.selects[kind] && member_class.size() > 1 && one_domain(anti.key) >= 0) return true;
      }
      return false;
    });
  }

  // In the best domain of the level. True if one holds `target` members and the plan is complete.
  bool TryLevel(int level, int target) {
    for (const Scope& scope : ScopesOf(level, target)) {
      if (target == problem_.members() && problem_.related && IsKeptApart(scope)) continue;
      Slots slots = planner::Pack(problem_, scope);
      Score score = planner::ScoreOf(problem_, slots);
      if (tried_ && !planner::Better(score, score_)) continue;
      tried_ = true;
      score_ = std::move(score);
      slots_ = std::move(slots);
    }
    return tried_ && score_.complete && score_.placed >= target;
  }

  const Problem& problem_;
  const cluster::Domains& tree_;
  std::vector<int> nodes_;  // that any member could use, in the tree's order
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

std::optional<Plan> Planner::PlanAlike(const cluster::Snapshot& snapshot,
                                       const PlanRequest& request) {
  if (!AreAlike(snapshot, request)) return std::nullopt;
  cluster::SubtreeQuery query = {.pods = static_cast<int>(request.members.size()),
                                 .least = static_cast<int>(request.required),
                                 .include_coming = request.include_virtual,
                                 .excluded = {}};
  if (!request.required_topology_key.empty()) {
    query.required_level = domains_.LevelOf(request.required_topology_key);
    const bool of_the_tree = query.required_level >= 0 &&
                             query.required_level < static_cast<int>(domains_.levels().size());
    if (!of_the_tree) return std::nullopt;
  }
  for (const std::string& name : request.excluded_nodes) {
    const cluster::NodeInfo* info = snapshot.FindNode(name);
    if (info != nullptr && info->name() == name) query.excluded.insert(info->slot);
  }
  const cluster::ShapeRoom& room = rooms_.Of(*request.members.front(), snapshot, domains_);
  const std::optional<cluster::TreeFill> fill = cluster::FillLowestSubtree(domains_, room, query);
  if (!fill) return std::nullopt;  // why is a question to each node
  Plan plan;
  plan.complete = true;
  auto member = request.members.begin();
  for (const cluster::Take& take : fill->takes) {
    const std::string& node = snapshot.NodeIn(take.node)->name();
    for (int i = 0; i < take.count; ++i) plan.placements.emplace((*member++)->meta.uid, node);
  }
  return plan;
}

Plan Planner::MakePlan(const cluster::Snapshot& snapshot, const PlanRequest& request) {
  domains_.Follow(snapshot);
  if (std::optional<Plan> plan = PlanAlike(snapshot, request)) return *std::move(plan);
  Problem problem = planner::BuildProblem(snapshot, request, domains_);
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

Plan MakePlan(const cluster::Snapshot& snapshot, const PlanRequest& request) {
  return Planner().MakePlan(snapshot, request);
}

}  // namespace muster::coscheduling
