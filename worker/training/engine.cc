#include "worker/training/engine.h"

#include <algorithm>

namespace muster::worker {
namespace {

absl::Status FillWithZero(std::span<float> values) {
  std::fill(values.begin(), values.end(), 0.0F);
  return absl::OkStatus();
}

}  // namespace

StateSource InitialState(const ParameterLayout& layout, uint64_t seed) {
  return [&layout, seed](StateKind kind, int64_t offset, std::span<float> values) {
    if (kind != StateKind::kParameters) {
      return FillWithZero(values);
    }
    layout.Initialize(seed, offset, values);
    return absl::OkStatus();
  };
}

StateSource WeightsState(const HuggingFaceWeights& weights) {
  return [&weights](StateKind kind, int64_t offset, std::span<float> values) {
    return kind == StateKind::kParameters ? weights.Read(offset, values) : FillWithZero(values);
  };
}

}  // namespace muster::worker
