#include "kube/simulators/karpenter_state.h"

#include <algorithm>
#include <utility>

#include "kube/objects/well_known.h"

namespace muster::kube::simulators {
namespace {

bool IsOwnedBy(const Pod& pod, std::string_view api_version, std::string_view kind) {
  return std::any_of(pod.meta.owners.begin(), pod.meta.owners.end(),
                     [&](const OwnerReference& owner) {
                       return owner.api_version == api_version && owner.kind == kind;
                     });
}

ResourceList FillZeros(ResourceList amounts, const ResourceList& from) {
  for (const auto& [name, amount] : from.entries()) {
    if (amounts.Get(name) == 0) amounts.Set(name, amount);
  }
  return amounts;
}

template <typename T>
const T* ObjectOf(const typename ObjectCache<T>::Entry* entry) {
  return entry == nullptr ? nullptr : &entry->object;
}

}  // namespace

bool IsProvisionable(const Pod& pod) {
  return pod.scheduled_reason == "Unschedulable" && pod.node_name.empty() &&
         pod.nominated_node_name.empty() && !IsOwnedByDaemonSet(pod) &&
         !IsOwnedBy(pod, "v1", "Node");
}

bool IsOwnedByDaemonSet(const Pod& pod) { return IsOwnedBy(pod, "apps/v1", "DaemonSet"); }

bool IsActive(const Pod& pod) { return !pod.IsTerminal() && !pod.IsDeleting(); }

bool IsReschedulable(const Pod& pod) {
  bool active = IsActive(pod) || (pod.IsDeleting() && IsOwnedBy(pod, "apps/v1", "StatefulSet"));
  return active && !IsOwnedByDaemonSet(pod) && !IsOwnedBy(pod, "v1", "Node");
}

bool HasDoNotDisrupt(const ObjectMeta& meta) {
  const std::string* value = meta.Annotation(kDoNotDisruptAnnotation);
  return value != nullptr && *value == "true";
}

bool HasTaint(const Node& node, std::string_view key) {
  return std::any_of(node.taints.begin(), node.taints.end(),
                     [&](const Taint& taint) { return taint.key == key; });
}

bool IsEphemeralTaint(const Taint& taint) {
  if (taint.key == kNotReadyTaint) return taint.effect != TaintEffect::kPreferNoSchedule;
  if (taint.key == kUnregisteredTaint) return taint.effect == TaintEffect::kNoExecute;
  return (taint.key == "node.kubernetes.io/unreachable" ||
          taint.key == "node.cloudprovider.kubernetes.io/uninitialized") &&
         taint.effect == TaintEffect::kNoSchedule;
}

bool LabelIsTrue(const ObjectMeta& meta, std::string_view label) {
  const std::string* value = meta.Label(label);
  return value != nullptr && *value == "true";
}

KarpenterState::KarpenterState(embedded::ApiServer* server, Listener listener)
    : listener_(std::move(listener)),
      pods_(server, "/api/v1/pods"),
      nodes_(server, "/api/v1/nodes"),
      claims_(server, "/apis/karpenter.sh/v1/nodeclaims"),
      pools_(server, "/apis/karpenter.sh/v1/nodepools"),
      daemon_sets_(server, "/apis/apps/v1/daemonsets") {}

bool KarpenterState::Sync() {
  bool changed = pools_.Sync([&](auto&, auto*, auto*) { listener_.on_pool(); });
  changed |= daemon_sets_.Sync([](auto&, auto*, auto*) {});
  changed |= claims_.Sync([&](const std::string& name, const auto* before, const auto* now) {
    OnClaim(name, ObjectOf<NodeClaim>(before), ObjectOf<NodeClaim>(now));
  });
  changed |= nodes_.Sync([&](const std::string& name, const auto* before, const auto* now) {
    OnNode(name, ObjectOf<Node>(before), ObjectOf<Node>(now));
  });
  changed |= pods_.Sync([&](const std::string& key, const auto* before, const auto* now) {
    OnPod(key, ObjectOf<Pod>(before), ObjectOf<Pod>(now));
  });
  return changed;
}

void KarpenterState::OnPod(const std::string& key, const Pod* before, const Pod* now) {
  if (before != nullptr && before->IsBound()) {
    auto it = pods_on_.find(before->node_name);
    if (it != pods_on_.end() && it->second.erase(key) > 0 && it->second.empty()) {
      pods_on_.erase(it);
    }
  }
  if (now != nullptr && now->IsBound()) pods_on_[now->node_name].insert(key);
  if (now != nullptr && IsProvisionable(*now)) {
    provisionable_.insert(key);
  } else {
    provisionable_.erase(key);
  }
  listener_.on_pod(key, before, now);
}

void KarpenterState::OnNode(const std::string& name, const Node* before, const Node* now) {
  if (before != nullptr) node_by_provider_.erase(before->provider_id);
  if (now != nullptr && !now->provider_id.empty()) node_by_provider_[now->provider_id] = name;
  listener_.on_node(name, before, now);
}

void KarpenterState::OnClaim(const std::string& name, const NodeClaim* before,
                             const NodeClaim* now) {
  if (before != nullptr) claim_by_provider_.erase(before->provider_id);
  if (now != nullptr && !now->provider_id.empty()) claim_by_provider_[now->provider_id] = name;
  if (now == nullptr) nominated_until_.erase(name);
  listener_.on_claim(name);
}

const KarpenterState::NodeEntry* KarpenterState::NodeOf(const NodeClaim& claim) const {
  auto it = node_by_provider_.find(claim.provider_id);
  return it == node_by_provider_.end() ? nullptr : nodes_.Find(it->second);
}

const KarpenterState::ClaimEntry* KarpenterState::ClaimOf(const Node& node) const {
  auto it = claim_by_provider_.find(node.provider_id);
  return it == claim_by_provider_.end() ? nullptr : claims_.Find(it->second);
}

std::vector<const Pod*> KarpenterState::PodsOn(std::string_view node) const {
  std::vector<const Pod*> result;
  auto it = pods_on_.find(node);
  if (it == pods_on_.end()) return result;
  for (const std::string& key : it->second) result.push_back(&pods_.Find(key)->object);
  return result;
}

bool KarpenterState::Synced() const {
  const auto& claims = claims_.entries();
  return std::all_of(claims.begin(), claims.end(),
                     [](const auto& entry) { return !entry.second->object.provider_id.empty(); });
}

ResourceList KarpenterState::Capacity(const NodeClaim& claim, const Node* node) {
  if (node == nullptr) return claim.capacity;
  if (LabelIsTrue(node->meta, kInitializedLabel)) return node->capacity;
  return FillZeros(node->capacity, claim.capacity);
}

ResourceList KarpenterState::Allocatable(const NodeClaim& claim, const Node* node) {
  if (node == nullptr) return claim.allocatable;
  if (LabelIsTrue(node->meta, kInitializedLabel)) return node->allocatable;
  return FillZeros(node->allocatable, claim.allocatable);
}

void KarpenterState::Nominate(const std::string& claim, absl::Time until) {
  nominated_until_[claim] = until;
}

absl::Time KarpenterState::NominatedUntil(const std::string& claim) const {
  auto it = nominated_until_.find(claim);
  return it == nominated_until_.end() ? absl::InfinitePast() : it->second;
}

}  // namespace muster::kube::simulators
