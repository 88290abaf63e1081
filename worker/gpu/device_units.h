// Where a model on the GPU gets the weights of a unit (worker/model/parameter_layout.h) and leaves
// their gradients: ParameterUnits for a stream of work. What is asked for is there for work that
// is put on the model's stream afterwards; an implementation that communicates orders its own
// streams before and after by events, and blocks nobody.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/gpu/kernels/launch.h"
#include "worker/gpu/kernels/norm.h"
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
  // The weights of all norms, which are always there: blocks' norm 1 and 2 in turn, then the last
  // one.
  virtual absl::StatusOr<const NormWeights*> AcquireNorms() = 0;
  virtual void Release(int unit) = 0;
  // Another one after each change of the weights.
  virtual int64_t weights_version() const = 0;

  struct Gradient {
    float* data = nullptr;
    Into into = Into::kAssign;  // all of it has to be written then
  };
  // The units of a tied embedding and of a bias that another block's backward sums are asked for
  // several times in one backward, and released once, when their gradient is complete.
  virtual absl::StatusOr<Gradient> AcquireGradient(int unit) = 0;
  virtual absl::Status ReleaseGradient(int unit) = 0;

  // The work that is put on the model's stream next is of many short blocks, such as attention or a
  // pass over memory: what ranks do together runs beside it at little cost. Beside a product, whose
  // blocks keep all multiprocessors to its end, it would make the product longer by what it takes
  // itself.
  virtual absl::Status BeginShared() = 0;
};

}  // namespace muster::worker
