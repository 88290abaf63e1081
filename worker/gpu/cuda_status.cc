#include "worker/gpu/cuda_status.h"

#include <string>

#include "fmt/format.h"

namespace muster::worker {

absl::Status CudaStatus(cudaError_t error, std::string_view doing) {
  if (error == cudaSuccess) {
    return absl::OkStatus();
  }
  const std::string text =
      fmt::format("{}: {} ({})", doing, cudaGetErrorString(error), cudaGetErrorName(error));
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text)
                                            : absl::InternalError(text);
}

absl::Status LaunchStatus(std::string_view doing) { return CudaStatus(cudaGetLastError(), doing); }

}  // namespace muster::worker
