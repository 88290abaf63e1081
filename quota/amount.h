// Sums of quota. One amount fits int64 (quantity.h); sums of them are kept in 128 bits, so that
// adding never overflows and taking away is always its exact inverse. Where Kueue would overflow an
// int64, this goes on counting.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/numeric/int128.h"

namespace muster::quota {

using Amount = absl::int128;

// The nearest int64: for what is shown, recorded or asked for.
inline int64_t Saturate(Amount amount) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(std::clamp(amount, Amount(kMin), Amount(kMax)));
}

// What a request past int64 is taken for, where Kueue's sums and products wrap around. No quota
// covers it.
inline constexpr int64_t kBeyondAnyQuota = std::numeric_limits<int64_t>::max();

// `count` pods of `each`.
inline int64_t SaturatingProduct(int64_t each, int64_t count) {
  return Saturate(Amount(each) * Amount(count));
}

}  // namespace muster::quota
