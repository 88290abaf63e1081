#include "kube/simulators/karpenter_emptiness.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace muster::kube::simulators {
namespace {

using Json = nlohmann::json;

constexpr absl::Duration kPeriod = absl::Seconds(10);
constexpr absl::Duration kValidation = absl::Seconds(15);

}  // namespace

KarpenterEmptiness::KarpenterEmptiness(KarpenterState* state, ApiClient* client)
    : state_(state), client_(client) {}

std::optional<absl::Time> KarpenterEmptiness::ProtectedUntil(const NodeClaim& claim) const {
  if (!claim.IsTrue("Initialized") || !claim.IsTrue("Consolidatable")) return std::nullopt;
  if (claim.meta.deletion_time || !state_->pools().Find(claim.node_pool)) return std::nullopt;
  const auto* node = state_->NodeOf(claim);
  if (node == nullptr || node->object.meta.deletion_time) return std::nullopt;
  if (HasDoNotDisrupt(node->object.meta)) return std::nullopt;
  for (const Pod* pod : state_->PodsOn(node->object.meta.name)) {
    if (IsReschedulable(*pod)) return std::nullopt;
    if (IsActive(*pod) && HasDoNotDisrupt(pod->meta)) return std::nullopt;
  }
  return state_->NominatedUntil(claim.meta.name);
}

bool KarpenterEmptiness::IsCandidate(const NodeClaim& claim, absl::Time now) const {
  std::optional<absl::Time> until = ProtectedUntil(claim);
  return until && *until <= now;
}

absl::Time KarpenterEmptiness::NextWake() const {
  if (!chosen_.empty()) return validate_at_;
  absl::Time earliest = absl::InfiniteFuture();
  for (const auto& [name, claim] : state_->claims().entries()) {
    std::optional<absl::Time> until = ProtectedUntil(claim->object);
    if (until) earliest = std::min(earliest, *until);
  }
  if (earliest == absl::InfiniteFuture()) return earliest;
  absl::Duration wait = std::max(earliest - looked_at_, kPeriod);
  return looked_at_ + absl::Ceil(wait, kPeriod);
}

void KarpenterEmptiness::Look(absl::Time now) {
  if (looked_at_ == absl::InfinitePast()) looked_at_ = now;
  if (!chosen_.empty() || now < looked_at_ + kPeriod) return;
  looked_at_ += absl::Floor(now - looked_at_, kPeriod);
  if (!state_->Synced()) return;
  for (const auto& [name, claim] : state_->claims().entries()) {
    if (IsCandidate(claim->object, looked_at_)) chosen_.push_back(name);
  }
  if (!chosen_.empty()) validate_at_ = looked_at_ + kValidation;
}

bool KarpenterEmptiness::Validate(absl::Time now) {
  if (chosen_.empty() || now < validate_at_) return false;
  for (const std::string& name : std::exchange(chosen_, {})) {
    const auto* claim = state_->claims().Find(name);
    if (claim != nullptr && IsCandidate(claim->object, now)) Remove(*claim);
  }
  validate_at_ = absl::InfiniteFuture();
  looked_at_ = now;
  return true;
}

void KarpenterEmptiness::Remove(const KarpenterState::ClaimEntry& claim) {
  const NodeClaim& object = claim.object;
  const auto* node = state_->NodeOf(object);
  const ObjectMeta& node_meta = node->object.meta;
  Json taints = node->stored->value().at("spec").value("taints", Json::array());
  taints.push_back({{"key", kDisruptedTaint}, {"effect", "NoSchedule"}});
  absl::Status tainted = client_->Patch(
      NodePath(node_meta.name), {{"metadata", {{"resourceVersion", node_meta.resource_version}}},
                                 {"spec", {{"taints", std::move(taints)}}}});
  // The node has changed since it was looked at: it isn't taken on an old view.
  if (!tainted.ok()) return;
  absl::Status deleted = client_->Delete(NodeClaimPath(object.meta.name), object.meta.uid);
  if (!deleted.ok()) return;
  client_->RecordEvent({"v1", "Node", "", node_meta.name, node_meta.uid}, /*warning=*/false,
                       "DisruptionTerminating", "Disrupting Node: Empty");
  client_->RecordEvent({"karpenter.sh/v1", "NodeClaim", "", object.meta.name, object.meta.uid},
                       /*warning=*/false, "DisruptionTerminating", "Disrupting NodeClaim: Empty");
}

}  // namespace muster::kube::simulators
