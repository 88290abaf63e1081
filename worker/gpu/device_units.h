// Where a model on the GPU gets the weights of a unit (worker/model/parameter_layout.h) and leaves
// their gradients: ParameterUnits for a stream of work. What is asked for is there for work that
// is put on the model's stream afterwards; an implementation that communicates orders its own
// streams before and after by events, and blocks nobody.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/gpu/kernels/launch.h"
#include "worker/model/parameter_layout.h"

namespace muster::worker {

// Used by one thread. Every rank asks for the same units in the same order.
class DeviceUnits {
 public:
  DeviceUnits() = default;
  DeviceUnits(const DeviceUnits&) = delete;
  DeviceUnits& operator=(const DeviceUnits&) = delete;
  virtual ~DeviceUnits() = default;

  virtual absl::StatusOr<const Bf16*> Acquire(int unit) = 0;
  virtual void Release(int unit) = 0;

  struct Gradient {
    float* data = nullptr;
    Into into = Into::kAssign;  // in the first micro-batch, which has to write all of it
  };
  // The units of a tied embedding and of a bias that another block's backward sums are asked for
  // several times in one backward.
  virtual absl::StatusOr<Gradient> AcquireGradient(int unit) = 0;
  virtual absl::Status ReleaseGradient(int unit) = 0;
};

// All weights and gradients in memory, in the layout's order.
class ResidentDeviceUnits : public DeviceUnits {
 public:
  // layout.size() of each; the layout must outlive this.
  ResidentDeviceUnits(const ParameterLayout& layout, const Bf16* weights, float* gradients)
      : layout_(layout), weights_(weights), gradients_(gradients) {}

  void SetInto(Into into) { into_ = into; }

  absl::StatusOr<const Bf16*> Acquire(int unit) override {
    return weights_ + layout_.units()[unit].offset;
  }
  void Release(int /*unit*/) override {}
  absl::StatusOr<Gradient> AcquireGradient(int unit) override {
    return Gradient{.data = gradients_ + layout_.units()[unit].offset, .into = into_};
  }
  absl::Status ReleaseGradient(int /*unit*/) override { return absl::OkStatus(); }

 private:
  const ParameterLayout& layout_;
  const Bf16* weights_;
  float* gradients_;
  Into into_ = Into::kAssign;
};

}  // namespace muster::worker
