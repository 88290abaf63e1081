// In which order placements under relations are valid one after the other.
#pragma once

#include <vector>

#include "coscheduling/planner_relations.h"

namespace muster::coscheduling::planner {

// One member of a kind on a node.
struct Placement {
  int kind = 0;
  int node = 0;
};

// Counts the placements into `relations` one by one, each when it is allowed beside those before.
// Returns the indices of those that never were. The outcome depends on the set of placements only,
// not on the order in which they are given; of equal ones the last are refused first.
std::vector<size_t> PlaceInOrder(const std::vector<Placement>& placements, Relations* relations);

}  // namespace muster::coscheduling::planner
