#include "quota/borrowing.h"

namespace muster::quota {

Reach FindReach(const QuotaTree& tree, int node, int pair, Amount amount) {
  const bool has_parent = tree.node(node).parent != kNoNode;
  if (!has_parent || !tree.BorrowsWith(node, pair, amount)) return {0, has_parent};
  amount -= tree.LocalAvailable(node, pair);
  int at = tree.node(node).parent;
  while (true) {
    const QuotaTree::Node& cohort = tree.node(at);
    if (!tree.BorrowsWith(at, pair, amount)) return {cohort.height, cohort.parent != kNoNode};
    if (cohort.parent == kNoNode) return {cohort.height, false};
    amount -= tree.LocalAvailable(at, pair);
    at = cohort.parent;
  }
}

}  // namespace muster::quota
