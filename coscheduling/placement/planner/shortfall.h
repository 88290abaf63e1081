// Why a plan isn't complete, counted over the nodes.
#pragma once

#include <vector>

#include "coscheduling/placement/planner/planner.h"
#include "coscheduling/placement/planner/solution.h"

namespace muster::coscheduling::planner {

// `slots`: the best partial plan.
PlanShortfall ExplainShortfall(const Problem& problem, const Slots& slots);

}  // namespace muster::coscheduling::planner
