#include "worker/gpu/nccl_communicator.h"

#include <nccl.h>

#include <chrono>
#include <cstring>
#include <span>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "worker/communicator/rank_order.h"
#include "worker/gpu/cuda_status.h"
#include "worker/gpu/shared_library.h"

namespace muster::worker {

// The functions of the library that are used.
class NcclLibrary {
 public:
  static absl::StatusOr<const NcclLibrary*> Load() {
    static const absl::StatusOr<NcclLibrary> kLoaded = Find();
    if (!kLoaded.ok()) {
      return kLoaded.status();
    }
    return &*kLoaded;
  }

  decltype(&ncclGetVersion) version = nullptr;
  decltype(&ncclGetUniqueId) unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclGetErrorString) error_text = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;

 private:
  static absl::StatusOr<NcclLibrary> Find() {
    const absl::StatusOr<SharedLibrary> library =
        SharedLibrary::Open({"libnccl.so.2", "libnccl.so"});
    if (!library.ok()) {
      return library.status();
    }
    NcclLibrary loaded;
    bool complete = true;
    const auto find = [&](auto*& function, const char* name) {
      function =
          library->Find<std::remove_pointer_t<std::remove_reference_t<decltype(function)>>>(name);
      complete = complete && function != nullptr;
    };
    find(loaded.version, "ncclGetVersion");
    find(loaded.unique_id, "ncclGetUniqueId");
    find(loaded.init, "ncclCommInitRankConfig");
    find(loaded.async_error, "ncclCommGetAsyncError");
    find(loaded.abort, "ncclCommAbort");
    find(loaded.error_text, "ncclGetErrorString");
    find(loaded.last_error, "ncclGetLastError");
    find(loaded.all_reduce, "ncclAllReduce");
    find(loaded.reduce_scatter, "ncclReduceScatter");
    find(loaded.all_gather, "ncclAllGather");
    if (!complete) {
      return absl::NotFoundError("NCCL lacks functions of version 2.18 and later");
    }
    return loaded;
  }
};

namespace {

// Between two looks at the device: short beside a step, long beside a look.
constexpr std::chrono::microseconds kPause{20};
// All ranks that live find out at about the same time that one is behind, because they all wait for
// it.
constexpr absl::Duration kRollCall = absl::Seconds(5);
constexpr absl::Duration kLastWords = absl::Seconds(1);

}  // namespace

