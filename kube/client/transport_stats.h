// What a transport has done so far, for metrics.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace muster::kube {

// Upper bounds of the latency histogram's buckets, in milliseconds; the last bucket has none.
inline constexpr std::array<int64_t, 14> kLatencyBoundsMs = {
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000};

// Counters grow for ever; the four gauges say what is under way now. Watches are counted only where
// they are named.
struct TransportStats {
  uint64_t sent = 0;                      // requests that went out
  std::array<uint64_t, 6> answered = {};  // by status / 100; 0 for one outside 100 to 599
  uint64_t unanswered = 0;                // no answer came
  uint64_t rejected = 0;                  // no room to wait
  uint64_t resent_after_401 = 0;
  uint64_t watches_started = 0;
  uint64_t probes = 0;             // requests that asked whether a silent watch connection lives
  uint64_t probes_unanswered = 0;  // each closed the connections that were silent
  uint64_t connections_cut = 0;    // closed because they were silent
  uint64_t bytes_received = 0;     // bodies, of watches too
  size_t in_flight = 0;
  size_t queued = 0;
  size_t watches = 0;
  size_t connections = 0;  // opened so far
  // From Send to answer, of answered requests.
  std::array<uint64_t, kLatencyBoundsMs.size() + 1> latency_counts = {};
  absl::Duration latency_sum = absl::ZeroDuration();
};

}  // namespace muster::kube
