// Placing gangs whose members mind where the others are.
//
// Members drawn to each other (required affinity) form a block; each block goes into one domain,
// and all domains are tried, so that the one is found that holds them all instead of the first that
// holds one. Anti-affinity within nodes is a clash (planner_problem.h), so a gang with nothing but
// that and affinity is packed per domain like any other. Spread and wider anti-affinity are solved
// class by class (planner_balance.h), block by block. What is small is searched besides.
#pragma once

#include "coscheduling/placement/planner/search.h"
#include "coscheduling/placement/planner/solution.h"

namespace muster::coscheduling::planner {

Slots PlaceRelated(const Problem& problem, const Scope& scope, SearchBudget* budget);

}  // namespace muster::coscheduling::planner
