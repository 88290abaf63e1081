// The lowest domain that holds equal pods, and the nodes in it that they fill best.
//
// All domains of a level are asked by the numbers that are kept of them (shape_room.h); only those
// that hold all are looked into.
#pragma once

#include <set>

#include "cluster/domains.h"
#include "cluster/shape_room.h"
#include "cluster/tree_fill.h"

namespace muster::cluster {

struct SubtreeQuery {
  int pods = 0;
  // Fewer than all pods will do, down to so many: as many as one zone holds, or without any zone
  // that holds the least, as many as there is room for.
  int least = 0;
  bool include_coming = false;
  // Slots of nodes never to use.
  std::set<int> excluded = {};
  // All in one domain of this level; -1: of none.
  int required_level = -1;
};

// Where not even the least have room, as many as have. Of domains of one level that with the fewest
// domains below, level by level, then the fewest nodes, those that exist, the fewest devices left
// over, the most preferences met, the least room left in the domain, the first in the tree's order.
// Takes are named by slot.
TreeFill FillLowestSubtree(const Domains& domains, const ShapeRoom& room,
                           const SubtreeQuery& query);

}  // namespace muster::cluster
