// The dominant resource share of a node of the quota tree: how much it borrows of what it could
// borrow, in the resource where that is most, by its weight.
//
//   share = max over resources of 1000 * borrowed / lendable, / weight
//
// The definition is that of Kueue v0.19.2, pkg/cache/scheduler/fair_sharing.go, in exact fractions
// where Kueue divides floating point numbers.
#pragma once

#include <cstdint>

#include "quota/names.h"
#include "quota/quota_tree.h"

namespace muster::quota {

struct Share {
  int64_t borrowed = 0;  // 0: no share
  int64_t lendable = 1;
  int64_t weight_milli = 1000;

  bool IsZero() const { return borrowed == 0; }
  // In thousandths, rounded up, as Kueue shows it; the largest int64 for weight 0.
  int64_t Rounded() const;
};

// <0, 0 or >0. A node of weight 0 that borrows is above all others.
int CompareShares(const Share& a, const Share& b);

// It uses more of this pair than its subtree has.
inline bool Borrows(const QuotaTree& tree, int node, int pair) {
  return tree.Usage(node, pair) > tree.Subtree(node, pair);
}
// ... of any.
bool BorrowsAny(const QuotaTree& tree, int node);

// The share of a node as it uses its tree now. A root has none.
Share DominantShare(const QuotaTree& tree, const Names& names, int node);

}  // namespace muster::quota
