// The last operations of a communicator, for the post-mortem: which one this rank is in, since
// when, and what came before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace muster::worker {

enum class OperationKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier,
};

// "all-reduce", "barrier", ...; "unknown operation" for a value off the wire that is none.
absl::string_view OperationName(OperationKind kind);

struct Operation {
  int64_t sequence = 0;  // counts this communicator's operations from 1
  OperationKind kind = OperationKind::kBarrier;
  uint64_t bytes = 0;  // of this rank's larger buffer; equal on all ranks
  int root = 0;        // of a broadcast
  absl::Time started;
  std::optional<absl::Duration> took = std::nullopt;  // empty while it runs
  absl::StatusCode outcome = absl::StatusCode::kOk;
};

// True if these can be two ranks' parts in one operation: number, kind, size and root are equal.
bool SameCall(const Operation& a, const Operation& b);

// "all-reduce 42 (1048576 bytes)".
std::string Describe(const Operation& operation);

// Safe to read from any thread while another writes.
class OperationRing {
 public:
  static constexpr size_t kCapacity = 64;

  Operation Start(OperationKind kind, uint64_t bytes, int root);
  void Finish(int64_t sequence, const absl::Status& status);

  // The newest one, running or not; empty before the first.
  std::optional<Operation> Last() const;
  // At most kCapacity, oldest first.
  std::vector<Operation> All() const;
  // All() as lines for a log, newest first.
  std::string Report() const;

 private:
  mutable std::mutex mutex_;
  int64_t started_ = 0;
  std::array<Operation, kCapacity> operations_;
};

}  // namespace muster::worker
