// PyTorch's out-of-memory message, read for whose memory it was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster::worker {

// Bytes; PyTorch writes two decimals, so they are exact to a hundredth of their unit.
struct GpuMemoryReport {
  int64_t asked = 0;
  int64_t total = 0;
  int64_t free = 0;
  int64_t own = 0;  // this process's, on this GPU

  // What neither is free nor belongs to this process; never negative.
  int64_t Others() const;
  // More than a tenth of the GPU: contexts and fragments alone don't come to that.
  bool HeldByOthers() const;
};

// Reads "CUDA out of memory. Tried to allocate 112.00 MiB. GPU 0 has a total capacity of 39.49 GiB
// of which 119.38 MiB is free. Including non-PyTorch memory, this process has 8.38 GiB memory in
// use.", also as PyTorch 2.0 and older put it. Nothing if a number is missing.
std::optional<GpuMemoryReport> ReadGpuMemory(std::string_view line);

// "4096 x 14336 in bf16 (Llama-3-8B)" if `bytes`, to a hundredth of a MiB, is one whole weight of a
// well-known model: a rank that asks for that much at once is copying weights, not partitions.
std::string_view WholeWeight(int64_t bytes);

// The numbers as half a sentence.
std::string DescribeMemory(const GpuMemoryReport& report);

// "112.00 MiB", "39.49 GiB".
std::string FormatBytes(int64_t bytes);

}  // namespace muster::worker
