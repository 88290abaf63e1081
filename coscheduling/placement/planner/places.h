// Where the nodes are: zones, domains of the required topology key, neighbourhood in the network.
#pragma once

#include "coscheduling/placement/planner/problem.h"

namespace muster::coscheduling::planner {

// Fills in what NodeSlot and Problem say about places and devices, for the nodes that are
// candidates of some class.
void FindPlaces(Problem* problem);

}  // namespace muster::coscheduling::planner
