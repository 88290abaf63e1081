// PackByFlow: members that any node could swap for one another, matched by a maximum flow.
#include <algorithm>
#include <map>
#include <string>

#include "coscheduling/placement/planner/packing.h"

namespace muster::coscheduling::planner {
namespace {

// Nodes that the same classes may use.
struct NodeGroup {
  std::vector<int> classes;
  std::vector<Bin> bins;
  int64_t room = 0;
};

// How many members the node takes whichever they are, or -1 if that depends.
int InterchangeableFit(const Problem& problem, const std::vector<int>& classes, int node) {
  const MemberClass& first = problem.classes[classes[0]];
  const int64_t* free = problem.FreeOf(node);
  bool equal = true, clash = false;
  for (int c : classes) {
    equal &= problem.classes[c].request == first.request;
    for (int other : classes) clash |= problem.classes[c].clashes[other];
  }
  if (equal && !clash) return FitCount(first, free, problem.members());
  for (size_t r = 0; r < problem.resources.size(); ++r) {
    int64_t least = first.request[r];
    for (int c : classes) least = std::min(least, problem.classes[c].request[r]);
    if (least > free[r] - least) return 1;
  }
  return -1;
}

class ClassFlow {
 public:
  ClassFlow(const Problem& problem, std::vector<NodeGroup> groups)
      : groups_(std::move(groups)), groups_of_(problem.classes.size()) {
    for (const MemberClass& member_class : problem.classes)
      unplaced_.push_back(member_class.size());
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (int c : groups_[g].classes) groups_of_[c].push_back(static_cast<int>(g));
    }
    flow_.assign(problem.classes.size(), std::vector<int>(groups_.size()));
  }

  Slots Solve() {
    for (size_t c = 0; c < unplaced_.size(); ++c) {
      while (unplaced_[c] > 0 && Augment(static_cast<int>(c))) {
      }
    }
    return Place();
  }

 private:
  // Sends members of `source` along a shortest way to a group with room, moving members of other
  // classes out of their groups where that is on the way.
  bool Augment(int source) {
    std::vector<int> class_from(unplaced_.size(), -1), group_from(groups_.size(), -1);
    std::vector<int> queue = {source};
    for (size_t head = 0; head < queue.size(); ++head) {
      int c = queue[head];
      for (int g : groups_of_[c]) {
        if (group_from[g] >= 0) continue;
        group_from[g] = c;
        if (groups_[g].room > 0) {
          Send(source, g, class_from, group_from);
          return true;
        }
        for (int other : groups_[g].classes) {
          if (flow_[other][g] == 0 || other == source || class_from[other] >= 0) continue;
          class_from[other] = g;
          queue.push_back(other);
        }
      }
    }
    return false;
  }

  void Send(int source, int last, const std::vector<int>& class_from,
            const std::vector<int>& group_from) {
    int64_t amount = std::min<int64_t>(unplaced_[source], groups_[last].room);
    for (int g = last, c = group_from[g]; c != source; c = group_from[g]) {
      g = class_from[c];
      amount = std::min<int64_t>(amount, flow_[c][g]);
    }
    int step = static_cast<int>(amount);
    groups_[last].room -= step;
    unplaced_[source] -= step;
    for (int g = last;;) {
      int c = group_from[g];
      flow_[c][g] += step;
      if (c == source) return;
      g = class_from[c];
      flow_[c][g] -= step;
    }
  }

  Slots Place() {
    Slots slots;
    for (size_t g = 0; g < groups_.size(); ++g) {
      int members = 0;
      for (int c : groups_[g].classes) members += flow_[c][g];
      size_t at = 0;
      for (Take take : FillFewestNodes(groups_[g].bins, members)) {
        while (take.count > 0) {
          int c = groups_[g].classes[at];
          int count = std::min(take.count, flow_[c][g]);
          if (count > 0) slots.push_back({take.node, c, count});
          flow_[c][g] -= count;
          take.count -= count;
          if (flow_[c][g] == 0) ++at;
        }
      }
    }
    return slots;
  }

  std::vector<NodeGroup> groups_;
  std::vector<std::vector<int>> groups_of_;  // by class
  std::vector<int> unplaced_;                // by class
  std::vector<std::vector<int>> flow_;       // by class, then group
};

// Flows between more classes and groups than this cost more than they are worth.
constexpr size_t kLargestFlow = 200'000;

}  // namespace

std::optional<Slots> PackByFlow(const Problem& problem, const Scope& scope) {
  std::map<int, std::vector<int>> classes_of;  // by node
  for (size_t c = 0; c < scope.candidates.size(); ++c) {
    for (int node : scope.candidates[c]) classes_of[node].push_back(static_cast<int>(c));
  }
  std::map<std::vector<int>, NodeGroup> groups;
  for (auto& [node, classes] : classes_of) {
    int fits = InterchangeableFit(problem, classes, node);
    if (fits < 0) return std::nullopt;
    NodeGroup& group = groups[classes];
    group.classes = classes;
    group.room += fits;
    group.bins.push_back(MakeBin(problem, classes[0], node, fits));
  }
  if (groups.size() * problem.classes.size() > kLargestFlow) return std::nullopt;
  std::vector<NodeGroup> list;
  for (auto& [classes, group] : groups) list.push_back(std::move(group));
  return ClassFlow(problem, std::move(list)).Solve();
}

}  // namespace muster::coscheduling::planner
