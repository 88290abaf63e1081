// A moment by the clock that no one can set.
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace muster::worker {

using Deadline = std::chrono::steady_clock::time_point;

// A `timeout` of InfiniteDuration, or above a hundred years, counts as a hundred years.
inline Deadline DeadlineAfter(absl::Duration timeout) {
  constexpr absl::Duration kLongest = absl::Hours(24 * 365 * 100);
  return std::chrono::steady_clock::now() +
         absl::ToChronoNanoseconds(timeout < kLongest ? timeout : kLongest);
}

// What is left until then; never negative.
inline absl::Duration TimeLeft(Deadline deadline) {
  const absl::Duration left = absl::FromChrono(deadline - std::chrono::steady_clock::now());
  return left > absl::ZeroDuration() ? left : absl::ZeroDuration();
}

}  // namespace muster::worker
