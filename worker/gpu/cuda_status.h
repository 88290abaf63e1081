// CUDA's errors as statuses.
#pragma once

#include <cuda_runtime.h>

#include <string_view>

#include "absl/status/status.h"

namespace muster::worker {

// Internal, with CUDA's name of the error and what was being done; ResourceExhausted if memory ran
// out.
absl::Status CudaStatus(cudaError_t error, std::string_view doing);

// The error of a launch since the last call, if there was one.
absl::Status LaunchStatus(std::string_view doing);

// The time that `work`, put on the stream again and again for about `milliseconds`, takes once, in
// milliseconds. Waits for the stream.
template <typename Work>
float MeasureMilliseconds(cudaStream_t stream, float milliseconds, Work work) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  work();
  float once = 0;
  // Doubles until a round is long enough to count.
  for (int rounds = 1;; rounds *= 2) {
    cudaEventRecord(begin, stream);
    for (int i = 0; i < rounds; ++i) {
      work();
    }
    cudaEventRecord(end, stream);
    if (cudaEventSynchronize(end) != cudaSuccess) {
      break;
    }
    float elapsed = 0;
    cudaEventElapsedTime(&elapsed, begin, end);
    once = elapsed / static_cast<float>(rounds);
    if (elapsed >= milliseconds / 2) {
      break;
    }
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return once;
}

}  // namespace muster::worker
