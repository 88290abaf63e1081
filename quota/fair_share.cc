#include "quota/fair_share.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/numeric/int128.h"

namespace muster::quota {
namespace {

struct Wide {
  uint64_t high = 0;
  absl::uint128 low = 0;
};

// a * b * c, exactly.
Wide Product(int64_t a, int64_t b, int64_t c) {
  const absl::uint128 ab = absl::uint128(static_cast<uint64_t>(a)) * static_cast<uint64_t>(b);
  const absl::uint128 low = absl::uint128(absl::Uint128Low64(ab)) * static_cast<uint64_t>(c);
  const absl::uint128 high =
      absl::uint128(absl::Uint128High64(ab)) * static_cast<uint64_t>(c) + absl::Uint128High64(low);
  return {absl::Uint128High64(high),
          absl::MakeUint128(absl::Uint128Low64(high), absl::Uint128Low64(low))};
}

bool IsLess(const Wide& a, const Wide& b) {
  return std::tie(a.high, a.low) < std::tie(b.high, b.low);
}

int CompareProducts(const Wide& a, const Wide& b) {
  if (IsLess(a, b)) return -1;
  return IsLess(b, a) ? 1 : 0;
}

bool IsUnbounded(const Share& share) { return share.weight_milli == 0 && !share.IsZero(); }

}  // namespace

int64_t Share::Rounded() const {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  if (IsZero()) return 0;
  if (weight_milli == 0) return kMax;
  const absl::uint128 above = absl::uint128(static_cast<uint64_t>(borrowed)) * 1'000'000u;
  const absl::uint128 below =
      absl::uint128(static_cast<uint64_t>(lendable)) * static_cast<uint64_t>(weight_milli);
  const absl::uint128 rounded = (above - 1) / below + 1;
  return rounded > absl::uint128(static_cast<uint64_t>(kMax)) ? kMax
                                                              : static_cast<int64_t>(rounded);
}

int CompareShares(const Share& a, const Share& b) {
  if (IsUnbounded(a) && IsUnbounded(b)) {
    return CompareProducts(Product(a.borrowed, b.lendable, 1), Product(b.borrowed, a.lendable, 1));
  }
  if (IsUnbounded(a)) return 1;
  if (IsUnbounded(b)) return -1;
  if (a.IsZero() || b.IsZero()) return (a.IsZero() ? 0 : 1) - (b.IsZero() ? 0 : 1);
  return CompareProducts(Product(a.borrowed, b.lendable, b.weight_milli),
                         Product(b.borrowed, a.lendable, a.weight_milli));
}

bool BorrowsAny(const QuotaTree& tree, int node) {
  return std::ranges::any_of(tree.node(node).listed,
                             [&](int pair) { return Borrows(tree, node, pair); });
}

Share DominantShare(const QuotaTree& tree, const Names& names, int node) {
  const QuotaTree::Node& info = tree.node(node);
  Share share;
  share.weight_milli = info.fair_weight_milli;
  if (info.parent == kNoNode) return share;
  const QuotaTree::Node& parent = tree.node(info.parent);
  for (size_t i = 0; i < info.listed.size();) {
    const int resource = names.Of(info.listed[i]).resource;
    Amount borrowed = 0;
    for (; i < info.listed.size() && names.Of(info.listed[i]).resource == resource; ++i) {
      const int pair = info.listed[i];
      borrowed += std::max(Amount(0), tree.Usage(node, pair) - tree.Subtree(node, pair));
    }
    const int64_t lendable = parent.lendable[static_cast<size_t>(resource)];
    if (borrowed == 0 || lendable <= 0) continue;
    const Share candidate = {Saturate(borrowed), lendable, share.weight_milli};
    if (share.IsZero() || Amount(candidate.borrowed) * Amount(share.lendable) >
                              Amount(share.borrowed) * Amount(candidate.lendable)) {
      share = candidate;
    }
  }
  return share;
}

}  // namespace muster::quota
