#include "coscheduling/placement/planner/ranks.h"

#include <map>

namespace muster::coscheduling::planner {

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

}  // namespace muster::coscheduling::planner
