// One allocation for everything that lives as long as an engine, cut by a plan that is known, and
// can be refused, before anything is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace muster::worker {

// Cuts memory from `base` on into pieces. Without a base it only counts, and what it returns must
// not be used: who needs memory takes it twice, by the same code, at first to learn how much.
class MemoryCutter {
 public:
  explicit MemoryCutter(std::byte* base = nullptr) : base_(base) {}

  // `count` of T, aligned for every kernel. `purpose` is a word of a plan's table.
  template <typename T>
  T* Take(std::string_view purpose, int64_t count) {
    return reinterpret_cast<T*>(TakeBytes(purpose, count * static_cast<int64_t>(sizeof(T))));
  }

  int64_t bytes() const { return bytes_; }
  const std::map<std::string, int64_t, std::less<>>& by_purpose() const { return by_purpose_; }

 private:
  std::byte* TakeBytes(std::string_view purpose, int64_t bytes);

  std::byte* base_;
  int64_t bytes_ = 0;
  std::map<std::string, int64_t, std::less<>> by_purpose_;
};

struct FreeDeviceMemory {
  void operator()(std::byte* memory) const;
};
struct FreePinnedMemory {
  void operator()(std::byte* memory) const;
};
using DeviceMemory = std::unique_ptr<std::byte, FreeDeviceMemory>;
// Of the host, and near to the device: copies from and to it don't block the host.
using PinnedMemory = std::unique_ptr<std::byte, FreePinnedMemory>;

// ResourceExhausted with what is needed, what is free and what it is for, if the device hasn't as
// much; then nothing was allocated.
absl::StatusOr<DeviceMemory> AllocateDevice(const MemoryCutter& plan);
absl::StatusOr<PinnedMemory> AllocatePinned(int64_t bytes);

// "12.3 GiB: activations 8.1, master 2.2, ...", the largest first.
std::string DescribePlan(const MemoryCutter& plan);

}  // namespace muster::worker
