#include "worker/model/parameter_units.h"

namespace muster::worker {

ResidentUnits::ResidentUnits(const ParameterLayout& layout)
    : layout_(layout), parameters_(layout.size()), gradients_(layout.size()) {}

absl::StatusOr<std::span<const float>> ResidentUnits::Acquire(int unit) {
  const ParameterLayout::Unit& range = layout_.units()[unit];
  return std::span(parameters_).subspan(range.offset, range.size);
}

void ResidentUnits::Release(int /*unit*/) {}

absl::StatusOr<std::span<float>> ResidentUnits::AcquireGradient(int unit) {
  const ParameterLayout::Unit& range = layout_.units()[unit];
  return std::span(gradients_).subspan(range.offset, range.size);
}

absl::Status ResidentUnits::ReleaseGradient(int /*unit*/) { return absl::OkStatus(); }

}  // namespace muster::worker
