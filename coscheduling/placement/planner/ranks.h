// Which member takes which place: neighbours in rank on neighbouring nodes.
#pragma once

#include <vector>

#include "coscheduling/placement/planner/solution.h"

namespace muster::coscheduling::planner {

// By member: its node, -1 if the slots hold fewer of its class (the last in rank then go without).
// Members are taken in rank order; each goes to the node of the one before it if that has a place
// for its class, else to the next in position that has one, round the end if need be.
std::vector<int> AssignRanks(const Problem& problem, const Slots& slots);

}  // namespace muster::coscheduling::planner
