// A stand-in for the kubelets of all nodes, and for the controller that removes the pods of nodes
// that are gone.
//
// A pod bound to a Ready node is admitted in the order of binding
// (k8s.io/kubernetes v1.34 pkg/kubelet/lifecycle/predicate.go: OutOfcpu, OutOfnvidia.com/gpu, ...),
// runs and is ready after a while, and ends as its annotations say:
//   muster.dev/simulated-run-time: "90s"       a Go duration from the start of the containers
//   muster.dev/simulated-exit: "1: NCCL error" exit code, and a termination message if there is
//   one;
//                                              without a run time the pod ends at once
//   muster.dev/simulated-termination: "25s"    how long it takes to end once it is deleted
// and the node annotation
//   muster.dev/simulated-unhealthy: "nvidia.com/gpu" (comma-separated)
// makes admission fail as the device manager does when no device is healthy. A restartPolicy is
// not acted on: a pod that ends has ended. Changes of the annotations count at any time.
#pragma once

#include <memory>

#include "absl/time/time.h"

namespace muster::kube::embedded {
class ApiServer;
}

namespace muster::kube::simulators {

struct KubeletConfig {
  absl::Duration start = absl::Seconds(1);  // from binding (or Ready) until it runs
  // Of a deleted pod that doesn't say it, at most its grace period.
  absl::Duration termination = absl::Seconds(1);
  // How long a node must be gone before its pods go (pkg/controller/podgc: quarantineTime).
  absl::Duration orphan_quarantine = absl::Seconds(40);
};

// Owns its timers and which pods it has admitted. One thread at a time; the server must outlive it.
class KubeletSimulator {
 public:
  KubeletSimulator(embedded::ApiServer* server, KubeletConfig config);
  ~KubeletSimulator();
  KubeletSimulator(const KubeletSimulator&) = delete;
  KubeletSimulator& operator=(const KubeletSimulator&) = delete;

  // Takes in every watch event that has arrived and does everything that is due. `now` never goes
  // back, and is the server's clock's.
  void Tick(absl::Time now);
  // When Tick has something to do though nothing happens; InfiniteFuture if never.
  absl::Time NextWake() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster::kube::simulators
