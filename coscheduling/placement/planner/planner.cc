#include "coscheduling/placement/planner/planner.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "cluster/subtree.h"
#include "coscheduling/placement/planner/problem.h"

namespace muster::coscheduling {
namespace {

using planner::Problem;
using planner::Score;
using planner::Slot;
using planner::Slots;

// Members that are all alike, without relations.
Slots FillOne(const Problem& problem) {
  const PlanRequest& request = problem.request;
  cluster::SubtreeQuery query = {.pods = problem.members(),
                                 .least = static_cast<int>(request.required),
                                 .include_coming = request.include_virtual,
                                 .required_level = problem.required_level};
  for (const std::string& name : request.excluded_nodes) {
    const cluster::NodeInfo* info = problem.snapshot.FindNode(name);
    if (info != nullptr && info->name() == name) query.excluded.insert(info->slot);
  }
  Slots slots;
  for (const cluster::Take& take :
       cluster::FillLowestSubtree(problem.tree, *problem.classes[0].room, query).takes) {
    slots.push_back({take.node, 0, take.count});
  }
  return slots;
}

// All others: goes up level by level, from single hosts to the whole cluster.
class Search {
 public:
  explicit Search(const Problem& problem) : problem_(problem), tree_(problem.tree) {}

  Slots Run() {
    const int all = problem_.members();
    const int required = std::max(1, static_cast<int>(problem_.request.required));
    int level = Hosts();
    for (; !IsDone(all) && level >= std::max(0, problem_.zone_level); --level) Try(level, all);
    // A surplus doesn't spread over zones.
    if (!IsDone(all) && required < all && problem_.zone_level >= 0) {
      Try(problem_.zone_level, required);
      if (IsDone(required)) return std::move(best_);
    }
    for (; !IsDone(all) && level >= 0; --level) Try(level, all);
    if (!IsDone(all)) Try(problem_.required_level, 0);
    return std::move(best_);
  }

 private:
  // Of one level so many domains at most are looked into: the tightest.
  static constexpr size_t kMostDomains = 64;

  // A domain, or a host; by the nodes' positions in the tree's order.
  struct Part {
    int first = 0;
    int last = 0;
    int64_t room = 0;  // for so many members at most
  };

  int Hosts() const { return static_cast<int>(tree_.levels().size()); }
  bool IsDone(int target) const {
    return !best_score_.incomplete && problem_.members() - best_score_.left_over >= target;
  }

  // Where one of the gang stands already, if any does.
  bool IsAtHome(const Part& part) const {
    return problem_.homes.empty() || std::ranges::any_of(problem_.homes, [&](int home) {
             const int position = tree_.PositionOf(home);
             return part.first <= position && position < part.last;
           });
  }

  std::vector<Part> PartsOf(int level, bool of_all) const {
    std::vector<Part> parts;
    const auto add = [&](int first, int last, auto room_of) {
      Part part{first, last};
      for (const planner::MemberClass& wanted : problem_.classes) {
        const int64_t room = room_of(wanted);
        if (of_all && room < wanted.size()) return;
        part.room += room;
      }
      parts.push_back(part);
    };
    if (level == Hosts()) {
      for (int at = 0; const int slot : tree_.order()) {
        add(at, at + 1, [&](const auto& wanted) { return wanted.fits[slot]; });
        ++at;
      }
      return parts;
    }
    for (int d = 0; d < static_cast<int>(tree_.domains().size()); ++d) {
      const cluster::Domains::Domain& domain = tree_.domains()[d];
      const int required = problem_.required_level;
      if (domain.level != level || (required >= 0 && tree_.Above(d, required) < 0)) continue;
      add(domain.first, domain.last, [&](const auto& wanted) { return wanted.fits_in[d]; });
    }
    return parts;
  }

  // The best of the level's that could hold so many; without a target, of those that hold the most.
  void Try(int level, int target) {
    const bool of_all = target == problem_.members();
    std::vector<Part> parts = PartsOf(level, of_all);
    // What the whole cluster takes may stand apart from its siblings.
    const bool anywhere = target == 0 && problem_.required_level < 0;
    std::erase_if(parts, [&](const Part& part) {
      return part.room < std::max(1, target) || (!anywhere && !IsAtHome(part));
    });
    if (parts.size() > kMostDomains) {
      std::ranges::stable_sort(parts, {},
                               [&](const Part& part) { return of_all ? part.room : -part.room; });
      parts.resize(kMostDomains);
    }
    std::ranges::sort(parts, {}, &Part::first);
    for (const Part& part : parts) {
      const std::span nodes(tree_.order());
      Slots slots = planner::Pack(problem_, nodes.subspan(part.first, part.last - part.first));
      Score score = planner::ScoreOf(problem_, slots);
      if (score >= best_score_) continue;
      best_score_ = std::move(score);
      best_ = std::move(slots);
    }
  }

  const Problem& problem_;
  const cluster::Domains& tree_;
  Score best_score_;
  Slots best_;
};

// Which member takes which place. By member: its node, -1 if the slots hold fewer of its class (the
// last in rank then go without). Members are taken in rank order; each goes to the node of the one
// before it if that has a place for its class, else to the next in the tree's order that has one,
// round the end if need be.
std::vector<int> AssignRanks(const Problem& problem, const Slots& slots) {
  struct Places {
    int node = 0;
    int count = 0;
  };
  std::vector<std::map<int, Places>> places(problem.classes.size());  // by class: by position
  for (const Slot& slot : slots) {
    Places& here = places[slot.member_class][problem.tree.PositionOf(slot.node)];
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

Planner::Tree& Planner::TreeOf(const cluster::Snapshot& snapshot,
                               const std::vector<std::string>& levels) {
  auto tree = trees_.find(levels);
  if (tree == trees_.end()) {
    const bool usual = levels.empty();
    tree = trees_
               .emplace(levels, Tree{cluster::Domains(usual ? cluster::Domains::DefaultLevels()
                                                            : cluster::Domains::LevelsOf(levels))})
               .first;
  }
  tree->second.domains.Follow(snapshot);
  return tree->second;
}

Plan Planner::MakePlan(const cluster::Snapshot& snapshot, const PlanRequest& request) {
  Tree& tree = TreeOf(snapshot, request.levels);
  const Problem problem = planner::BuildProblem(snapshot, request, tree.domains, &tree.rooms);
  Slots slots;
  const bool known = request.required_topology_key.empty() || problem.required_level >= 0;
  if (known && !problem.classes.empty()) {
    slots = problem.IsOfOneClass() ? FillOne(problem) : Search(problem).Run();
  }
  Plan plan;
  const std::vector<int> node_of = AssignRanks(problem, slots);
  for (size_t m = 0; m < node_of.size(); ++m) {
    if (node_of[m] < 0) continue;
    plan.placements.emplace(request.members[m]->meta.uid, snapshot.NodeIn(node_of[m])->name());
  }
  plan.complete = plan.placements.size() >= request.required;
  if (!plan.complete) plan.shortfall = planner::ExplainShortfall(problem, slots);
  return plan;
}

Plan MakePlan(const cluster::Snapshot& snapshot, const PlanRequest& request) {
  return Planner().MakePlan(snapshot, request);
}

}  // namespace muster::coscheduling
