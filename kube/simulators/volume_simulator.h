// A stand-in for a CSI driver's provisioner and the PersistentVolume controller, as far as claims
// that wait for their first consumer go (external-provisioner v5, pkg/controller/volume/
// persistentvolume v1.34): once a node is selected, a volume is made, which is reached from that
// node's zone alone unless the claim is ReadWriteMany, and the claim is bound to it. A volume that
// somebody made is available, and once it is kept for a claim that is bound to it.
#pragma once

#include <memory>

#include "absl/time/time.h"

namespace muster::kube::embedded {
class ApiServer;
}

namespace muster::kube::simulators {

// One thread at a time; the server must outlive it.
class VolumeSimulator {
 public:
  // A volume takes `making`.
  VolumeSimulator(embedded::ApiServer* server, absl::Duration making);
  ~VolumeSimulator();
  VolumeSimulator(const VolumeSimulator&) = delete;
  VolumeSimulator& operator=(const VolumeSimulator&) = delete;

  // Does everything that is due. `now` never goes back, and is the server's clock's.
  void Tick(absl::Time now);
  // When Tick has something to do though nothing happens; InfiniteFuture if never.
  absl::Time NextWake() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster::kube::simulators
