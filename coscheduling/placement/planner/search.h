// Searches that end with the best there is, or when their budget is spent.
//
// Both work on a scope that has been thinned out: of nodes that no member can tell apart, as many
// are kept as there are members.
#pragma once

#include <cstdint>
#include <vector>

#include "coscheduling/placement/planner/solution.h"

namespace muster::coscheduling::planner {

// How much more a plan may search; shared by all its searches.
struct SearchBudget {
  int64_t steps = 0;
  bool Spend() { return --steps >= 0; }
};

// A search among more members, or more (members x nodes that differ), wouldn't end within its
// budget and is seldom lucky. It is then tried for a complete plan at most, never for a better one.
inline constexpr int kMostMembersSearched = 256;
inline constexpr int64_t kMostPairsSearched = 2048;

// Equal for nodes that no member can tell apart while they are unused. With relations, nodes also
// differ by what stands in their domains.
std::vector<int64_t> Fingerprint(const Problem& problem, const Scope& scope, int node,
                                 bool with_relations);
Scope ThinOut(const Problem& problem, const Scope& scope, bool with_relations);

// The best packing above `incumbent` by members placed, nodes, virtual nodes and devices; empty if
// none was found. Members mind nothing but room and host ports.
//
// Walks the nodes and tries on each every set of members that can't be enlarged; of two ways to the
// same members left over, only the cheaper is followed. That loses nothing: moving a member from a
// later node to an earlier one, or adding one that would be left over, never makes a packing worse.
Slots SearchPacking(const Problem& problem, const Scope& scope, const Score& incumbent,
                    SearchBudget* budget);

// The same under all relations. Places one member after the other, each where it is valid beside
// those placed before, through every set of placements that can be reached.
Slots SearchPlacements(const Problem& problem, const Scope& scope, const Score& incumbent,
                       SearchBudget* budget);

}  // namespace muster::coscheduling::planner
