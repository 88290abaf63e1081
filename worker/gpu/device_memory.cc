#include "worker/gpu/device_memory.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "worker/gpu/cuda_status.h"

namespace muster::worker {
namespace {

constexpr int64_t kAlignment = 512;

double GiB(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

std::byte* MemoryCutter::TakeBytes(std::string_view purpose, int64_t bytes) {
  const int64_t aligned = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const int64_t at = bytes_;
  bytes_ += aligned;
  by_purpose_[std::string(purpose)] += aligned;
  return base_ == nullptr ? nullptr : base_ + at;
}

void FreeDeviceMemory::operator()(std::byte* memory) const { cudaFree(memory); }
void FreePinnedMemory::operator()(std::byte* memory) const { cudaFreeHost(memory); }

std::string DescribePlan(const MemoryCutter& plan) {
  std::vector<std::pair<int64_t, std::string>> parts;
  for (const auto& [purpose, bytes] : plan.by_purpose()) {
    parts.emplace_back(bytes, purpose);
  }
  std::sort(parts.rbegin(), parts.rend());
  std::string text = fmt::format("{:.2f} GiB:", GiB(plan.bytes()));
  const char* separator = " ";
  for (const auto& [bytes, purpose] : parts) {
    text += fmt::format("{}{} {:.2f}", std::exchange(separator, ", "), purpose, GiB(bytes));
  }
  return text;
}

absl::StatusOr<DeviceMemory> AllocateDevice(const MemoryCutter& plan) {
  size_t free = 0;
  size_t total = 0;
  if (absl::Status status = CudaStatus(cudaMemGetInfo(&free, &total), "asking for free memory");
      !status.ok()) {
    return status;
  }
  if (plan.bytes() > static_cast<int64_t>(free)) {
    return absl::ResourceExhaustedError(fmt::format(
        "the model needs {}; of the GPU's {:.2f} GiB {:.2f} are free. Take a smaller micro-batch, "
        "or shard the state over more GPUs",
        DescribePlan(plan), GiB(static_cast<int64_t>(total)), GiB(static_cast<int64_t>(free))));
  }
  void* memory = nullptr;
  if (absl::Status status =
          CudaStatus(cudaMalloc(&memory, plan.bytes()), "allocating the GPU's memory");
      !status.ok()) {
    return status;
  }
  return DeviceMemory(static_cast<std::byte*>(memory));
}

absl::StatusOr<PinnedMemory> AllocatePinned(int64_t bytes) {
  void* memory = nullptr;
  if (absl::Status status =
          CudaStatus(cudaMallocHost(&memory, bytes), fmt::format("pinning {} bytes", bytes));
      !status.ok()) {
    return status;
  }
  return PinnedMemory(static_cast<std::byte*>(memory));
}

}  // namespace muster::worker
