// All-reduces between GPUs, for preflight to try.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/communicator/communicator.h"
#include "worker/preflight/all_reduce.h"

namespace muster::worker {

struct NcclAllReducerOptions {
  int device = 0;
  int64_t most_bytes = int64_t{1} << 30;  // of the buffer; less where a rank has less free memory
  absl::Duration timeout = absl::Minutes(1);
};

// A collective of `ranks`; `node` are those of this rank's node, ascending. Both must outlive it.
// The communicators are made when they are first used, so their errors are AllReduce's.
absl::StatusOr<std::unique_ptr<AllReducer>> MakeNcclAllReducer(
    Communicator& ranks, std::span<const int> node, const NcclAllReducerOptions& options);

}  // namespace muster::worker
