// The numbers that a training computes and communicates with.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::worker {

// Of the products of blocks and their operands. Parameters, moments, sums and the gradients of
// parameters are fp32 in both.
enum class Precision {
  kBf16,
  kFp8,  // E4M3 forward, E5M2 for gradients; attention and the head as in bf16
};

// Of gradients on their way between ranks.
enum class GradientReduction {
  kFp32,
  kBf16,  // half the bytes; each rank's part is rounded, and so is each partial sum
};

// "bf16", "fp8"; InvalidArgument lists them.
absl::StatusOr<Precision> ParsePrecision(std::string_view name);
std::string_view PrecisionName(Precision precision);

// "fp32", "bf16"; InvalidArgument lists them.
absl::StatusOr<GradientReduction> ParseGradientReduction(std::string_view name);
std::string_view GradientReductionName(GradientReduction reduction);

// InvalidArgument, with what to set instead, if a GPU of that compute capability has no tensor
// cores for it: FP8 begins with 8.9.
absl::Status CheckComputeCapability(Precision precision, std::string_view gpu, int major,
                                    int minor);

}  // namespace muster::worker
