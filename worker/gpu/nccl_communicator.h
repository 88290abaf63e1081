// What the GPUs of all ranks do together, by NCCL: sums and gathers of device memory on a stream of
// its own, beside the model's.
//
//   communicator.Follow(model_stream);              // the gradient is ready
//   communicator.ReduceScatter(gradient, own, n);   // while the model goes on
//   communicator.Precede(model_stream);             // the model goes on with the sums
//
// Every rank calls the same operations in the same order with the same sizes. They return when they
// are on the stream. NCCL knows no deadlines and its kernels wait for ever; so whoever waits for
// the device does it by WaitFor(), which also looks after NCCL's own errors, the deadline, and the
// ranks' Communicator, and then takes the kernels down. After an error it never heals: make a new
// one with the next generation's Communicator.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/communicator/communicator.h"
#include "worker/gpu/kernels/launch.h"

namespace muster::worker {

class NcclLibrary;

// Of the libnccl that this process would load, "2.28.9"; "none" if there is none.
std::string NcclVersion();

// Used by one thread, for the device that was current when it was made.
class NcclCommunicator {
 public:
  struct Options {
    // Of the waits for the device, after which ranks that have not come are at fault.
    absl::Duration timeout = absl::Minutes(5);
    // Thread blocks, each of which takes a multiprocessor from the model while an operation runs.
    // 0: as many as NCCL likes.
    int most_blocks = 16;
  };

  // A collective of all ranks of `ranks`, which must outlive this. NotFound if libnccl isn't there
  // (on every rank, if it is missing on any), DeadlineExceeded or Unavailable if ranks don't come.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Create(Communicator& ranks,
                                                                  const Options& options);
  // The same for the ranks of each group, all groups at once: every rank of `ranks` names its own
  // one, in ascending order. What follows is a collective of that group.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> CreateWithin(std::span<const int> group,
                                                                        Communicator& ranks,
                                                                        const Options& options);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  cudaStream_t stream() const { return stream_; }
  // What is put on stream() from now on waits for what is on `other` now, and the reverse.
  absl::Status Follow(cudaStream_t other);
  absl::Status Precede(cudaStream_t other);

  // values[i] becomes the sum of every rank's; of bf16, with every partial sum rounded.
  absl::Status AllReduce(float* values, int64_t count);
  absl::Status AllReduce(Bf16* values, int64_t count);
  absl::Status AllReduce(double* values, int64_t count);
  // `input` is one chunk of `count` for each rank; `output` becomes the sum of everyone's chunk
  // number rank, and may be that chunk.
  absl::Status ReduceScatter(const float* input, float* output, int64_t count);
  absl::Status ReduceScatter(const Bf16* input, Bf16* output, int64_t count);
  // `output` becomes every rank's `input` of `bytes`, rank 0's first; `input` may be its own place.
  absl::Status AllGather(const void* input, void* output, int64_t bytes);

  // Returns when `event` has come, or with what keeps it from coming: the error of `ranks`;
  // DeadlineExceeded or Unavailable with the ranks that are behind or gone; Internal with NCCL's
  // error if all ranks are there. `doing` is for the message.
  absl::Status WaitFor(cudaEvent_t event, std::string_view doing);
  // Returns when all is done that was put on stream(); errors as WaitFor's.
  absl::Status Finish(std::string_view doing);

 private:
  NcclCommunicator(Communicator& ranks, const Options& options)
      : ranks_(ranks), options_(options) {}
  absl::Status Connect(std::span<const int> group, const absl::Status& loaded);
  absl::Status AllReduce(void* values, int64_t count, int type);  // ncclDataType_t
  absl::Status ReduceScatter(const void* input, void* output, int64_t count, int type);
  // Waits until NCCL has taken up what it was given; `result` is its answer.
  absl::Status Settle(int result, std::string_view doing);
  // Ends this with `error`, which the other ranks learn from whoever handles it.
  absl::Status Fail(absl::Status error);
  // Where all ranks are bound to fail: ends this with the ranks that don't answer, or with `error`.
  absl::Status FailAfterRollCall(absl::Status error);

  Communicator& ranks_;
  const Options options_;
  const NcclLibrary* library_ = nullptr;
  void* handle_ = nullptr;  // ncclComm_t
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  absl::Status status_;
};

}  // namespace muster::worker
