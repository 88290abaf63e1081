#include "worker/training/precision.h"

#include "fmt/format.h"

namespace muster::worker {

absl::StatusOr<Precision> ParsePrecision(std::string_view name) {
  if (name == "bf16") return Precision::kBf16;
  if (name == "fp8") return Precision::kFp8;
  return absl::InvalidArgumentError(fmt::format("precision={} is none of bf16 and fp8", name));
}

std::string_view PrecisionName(Precision precision) {
  return precision == Precision::kFp8 ? "fp8" : "bf16";
}

absl::StatusOr<GradientReduction> ParseGradientReduction(std::string_view name) {
  if (name == "fp32") return GradientReduction::kFp32;
  if (name == "bf16") return GradientReduction::kBf16;
  return absl::InvalidArgumentError(
      fmt::format("gradient-reduction={} is none of fp32 and bf16", name));
}

std::string_view GradientReductionName(GradientReduction reduction) {
  return reduction == GradientReduction::kBf16 ? "bf16" : "fp32";
}

absl::Status CheckComputeCapability(Precision precision, std::string_view gpu, int major,
                                    int minor) {
  constexpr int kFirstMajor = 8;
  constexpr int kFirstMinor = 9;
  if (precision != Precision::kFp8 || major > kFirstMajor ||
      (major == kFirstMajor && minor >= kFirstMinor)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      fmt::format("precision=fp8 needs a GPU of compute capability {}.{} or later; {} has {}.{}. "
                  "Set precision to bf16",
                  kFirstMajor, kFirstMinor, gpu, major, minor));
}

}  // namespace muster::worker
