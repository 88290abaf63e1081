// Placing members of one class under its spread constraints and wide anti-affinity.
//
// In the end a domain of a spread constraint holds at most its floor (what the least filled domain
// holds) plus max skew. So a floor is chosen for each constraint, smallest first; it bounds what
// every domain may and must take. Where the domains nest (hosts in zones), what can be reached
// under such bounds adds up from the hosts to the whole, and any way of filling them up to their
// bounds ends equally full. That makes "as many members as can be placed" exact. Anti-affinity to
// its own class is the bound 1. README.md says more.
#pragma once

#include <optional>
#include <vector>

#include "coscheduling/placement/planner/solution.h"

namespace muster::coscheduling::planner {

// Places up to `count` members of the class on `candidates`, beside what `room` and `relations`
// hold already, without changing them. Members that are drawn to each other must be given
// candidates in one domain. nullopt if the domains of the class don't nest.
std::optional<Slots> PlaceBalanced(const Problem& problem, const Room& room,
                                   const Relations& relations, int member_class,
                                   const std::vector<int>& candidates, int count);

}  // namespace muster::coscheduling::planner
