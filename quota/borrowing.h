// How far from its own quota a ClusterQueue must reach for something (Kueue v0.19.2,
// pkg/scheduler/preemption/classical/hierarchical_preemption.go).
#pragma once

#include "quota/quota_tree.h"

namespace muster::quota {

struct Reach {
  // Height of the lowest subtree around the queue that has room for it within its own quota; 0: the
  // queue's own. The whole tree's where none has.
  int height = 0;
  // There is quota outside that subtree: what uses its quota could be made to give it back.
  bool may_reclaim = false;
};

// `amount` more of `pair` on the queue at `node`.
Reach FindReach(const QuotaTree& tree, int node, int pair, Amount amount);

}  // namespace muster::quota
