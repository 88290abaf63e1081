// Why a plan isn't complete, counted over the nodes.
#pragma once

#include <vector>

#include "coscheduling/planner.h"
#include "coscheduling/planner_solution.h"

namespace muster::coscheduling::planner {

// `slots`: the best partial plan.
PlanShortfall ExplainShortfall(const Problem& problem, const Slots& slots);

}  // namespace muster::coscheduling::planner
