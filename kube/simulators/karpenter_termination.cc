// The part of KarpenterLifecycle after deletion (pkg/controllers/nodeclaim/lifecycle/controller.go
// finalize, pkg/controllers/node/termination).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/simulators/claim_conditions.h"
#include "kube/simulators/karpenter_lifecycle.h"

namespace muster::kube::simulators {
namespace {

using Json = nlohmann::json;

// A pod that should have gone this long ago no longer holds its node.
constexpr absl::Duration kStuckAfter = absl::Minutes(1);

bool ToleratesDisruption(const Pod& pod) {
  const Taint taint{std::string(kDisruptedTaint), "", TaintEffect::kNoSchedule};
  const auto& tolerations = pod.spec->tolerations;
  return std::any_of(tolerations.begin(), tolerations.end(),
                     [&](const Toleration& toleration) { return toleration.Tolerates(taint); });
}

// The finalizers without Karpenter's.
Json WithoutFinalizer(const ObjectMeta& meta) {
  Json finalizers = Json::array();
  for (const std::string& finalizer : meta.finalizers) {
    if (finalizer != kTerminationFinalizer) finalizers.push_back(finalizer);
  }
  return {{"metadata",
           {{"resourceVersion", meta.resource_version}, {"finalizers", std::move(finalizers)}}}};
}

bool HasFinalizer(const ObjectMeta& meta) {
  return std::find(meta.finalizers.begin(), meta.finalizers.end(), kTerminationFinalizer) !=
         meta.finalizers.end();
}

}  // namespace

absl::Status KarpenterLifecycle::Finalize(const ClaimEntry& entry, Launch* launch, absl::Time now) {
  const NodeClaim& claim = entry.object;
  if (!HasFinalizer(claim.meta)) return absl::OkStatus();
  const auto* node = state_->NodeOf(claim);
  if (node == nullptr) {
    return client_->Patch(NodeClaimPath(claim.meta.name), WithoutFinalizer(claim.meta));
  }
  if (!node->object.meta.deletion_time) {
    return client_->Delete(NodePath(node->object.meta.name), node->object.meta.uid);
  }
  return TerminateNode(entry, *node, launch, now);
}

absl::Status KarpenterLifecycle::TerminateNode(const ClaimEntry& entry,
                                               const KarpenterState::NodeEntry& node,
                                               Launch* launch, absl::Time now) {
  const std::string path = NodePath(node.object.meta.name);
  if (!HasFinalizer(node.object.meta)) return absl::OkStatus();
  if (!HasTaint(node.object, kDisruptedTaint)) {
    const Json& stored = node.stored->value();
    Json taints = stored.at("spec").value("taints", Json::array());
    taints.push_back({{"key", kDisruptedTaint}, {"effect", "NoSchedule"}});
    return client_->Patch(
        path,
        {{"metadata",
          {{"resourceVersion", node.object.meta.resource_version},
           {"labels", {{"node.kubernetes.io/exclude-from-external-load-balancers", "karpenter"}}}}},
         {"spec", {{"taints", std::move(taints)}}}});
  }
  if (!Drain(entry.object, node.object, now)) return absl::OkStatus();
  if (launch->gone_at == absl::InfiniteFuture()) {
    launch->gone_at = now + termination_;
    Json changed = entry.stored->value();
    ClaimConditions(&changed, now).SetTrue("InstanceTerminating");
    if (absl::Status patched = PatchClaimStatus(entry, changed); !patched.ok()) return patched;
  }
  if (now < launch->gone_at) {
    timers_.SetIfEarlier(entry.object.meta.name, launch->gone_at);
    return absl::OkStatus();
  }
  return client_->Patch(path, WithoutFinalizer(node.object.meta));
}

bool KarpenterLifecycle::Drain(const NodeClaim& claim, const Node& node, absl::Time now) {
  std::vector<const Pod*> daemons;
  std::vector<const Pod*> others;
  for (const Pod* pod : state_->PodsOn(node.meta.name)) {
    if (pod->IsTerminal() || ToleratesDisruption(*pod)) continue;
    if (pod->IsDeleting()) {
      absl::Time stuck_at = *pod->meta.deletion_time + kStuckAfter;
      if (now > stuck_at) continue;
      timers_.SetIfEarlier(claim.meta.name, stuck_at + absl::Milliseconds(1));
    }
    (IsOwnedByDaemonSet(*pod) ? daemons : others).push_back(pod);
  }
  const std::vector<const Pod*>& first = others.empty() ? daemons : others;
  for (const Pod* pod : first) {
    if (pod->IsDeleting() || HasDoNotDisrupt(pod->meta)) continue;
    absl::Status evicted = client_->Evict(pod->meta.name_space, pod->meta.name, pod->meta.uid);
    if (!evicted.ok()) timers_.SetIfEarlier(claim.meta.name, now + absl::Seconds(1));
  }
  return first.empty();
}

}  // namespace muster::kube::simulators
