// Random cases that Kueue's webhooks would let through, small enough to be understood.
#pragma once

#include <cstdint>

#include "nlohmann/json.hpp"

namespace muster::quota::testing {

// The same case for the same seed, on every machine. In the format of tests/kueue/README.md: up to
// 4 levels of cohorts and queues, up to 3 resource groups, up to 12 admitted and 3 pending
// workloads.
nlohmann::json MakeCase(uint64_t seed);

// A history of queues like those of cases: their objects, then 40 to 60 events that go on from what
// a QuotaScheduler made of those before.
nlohmann::json MakeHistory(uint64_t seed);

}  // namespace muster::quota::testing
