// What the nodes of a cluster cost in GPU-seconds, from what is published of them now and then.
#pragma once

#include "absl/time/time.h"
#include "muster/v1/admission.pb.h"

namespace muster::extender {

// Between two moments at which it is told, things were as at the first. Not thread-safe.
class GpuTime {
 public:
  // How things are; null: nobody here knows, so that nothing counts until he does.
  void Tell(absl::Time now, const v1::ListNodesResponse* nodes);

  // Of the nodes that Karpenter has launched, used or not, until they are gone.
  double bought() const { return bought_; }
  // Free on nodes that gangs hold while they wait for others, whoever made these.
  double held_idle() const { return held_idle_; }

 private:
  absl::Time since_ = absl::InfiniteFuture();  // nobody knew
  int64_t launched_gpus_ = 0;
  int64_t held_gpus_ = 0;
  double bought_ = 0;
  double held_idle_ = 0;
};

}  // namespace muster::extender
