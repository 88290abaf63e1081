#include "worker/diagnose/gpu_memory.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

TEST(GpuMemory, TheRestOfTheGpuBelongsToOthers) {
  const auto report = ReadGpuMemory(
      "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB. GPU 0 "
      "has "
      "a total capacity of 39.49 GiB of which 119.38 MiB is free. Including non-PyTorch memory, "
      "this "
      "process has 8.38 GiB memory in use. Of the allocated memory 7.96 GiB is allocated by "
      "PyTorch, "
      "and 7.73 MiB is reserved by PyTorch but unallocated.");
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->HeldByOthers());
  EXPECT_EQ(DescribeMemory(*report),
            "30.99 GiB of the GPU's 39.49 GiB belong to other processes, 8.38 GiB to this one, "
            "119.38 MiB were free, and it asked for 112.00 MiB, which is one whole weight, 4096 x "
            "14336 in bf16 (Llama-3-8B): the model is copied whole to this GPU, not partitioned");
}

TEST(GpuMemory, AProcessThatFillsTheGpuItselfBlamesNobody) {
  const auto report = ReadGpuMemory(
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
      "capacity of 79.10 GiB of which 1.23 GiB is free. Process 192 has 77.86 GiB memory in use. "
      "Including non-PyTorch memory, this process has 77.86 GiB memory in use.");
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->HeldByOthers());
  EXPECT_EQ(report->Others() / (1 << 20), 10);
}

TEST(GpuMemory, OfProcessesByNumberAloneTheOwnIsTheOneThatHoldsWhatPyTorchTook) {
  const auto report = ReadGpuMemory(
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 32.00 MiB. GPU 2 has a total "
      "capacity of 79.25 GiB of which 15.06 MiB is free. Process 188121 has 70.24 GiB memory in "
      "use. Process 190233 has 8.97 GiB memory in use. Of the allocated memory 8.40 GiB is "
      "allocated by PyTorch, and 63.10 MiB is reserved by PyTorch but unallocated.");
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->HeldByOthers());
  EXPECT_EQ(FormatBytes(report->own), "8.97 GiB");
  const auto alone = ReadGpuMemory(
      "Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 23.64 GiB of which 210.00 MiB "
      "is free. Process 771020 has 23.42 GiB memory in use. Of the allocated memory 19.50 GiB is "
      "allocated by PyTorch, and 1.20 GiB is reserved by PyTorch but unallocated.");
  ASSERT_TRUE(alone);
  EXPECT_FALSE(alone->HeldByOthers());
}

TEST(GpuMemory, PyTorch2AndOlder) {
  const auto report = ReadGpuMemory(
      "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.78 GiB total "
      "capacity; 5.10 GiB already allocated; 11.50 MiB free; 5.25 GiB reserved in total by "
      "PyTorch)");
  ASSERT_TRUE(report);
  EXPECT_EQ(FormatBytes(report->Others()), "10.52 GiB");
}

TEST(GpuMemory, OlderWordsAreRead) {
  const auto report = ReadGpuMemory(
      "Tried to allocate 26.00 MiB. GPU 5 has a total capacty of 79.00 GiB of which 0 bytes is "
      "free. Process 7 has 77.00 GiB memory in use. Including non-PyTorch memory, this process has "
      "2.00 GiB memory in use.");
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->HeldByOthers());
  EXPECT_TRUE(
      ReadGpuMemory("Tried to allocate 98.00 MiB (GPU 1; 10.92 GiB total capacity; 512.00 "
                    "MiB already allocated; 53.06 MiB free; 20.20 MiB cached)"));
}

TEST(GpuMemory, WithoutNumbersNothingIsRead) {
  EXPECT_FALSE(ReadGpuMemory("CUDA out of memory."));
  EXPECT_FALSE(ReadGpuMemory("Tried to allocate x MiB. total capacity of -1 GiB of which nan GiB"));
  EXPECT_FALSE(
      ReadGpuMemory("Tried to allocate 1e999 GiB. total capacity of 2 GiB of which 1 GiB "
                    "is free, this process has 1 GiB"));
}

TEST(GpuMemory, OnlyWholeWeightsAreCalledSo) {
  EXPECT_FALSE(WholeWeight(int64_t{112} << 20).empty());
  EXPECT_TRUE(WholeWeight(int64_t{113} << 20).empty());
  EXPECT_TRUE(WholeWeight(0).empty());
}

}  // namespace
}  // namespace muster::worker
