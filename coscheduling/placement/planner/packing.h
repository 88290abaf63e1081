// Packing members of one or several classes onto nodes when no member minds where the others are,
// host ports aside.
//
// One class: exact, whatever its size (planner_fill.h).
// Several classes: this is bin packing in several dimensions. Greedy first, largest and scarcest
// class first, each class with the fewest nodes given those used already. Then, if members are left
// over and no node could tell a swap of members (equal requests, or one member per node), a maximum
// flow from classes to nodes: exact for "can it be complete". Last, a search (planner_search.h) as
// far as its budget reaches: exact for all priorities down to devices where it ends by itself.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "coscheduling/placement/planner/search.h"
#include "coscheduling/placement/planner/solution.h"

namespace muster::coscheduling::planner {

Slots Pack(const Problem& problem, const Scope& scope, SearchBudget* budget);

// Classes in the order in which they should be placed: those of which one member takes the largest
// share of all that is free of some resource first.
std::vector<int> HardestFirst(const Problem& problem, const std::vector<int>& nodes);
// At least so many nodes are needed to hold everything, more than there are if it can't be done.
int FewestNodes(const Problem& problem, const std::vector<int>& nodes);

// The step of Pack for members that could swap places; nullopt if on some node they couldn't.
std::optional<Slots> PackByFlow(const Problem& problem, const Scope& scope);

}  // namespace muster::coscheduling::planner
