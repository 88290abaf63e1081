// In which order placements under relations are valid one after the other.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "cluster/predicates.h"
#include "cluster/relations.h"

namespace muster::cluster {

using PlaceMap = absl::btree_map<std::string, std::string>;  // by pod UID: a node's name

// One member of a kind on a node.
struct Placing {
  int kind = 0;
  int node = 0;
};

// By index into the placements.
struct PlacingOrder {
  std::vector<size_t> placed;   // in an order in which each is allowed beside those before
  std::vector<size_t> refused;  // those that never were, ascending
};

// Counts the placements into `relations` one by one, each when it is allowed. What comes out
// depends on the set of placements only, not on the order in which they are given; of equal ones
// the last are refused first.
PlacingOrder PlaceInOrder(const std::vector<Placing>& placements, Relations* relations);

// The first of these pods whose place, node by pod UID, relations forbid beside the others,
// whatever the order: its UID and why. Those without a place are left out.
std::optional<std::pair<std::string, Rejection>> FirstForbidden(
    const Snapshot& snapshot, const std::vector<const kube::Pod*>& pods, bool include_virtual,
    const PlaceMap& places);

}  // namespace muster::cluster
