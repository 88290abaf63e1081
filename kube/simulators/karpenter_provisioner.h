// Karpenter's provisioner: gathers pods that can't be scheduled into batches and buys NodeClaims
// for them (pkg/controllers/provisioning of sigs.k8s.io/karpenter v1.8: controller.go, batcher.go,
// provisioner.go).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "kube/simulators/api_client.h"
#include "kube/simulators/karpenter_packing.h"
#include "kube/simulators/karpenter_state.h"
#include "kube/simulators/simulated_cloud.h"
#include "kube/simulators/timer_queue.h"

namespace muster::kube::simulators {

// Opens with the first thing that triggers it; closes when nothing new has come for `idle`, or
// after `max`.
class BatchingWindow {
 public:
  BatchingWindow(absl::Duration idle, absl::Duration max) : idle_(idle), max_(max) {}

  void Trigger(const std::string& uid, absl::Time now);
  // InfiniteFuture while it isn't open.
  absl::Time closes_at() const { return closes_at_; }
  void Close();

 private:
  const absl::Duration idle_;
  const absl::Duration max_;
  std::set<std::string> uids_;
  absl::Time opened_at_ = absl::InfinitePast();
  absl::Time closes_at_ = absl::InfiniteFuture();
};

class KarpenterProvisioner {
 public:
  // Neither is owned; both outlive it.
  KarpenterProvisioner(KarpenterState* state, SimulatedCloud* cloud, ApiClient* client,
                       absl::Duration batch_idle, absl::Duration batch_max);

  void OnPod(const std::string& key, const Pod* pod, absl::Time now);
  void OnNode(const std::string& name, const Node* node, absl::Time now);

  // Does what is due; true if it was anything.
  bool Run(absl::Time now);
  absl::Time NextWake() const;

 private:
  bool Retries() const;
  void Trigger(const std::string& timer, const std::string& uid, absl::Time now);
  void TriggerAgain(const std::string& timer, absl::Time now);
  void Provision(absl::Time now);
  std::vector<PackingPod> PodsToPlace(absl::Time now);
  std::vector<PackingNode> Nodes() const;
  PackingNode NodeFor(const NodeClaim& claim, const Node* node) const;
  std::vector<PackingPool> Pools() const;
  ResourceList DaemonRequests(const LabelRequirements& labels, const std::vector<Taint>& taints,
                              bool allow_unknown_well_known) const;
  ResourceList Free(ResourceList allocatable, std::string_view node,
                    const LabelRequirements& labels, const std::vector<Taint>& taints) const;
  void CreateClaim(const PlannedClaim& planned, absl::Time now);
  void ReportNomination(const PackingPod& pod, const std::string& target, absl::Time now);
  void ReportFailure(const std::string& pod_key, const std::string& uid, const std::string& reason,
                     absl::Time now);
  bool ShouldReport(const std::string& key, absl::Duration quiet, absl::Time now);

  KarpenterState* const state_;
  SimulatedCloud* const cloud_;
  ApiClient* const client_;
  const absl::Duration nomination_;
  BatchingWindow window_;
  TimerQueue retries_;  // by "pod/KEY" and "node/NAME"
  // Until when an event isn't repeated, and the token bucket of Nominated events.
  std::map<std::string, absl::Time> reported_until_;
  double nomination_tokens_ = 0;
  absl::Time tokens_counted_at_ = absl::InfinitePast();
};

}  // namespace muster::kube::simulators