std::string NcclVersion() {
  const absl::StatusOr<const NcclLibrary*> library = NcclLibrary::Load();
  int code = 0;
  if (!library.ok() || (*library)->version(&code) != ncclSuccess) {
    return "none";
  }
  // NCCL_VERSION(X, Y, Z) of nccl.h, from 2.9 on.
  return fmt::format("{}.{}.{}", code / 10'000, code / 100 % 100, code % 100);
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Create(Communicator& ranks,
                                                                           const Options& options) {
  return CreateWithin(ranks.everyone(), ranks, options);
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::CreateWithin(
    std::span<const int> group, Communicator& ranks, const Options& options) {
  auto made = std::unique_ptr<NcclCommunicator>(new NcclCommunicator(ranks, options));
  const absl::StatusOr<const NcclLibrary*> library = NcclLibrary::Load();
  if (library.ok()) {
    made->library_ = *library;
  }
  if (absl::Status status = made->Connect(group, library.status()); !status.ok()) {
    return status;
  }
  return made;
}

absl::Status NcclCommunicator::Connect(std::span<const int> group, const absl::Status& loaded) {
  absl::Status result = loaded;
  // Before the blocks that a kernel of the model still has to start: ranks that wait for one
  // another hold multiprocessors meanwhile.
  int lowest = 0;
  int highest = 0;
  result.Update(CudaStatus(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "priorities"));
  result.Update(CudaStatus(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest),
                           "a stream"));
  result.Update(CudaStatus(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "an event"));
  std::vector<ncclUniqueId> ids(ranks_.world_size());
  ncclUniqueId& own = ids[ranks_.rank()];
  if (result.ok() && ranks_.rank() == group.front()) {
    if (const ncclResult_t error = library_->unique_id(&own); error != ncclSuccess) {
      result = absl::InternalError(fmt::format("ncclGetUniqueId: {}", library_->error_text(error)));
    }
  }
  if (absl::Status status = AgreeOnResult(ranks_, result, options_.timeout);
      !status.ok() || !result.ok()) {
    return status.ok() ? result : status;
  }
  if (absl::Status status =
          ranks_.AllGather(std::as_bytes(std::span(&own, 1)),
                           std::as_writable_bytes(std::span(ids)), options_.timeout);
      !status.ok()) {
    return status;
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (options_.most_blocks > 0) config.maxCTAs = options_.most_blocks;
  auto* handle = static_cast<ncclComm_t>(nullptr);
  const auto place = static_cast<int>(PlaceIn(group, ranks_.rank()));
  const ncclResult_t answer =
      library_->init(&handle, static_cast<int>(group.size()), ids[group.front()], place, &config);
  handle_ = handle;
  return Settle(answer, "connecting NCCL");
}

NcclCommunicator::~NcclCommunicator() {
  // What still runs, others may be waiting for; but not for ever.
  const Deadline deadline = DeadlineAfter(kLastWords);
  while (handle_ != nullptr && cudaStreamQuery(stream_) == cudaErrorNotReady &&
         TimeLeft(deadline) > absl::ZeroDuration()) {
    std::this_thread::sleep_for(kPause);
  }
  if (handle_ != nullptr) {
    library_->abort(static_cast<ncclComm_t>(handle_));
  }
  if (event_ != nullptr) cudaEventDestroy(event_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

absl::Status NcclCommunicator::Follow(cudaStream_t other) {
  absl::Status status = CudaStatus(cudaEventRecord(event_, other), "an event");
  status.Update(CudaStatus(cudaStreamWaitEvent(stream_, event_), "an event"));
  return status;
}

absl::Status NcclCommunicator::Precede(cudaStream_t other) {
  absl::Status status = CudaStatus(cudaEventRecord(event_, stream_), "an event");
  status.Update(CudaStatus(cudaStreamWaitEvent(other, event_), "an event"));
  return status;
}

absl::Status NcclCommunicator::AllReduce(void* values, int64_t count, int type) {
  if (!status_.ok()) return status_;
  return Settle(library_->all_reduce(values, values, count, static_cast<ncclDataType_t>(type),
                                     ncclSum, static_cast<ncclComm_t>(handle_), stream_),
                "all-reduce");
}

absl::Status NcclCommunicator::AllReduce(float* values, int64_t count) {
  return AllReduce(values, count, ncclFloat32);
}

absl::Status NcclCommunicator::AllReduce(Bf16* values, int64_t count) {
  return AllReduce(values, count, ncclBfloat16);
}

absl::Status NcclCommunicator::AllReduce(double* values, int64_t count) {
  return AllReduce(values, count, ncclFloat64);
}

absl::Status NcclCommunicator::ReduceScatter(const void* input, void* output, int64_t count,
                                             int type) {
  if (!status_.ok()) return status_;
  return Settle(library_->reduce_scatter(input, output, count, static_cast<ncclDataType_t>(type),
                                         ncclSum, static_cast<ncclComm_t>(handle_), stream_),
                "reduce-scatter");
}

absl::Status NcclCommunicator::ReduceScatter(const float* input, float* output, int64_t count) {
  return ReduceScatter(input, output, count, ncclFloat32);
}

absl::Status NcclCommunicator::ReduceScatter(const Bf16* input, Bf16* output, int64_t count) {
  return ReduceScatter(input, output, count, ncclBfloat16);
}

absl::Status NcclCommunicator::AllGather(const void* input, void* output, int64_t bytes) {
  if (!status_.ok()) return status_;
  return Settle(library_->all_gather(input, output, bytes, ncclInt8,
                                     static_cast<ncclComm_t>(handle_), stream_),
                "all-gather");
}

absl::Status NcclCommunicator::Settle(int result, std::string_view doing) {
  auto state = static_cast<ncclResult_t>(result);
  const Deadline deadline = DeadlineAfter(options_.timeout);
  while (state == ncclInProgress) {
    if (absl::Status lost = ranks_.status(); !lost.ok()) {
      return Fail(lost);
    }
    if (TimeLeft(deadline) == absl::ZeroDuration()) {
      return FailAfterRollCall(absl::DeadlineExceededError(
          fmt::format("{}: not done after {}", doing, absl::FormatDuration(options_.timeout))));
    }
    std::this_thread::sleep_for(kPause);
    if (const ncclResult_t error = library_->async_error(static_cast<ncclComm_t>(handle_), &state);
        error != ncclSuccess) {
      state = error;
    }
  }
  if (state == ncclSuccess) {
    return absl::OkStatus();
  }
  absl::Status error =
      absl::InternalError(fmt::format("{}: NCCL: {} ({})", doing, library_->error_text(state),
                                      library_->last_error(static_cast<ncclComm_t>(handle_))));
  return state == ncclRemoteError ? FailAfterRollCall(std::move(error)) : Fail(std::move(error));
}

absl::Status NcclCommunicator::WaitFor(cudaEvent_t event, std::string_view doing) {
  const Deadline deadline = DeadlineAfter(options_.timeout);
  while (status_.ok()) {
    const cudaError_t reached = cudaEventQuery(event);
    if (reached == cudaSuccess) {
      return absl::OkStatus();
    }
    if (reached != cudaErrorNotReady) {
      return Fail(CudaStatus(reached, doing));
    }
    if (absl::Status lost = ranks_.status(); !lost.ok()) {
      return Fail(lost);
    }
    ncclResult_t state = ncclSuccess;
    if (library_->async_error(static_cast<ncclComm_t>(handle_), &state) != ncclSuccess ||
        (state != ncclSuccess && state != ncclInProgress)) {
      return Settle(state == ncclSuccess ? ncclInternalError : state, doing);
    }
    if (TimeLeft(deadline) == absl::ZeroDuration()) {
      return FailAfterRollCall(absl::DeadlineExceededError(
          fmt::format("{}: not done after {}", doing, absl::FormatDuration(options_.timeout))));
    }
    std::this_thread::sleep_for(kPause);
  }
  return status_;
}

absl::Status NcclCommunicator::Finish(std::string_view doing) {
  const absl::Status status = CudaStatus(cudaEventRecord(event_, stream_), "an event");
  return status.ok() ? WaitFor(event_, doing) : status;
}

absl::Status NcclCommunicator::Fail(absl::Status error) {
  // Its kernels would keep every later wait for the device from ending.
  if (handle_ != nullptr) {
    library_->abort(static_cast<ncclComm_t>(std::exchange(handle_, nullptr)));
  }
  if (status_.ok()) {
    status_ = std::move(error);
  }
  return status_;
}

absl::Status NcclCommunicator::FailAfterRollCall(absl::Status error) {
  // Before the call, so that the device is free whatever comes of it.
  Fail(error).IgnoreError();
  if (const absl::Status behind = ranks_.Barrier(kRollCall); !behind.ok()) {
    status_ = behind;
  }
  return status_;
}

}  // namespace muster::worker
