// The life of a NodeClaim: bought, its node created and registered, ready, initialized, and in the
// end drained and removed (pkg/controllers/nodeclaim/lifecycle, nodeclaim/disruption,
// nodeclaim/podevents and node/termination of sigs.k8s.io/karpenter v1.8), together with the
// cloud's and the new node's own part in it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "kube/simulators/api_client.h"
#include "kube/simulators/karpenter_state.h"
#include "kube/simulators/simulated_cloud.h"
#include "kube/simulators/timer_queue.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::kube::simulators {

// spec.disruption.consolidateAfter; InfiniteDuration for "Never" and what isn't a duration.
absl::Duration ConsolidateAfter(const NodePool& pool);

class KarpenterLifecycle {
 public:
  // Nothing is owned; all outlive it.
  KarpenterLifecycle(KarpenterState* state, SimulatedCloud* cloud, ApiClient* client,
                     absl::Duration termination);

  void OnPod(const Pod* before, const Pod* pod);
  void OnNode(const Node* before, const Node* node);
  void OnClaim(const std::string& name);
  void OnPool();

  // Does what is due; true if it was anything.
  bool Run(absl::Time now);
  absl::Time NextWake() const { return timers_.Next(); }

 private:
  // What the cloud and the new node know of a claim; not in the API server.
  struct Launch {
    std::string uid;
    LaunchBehavior behavior;
    absl::Time launch_at;
    std::optional<SimulatedCloud::Instance> instance;
    absl::Time register_at = absl::InfiniteFuture();
    absl::Time ready_at = absl::InfiniteFuture();
    absl::Time devices_at = absl::InfiniteFuture();
    bool is_ready = false;
    bool has_devices = false;
    absl::Time gone_at = absl::InfiniteFuture();
  };
  using ClaimEntry = KarpenterState::ClaimEntry;

  void Reconcile(const std::string& name, absl::Time now);
  Launch& LaunchOf(const NodeClaim& claim, absl::Time now);
  bool LostItsPool(const NodeClaim& claim) const;
  bool TimedOut(const NodeClaim& claim, absl::Time now);

  absl::Status Buy(const ClaimEntry& entry, Launch* launch, absl::Time now);
  absl::Status BringUp(const ClaimEntry& entry, Launch* launch, absl::Time now);
  absl::Status CreateNode(const NodeClaim& claim, const Launch& launch);
  absl::Status Register(const ClaimEntry& entry, const KarpenterState::NodeEntry& node,
                        absl::Time now);
  absl::Status RunKubelet(const NodeClaim& claim, const KarpenterState::NodeEntry& node,
                          Launch* launch, absl::Time now);
  absl::Status Initialize(const ClaimEntry& entry, const KarpenterState::NodeEntry* node,
                          absl::Time now);
  absl::Status MarkConsolidatable(const ClaimEntry& entry, absl::Time now);

  absl::Status Finalize(const ClaimEntry& entry, Launch* launch, absl::Time now);
  absl::Status TerminateNode(const ClaimEntry& entry, const KarpenterState::NodeEntry& node,
                             Launch* launch, absl::Time now);
  // True once nothing is left on the node that has to go first.
  bool Drain(const NodeClaim& claim, const Node& node, absl::Time now);

  absl::Status PatchClaimStatus(const ClaimEntry& entry, const nlohmann::json& changed);

  KarpenterState* const state_;
  SimulatedCloud* const cloud_;
  ApiClient* const client_;
  const absl::Duration termination_;
  std::map<std::string, Launch> launches_;  // by claim
  std::set<std::string> dirty_;
  std::set<std::string> had_pod_event_;
  TimerQueue timers_;  // by claim
};

}  // namespace muster::kube::simulators
