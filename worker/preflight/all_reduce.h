// All-reduces as training does them, to see that they are right and fast: on whatever does them,
// over TCP on the CPU, or NCCL between GPUs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/communicator/communicator.h"

namespace muster::worker {

// Among whom: the ranks of each node for itself, all nodes at once; or all ranks.
enum class Reach : uint8_t { kNode, kAcross };

// A buffer of floats on each rank, all-reduced in place. One thread. AllReduce is a collective of
// all ranks, whose errors are those of Communicator, or NCCL's; after one of them it is of no use.
class AllReducer {
 public:
  virtual ~AllReducer() = default;

  // Elements of the buffer, equal on all ranks.
  virtual int64_t size() const = 0;
  virtual absl::Status Write(int64_t offset, std::span<const float> values) = 0;
  virtual absl::Status Read(int64_t offset, std::span<float> values) = 0;
  // Sums the first `count` elements, `times` times one after the other; the time of one.
  virtual absl::StatusOr<absl::Duration> AllReduce(Reach reach, int64_t count, int times) = 0;
};

// Over `ranks`, in this process's memory. `node` are the ranks of this rank's node, ascending.
// Both must outlive it.
std::unique_ptr<AllReducer> MakeCpuAllReducer(Communicator& ranks, std::span<const int> node,
                                              int64_t size, absl::Duration timeout);

// An element that isn't the sum that it should be; all are whole numbers small enough to be exact.
struct WrongSum {
  Reach reach = Reach::kNode;
  int64_t element = 0;  // the first one
  float found = 0;
  float expected = 0;
  int64_t wrong_elements = 0;
};

// What one rank has found. 0 GB/s: there is only one rank to reach, or the sums were wrong.
struct AllReduceFound {
  std::optional<WrongSum> wrong;
  double node = 0;  // GB/s of bus bandwidth (bandwidth.h), the best of all sizes of message
  double across = 0;
};

// Checks and times all-reduces of growing messages, up to the whole buffer, for about `budget` for
// each reach. A collective of all ranks; `nodes[r]` is the number of rank r's node. `timeout` is
// for the waits that this itself needs.
absl::StatusOr<AllReduceFound> TryAllReduces(Communicator& ranks, std::span<const int> nodes,
                                             AllReducer& reducer, absl::Duration budget,
                                             absl::Duration timeout);

// The ranks with this rank's number in `nodes`, ascending.
std::vector<int> RanksOfNode(std::span<const int> nodes, int rank);

}  // namespace muster::worker
