#include "worker/gpu/nccl_all_reducer.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/gpu/cuda_status.h"
#include "worker/gpu/device_memory.h"
#include "worker/gpu/nccl_communicator.h"

namespace muster::worker {
namespace {

class NcclAllReducer : public AllReducer {
 public:
  NcclAllReducer(Communicator& ranks, std::span<const int> node,
                 const NcclAllReducerOptions& options)
      : ranks_(ranks), node_(node), options_(options) {}

  ~NcclAllReducer() override {
    // Kernels that still run use the buffer.
    within_node_.reset();
    among_all_.reset();
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
    if (copies_ != nullptr) cudaStreamDestroy(copies_);
  }

  absl::Status Start() {
    absl::Status result = CudaStatus(cudaSetDevice(options_.device), "choosing the GPU");
    size_t free = 0;
    size_t total = 0;
    result.Update(CudaStatus(cudaMemGetInfo(&free, &total), "free memory"));
    result.Update(CudaStatus(cudaEventCreate(&begin_), "an event"));
    result.Update(CudaStatus(cudaEventCreate(&end_), "an event"));
    result.Update(
        CudaStatus(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "a stream"));
    if (absl::Status status = AgreeOnResult(ranks_, result, options_.timeout);
        !status.ok() || !result.ok()) {
      return status.ok() ? result : status;
    }
    // The least of all ranks, in units that a float holds exactly.
    constexpr int64_t kUnit = int64_t{1} << 20;
    auto most =
        -static_cast<float>(std::min(options_.most_bytes, static_cast<int64_t>(free / 4)) / kUnit);
    if (absl::Status status = ranks_.AllReduce({&most, 1}, Reduction::kMax, options_.timeout);
        !status.ok()) {
      return status;
    }
    size_ = static_cast<int64_t>(-most) * kUnit / static_cast<int64_t>(sizeof(float));
    MemoryCutter plan;
    plan.Take<float>("all-reduce", size_);
    absl::StatusOr<DeviceMemory> memory = AllocateDevice(plan);
    result = memory.status();
    if (memory.ok()) memory_ = *std::move(memory);
    const absl::Status status = AgreeOnResult(ranks_, result, options_.timeout);
    return status.ok() ? result : status;
  }

  int64_t size() const override { return size_; }

  absl::Status Write(int64_t offset, std::span<const float> values) override {
    return Copy(buffer() + offset, values.data(), values.size_bytes(), cudaMemcpyHostToDevice,
                "copying to the GPU");
  }

  absl::Status Read(int64_t offset, std::span<float> values) override {
    return Copy(values.data(), buffer() + offset, values.size_bytes(), cudaMemcpyDeviceToHost,
                "copying from the GPU");
  }

  absl::StatusOr<absl::Duration> AllReduce(Reach reach, int64_t count, int times) override {
    std::unique_ptr<NcclCommunicator>& nccl = reach == Reach::kNode ? within_node_ : among_all_;
    if (nccl == nullptr) {
      const NcclCommunicator::Options options = {.timeout = options_.timeout, .most_blocks = 0};
      absl::StatusOr<std::unique_ptr<NcclCommunicator>> made =
          reach == Reach::kNode ? NcclCommunicator::CreateWithin(node_, ranks_, options)
                                : NcclCommunicator::Create(ranks_, options);
      if (!made.ok()) return made.status();
      nccl = *std::move(made);
    }
    absl::Status status = CudaStatus(cudaEventRecord(begin_, nccl->stream()), "an event");
    for (int i = 0; i < times && status.ok(); ++i) status = nccl->AllReduce(buffer(), count);
    status.Update(CudaStatus(cudaEventRecord(end_, nccl->stream()), "an event"));
    if (!status.ok()) return status;
    status = nccl->WaitFor(end_, reach == Reach::kNode ? "preflight's all-reduce in the node"
                                                       : "preflight's all-reduce across nodes");
    if (!status.ok()) return status;
    float milliseconds = 0;
    status = CudaStatus(cudaEventElapsedTime(&milliseconds, begin_, end_), "the time");
    if (!status.ok()) return status;
    return absl::Milliseconds(milliseconds) / times;
  }

 private:
  // Done when it returns. AllReduce also returns only when its stream is through, so the two never
  // overlap; cudaMemcpy would be ordered with neither, as NCCL's streams don't wait for the default
  // one, and from pageable memory it may return before the device has it.
  absl::Status Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                    std::string_view doing) {
    absl::Status status = CudaStatus(cudaMemcpyAsync(to, from, bytes, kind, copies_), doing);
    status.Update(CudaStatus(cudaStreamSynchronize(copies_), doing));
    return status;
  }

  float* buffer() const { return reinterpret_cast<float*>(memory_.get()); }

  Communicator& ranks_;
  const std::span<const int> node_;
  const NcclAllReducerOptions options_;
  int64_t size_ = 0;
  DeviceMemory memory_;
  cudaStream_t copies_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  std::unique_ptr<NcclCommunicator> within_node_;
  std::unique_ptr<NcclCommunicator> among_all_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AllReducer>> MakeNcclAllReducer(
    Communicator& ranks, std::span<const int> node, const NcclAllReducerOptions& options) {
  auto made = std::make_unique<NcclAllReducer>(ranks, node, options);
  if (absl::Status status = made->Start(); !status.ok()) return status;
  return made;
}

}  // namespace muster::worker
