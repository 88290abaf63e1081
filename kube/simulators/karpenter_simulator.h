// A stand-in for Karpenter v1.8 with a cloud: sees pods that can't be scheduled, buys NodeClaims
// for them, brings their Nodes up in steps, and removes what stays empty.
//
// Follows sigs.k8s.io/karpenter v1.8 where Muster can tell the difference:
// - which pods count (pkg/utils/pod IsProvisionable; gated ones too), the batching window, a new
//   pass every 10 s while pods stay provisionable, none while a NodeClaim isn't launched;
// - packing (karpenter_packing.h), NodePool limits, weights, DaemonSets, FailedScheduling events;
// - NodeClaim conditions, labels and reasons; the unregistered, not-ready and startup taints; a
//   node counts as initialized once every requested resource is there in any amount above zero;
// - insufficient capacity, the launch (5 min) and registration (15 min) timeouts;
// - emptiness: Initialized, consolidateAfter over, not nominated, no do-not-disrupt on the Node;
//   looked at every 10 s, and again 15 s after it was chosen; then taint, drain, removal.
// It also plays what works beside Karpenter: the kubelet's and the device plugins' part of a new
// Node (kubelet_simulator.h runs its pods), and the removal of NodeClaims without a NodePool.
// Left out: consolidation of nodes in use, drift, expiry, disruption budgets, and what packing
// leaves out. One difference: without any NodePool Karpenter only logs; here there is an event.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kube/simulators/simulated_cloud.h"

namespace muster::kube::embedded {
class ApiServer;
}

namespace muster::kube::simulators {

struct KarpenterConfig {
  std::vector<InstanceType> instance_types;
  // How the n-th launch of a NodePool goes; the last entry goes for the rest.
  std::map<std::string, std::vector<LaunchBehavior>> launches;
  // Of NodePools that aren't named in launches.
  LaunchBehavior default_launch;
  std::vector<CapacityOutage> outages;
  std::vector<CapacityStock> stocks;
  absl::Duration batch_idle = absl::Seconds(1);
  absl::Duration batch_max = absl::Seconds(10);
  // From the end of a node's drain until its instance is gone.
  absl::Duration termination = absl::Seconds(5);
  uint64_t seed = 1;  // names and addresses
};

// Owns its timers and what Karpenter keeps in memory (nominations, launches under way); everything
// else is in the API server. One thread at a time; the server must outlive it.
class KarpenterSimulator {
 public:
  KarpenterSimulator(embedded::ApiServer* server, KarpenterConfig config);
  ~KarpenterSimulator();
  KarpenterSimulator(const KarpenterSimulator&) = delete;
  KarpenterSimulator& operator=(const KarpenterSimulator&) = delete;

  // Takes in every watch event that has arrived and does everything that is due. `now` never goes
  // back, and is the server's clock's.
  void Tick(absl::Time now);
  // When Tick has something to do though nothing happens; InfiniteFuture if never.
  absl::Time NextWake() const;

  void AddOutage(CapacityOutage outage);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster::kube::simulators
