// What the ranks of one job do together: sums, gathers, broadcasts.
//
//   absl::Status status = communicator.AllReduce(gradients, Reduction::kSum, absl::Minutes(2));
//   if (!status.ok()) return status;  // says which rank is behind, at which operation
//
// One communicator belongs to one generation: a set of processes, one per rank, that met in one
// round of the rendezvous. It never heals. Once an operation has failed, or Abort() was called,
// every later operation returns that first error at once. To go on with a rank replaced, drop it,
// meet again, and make a new one of the next generation.
//
// Every rank calls the same operations in the same order with the same sizes; a rank that doesn't
// gets FailedPrecondition on whoever notices, naming both ranks and what each of them was doing.
//
// Sums are deterministic: each element is added up in the order of ranks, 0 first, in float32. So
// for one world size a result depends on the values alone, and all implementations that compute on
// the CPU agree bit for bit.
//
// Threads: one thread at a time calls the operations; Abort() and the accessors may be called from
// any thread while one runs. Spans are only used during the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/communicator/deadline.h"
#include "worker/communicator/operation_ring.h"

namespace muster::worker {

enum class Reduction {
  kSum,
  kMax,  // NaN if any rank's is
};

// Which rank a communicator speaks for, and among whom.
struct Membership {
  int rank = 0;
  int world_size = 1;
  int64_t generation = 0;  // the rendezvous' round; a later one is greater
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return membership_.rank; }
  int world_size() const { return membership_.world_size; }
  int64_t generation() const { return membership_.generation; }
  // The group of all ranks.
  std::span<const int> everyone() const { return everyone_; }

  // Each of these returns when this rank's result is complete, or with
  //   DeadlineExceeded    after `timeout`: ranks have not come to this operation (RanksAtFault);
  //   Unavailable         a rank is gone;
  //   FailedPrecondition  a rank is at another operation, or at this one with another size;
  //   InvalidArgument     sizes that don't fit each other; nothing was sent, the communicator
  //   lives; or Abort()'s reason.
  // After an error, but InvalidArgument, outputs hold anything.

  // values[i] becomes the reduction of every rank's values[i].
  absl::Status AllReduce(std::span<float> values, Reduction reduction, absl::Duration timeout);

  // The same among the ranks of each group, all groups at once: every rank names its own one, in
  // ascending order, and each rank is in one; sizes are equal in all of them.
  absl::Status AllReduceWithin(std::span<const int> group, std::span<float> values,
                               Reduction reduction, absl::Duration timeout);

  // `input` is world_size() shards of output.size(); this rank gets the reduction of everyone's
  // shard number rank(). `output` may be that very part of `input`, or not overlap it.
  absl::Status ReduceScatter(std::span<const float> input, std::span<float> output,
                             Reduction reduction, absl::Duration timeout);

  // `output` becomes every rank's `input` one after the other, rank 0 first. `input` may be its own
  // part of `output`, or not overlap it.
  absl::Status AllGather(std::span<const float> input, std::span<float> output,
                         absl::Duration timeout);
  absl::Status AllGather(std::span<const std::byte> input, std::span<std::byte> output,
                         absl::Duration timeout);

  // `values` becomes the root's.
  absl::Status Broadcast(std::span<float> values, int root, absl::Duration timeout);
  absl::Status Broadcast(std::span<std::byte> values, int root, absl::Duration timeout);

  // Returns when every rank has come.
  absl::Status Barrier(absl::Duration timeout);

  // Ends the operation that runs and refuses all later ones with `reason` (not OK); the first
  // reason stays. The other ranks learn the reason where they can be reached. Doesn't wait for
  // anyone, so it returns in bounded time whatever the peers and the network do.
  void Abort(absl::Status reason);

  // The error that ended this communicator; OK while it lives.
  absl::Status status() const;

  // What this rank did last.
  const OperationRing& operations() const { return operations_; }

 protected:
  explicit Communicator(Membership membership);

 private:
  // The same as their namesakes: sizes are right, world_size() is above 1, and the error that they
  // return becomes status(). `operation` is this operation's entry in the ring. They must return
  // soon after DoAbort was called from another thread.
  virtual absl::Status DoAllReduce(const Operation& operation, std::span<const int> group,
                                   std::span<float> values, Reduction reduction,
                                   Deadline deadline) = 0;
  virtual absl::Status DoReduceScatter(const Operation& operation, std::span<const float> input,
                                       std::span<float> output, Reduction reduction,
                                       Deadline deadline) = 0;
  virtual absl::Status DoAllGather(const Operation& operation, std::span<const std::byte> input,
                                   std::span<std::byte> output, Deadline deadline) = 0;
  virtual absl::Status DoBroadcast(const Operation& operation, std::span<std::byte> values,
                                   int root, Deadline deadline) = 0;
  virtual absl::Status DoBarrier(const Operation& operation, Deadline deadline) = 0;
  // Called once at most, by any thread. Must not block.
  virtual void DoAbort(const absl::Status& reason) = 0;

  absl::Status Run(OperationKind kind, size_t bytes, int root,
                   absl::FunctionRef<absl::Status(const Operation&)> body);
  // Makes `reason` the error that ended this communicator, if it is the first; returns the first.
  absl::Status End(const absl::Status& reason);

  const Membership membership_;
  const std::vector<int> everyone_;
  OperationRing operations_;
  mutable std::mutex mutex_;
  absl::Status status_;  // guarded by mutex_
};

// The ranks that an error is about, in ascending order; empty if it names none. They travel in a
// payload of the status, beside the message.
std::vector<int> RanksAtFault(const absl::Status& status);
absl::Status WithRanksAtFault(absl::Status status, const std::vector<int>& ranks);

// "rank 3", "ranks 0 to 6, 9 and 12".
std::string RankList(const std::vector<int>& ranks);

// True if any rank's `mine` is: how ranks agree, at a step boundary, on something that each of them
// learns at another moment, such as a SIGTERM. All of them get the same answer.
absl::StatusOr<bool> AgreeOnAny(Communicator& communicator, bool mine, absl::Duration timeout);

// Makes what any rank failed with everyone's: `result` becomes OK if every rank's is, or else that
// of the lowest rank that failed, with "rank 3: " before its message among several ranks. Returns
// the communicator's own error; `result` is then as it was.
absl::Status AgreeOnResult(Communicator& communicator, absl::Status& result,
                           absl::Duration timeout);

}  // namespace muster::worker
