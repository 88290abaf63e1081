// Which sharding to train with when nobody has said: the first whose memory plan fits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/communicator/communicator.h"
#include "worker/training/sharding.h"

namespace muster::worker {

// What a rank takes of its device's memory with one sharding.
struct ShardingNeed {
  Sharding sharding = Sharding::kDataParallel;
  int64_t bytes = 0;
  std::string plan;  // what they are for: "12.34 GiB: activations 8.1, ..."
};

struct DeviceRoom {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};

struct ShardingChoice {
  Sharding sharding = Sharding::kDataParallel;
  std::string reason;  // a clause with the numbers
};

// The first of `needs`, of which there is at least one. ResourceExhausted, with all of them and
// what helps, if none fits; nothing needs to be allocated to know.
absl::StatusOr<ShardingChoice> ChooseSharding(const std::vector<ShardingNeed>& needs,
                                              const DeviceRoom& room);

// The first that fits every rank. A collective: needs are of the same shardings on all ranks, and
// all get the same answer, or the error of the lowest rank that nothing fits on.
absl::StatusOr<ShardingChoice> ChooseSharding(const std::vector<ShardingNeed>& needs,
                                              const DeviceRoom& room, Communicator& communicator,
                                              absl::Duration timeout);

}  // namespace muster::worker
