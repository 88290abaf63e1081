// Where a model gets the parameters of a unit (parameter_layout.h) and leaves their gradients. Data
// parallel keeps all of them; ZeRO-3 gathers a unit before it is used and reduces its gradient
// after.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/model/parameter_layout.h"

namespace muster::worker {

// Used by one thread. Every rank asks for the same units in the same order, so an implementation
// may communicate in any of these.
class ParameterUnits {
 public:
  ParameterUnits() = default;
  ParameterUnits(const ParameterUnits&) = delete;
  ParameterUnits& operator=(const ParameterUnits&) = delete;
  virtual ~ParameterUnits() = default;

  // All parameters of the unit, valid until Release. Two units may be held at once, one unit twice
  // in a row but not at the same time.
  virtual absl::StatusOr<std::span<const float>> Acquire(int unit) = 0;
  virtual void Release(int unit) = 0;

  // Where to add the gradient of the unit's parameters, valid until ReleaseGradient; what it holds
  // already is the implementation's business. May be asked for several times in one backward.
  virtual absl::StatusOr<std::span<float>> AcquireGradient(int unit) = 0;
  virtual absl::Status ReleaseGradient(int unit) = 0;
};

// All parameters and gradients of a model in memory, in the layout's order.
class ResidentUnits : public ParameterUnits {
 public:
  // The layout must outlive this. Everything is zero at first.
  explicit ResidentUnits(const ParameterLayout& layout);

  absl::StatusOr<std::span<const float>> Acquire(int unit) override;
  void Release(int unit) override;
  absl::StatusOr<std::span<float>> AcquireGradient(int unit) override;
  absl::Status ReleaseGradient(int unit) override;

  std::span<float> parameters() { return std::span(parameters_); }
  std::span<float> gradients() { return std::span(gradients_); }

 private:
  const ParameterLayout& layout_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
};

}  // namespace muster::worker
