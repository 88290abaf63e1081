#include "kube/simulators/karpenter_emptiness.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace muster::kube::simulators {
namespace {

using Json = nlohmann::json;

constexpr absl::Duration kPoll = absl::Seconds(10);
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

absl::Time KarpenterEmptiness::NextPollFrom(absl::Time time) const {
  if (time <= polled_at_ + kPoll) return polled_at_ + kPoll;
  absl::Duration rest;
  int64_t polls = absl::IDivDuration(time - polled_at_, kPoll, &rest);
  return polled_at_ + kPoll * (rest == absl::ZeroDuration() ? polls : polls + 1);
}

absl::Time KarpenterEmptiness::NextWake() const {
  if (!chosen_.empty()) return validate_at_;
  absl::Time earliest = absl::InfiniteFuture();
  for (const auto& [name, claim] : state_->claims().entries()) {
    std::optional<absl::Time> until = ProtectedUntil(claim->object);
    if (until) earliest = std::min(earliest, *until);
  }
  return earliest == absl::InfiniteFuture() ? earliest : NextPollFrom(earliest);
}

bool KarpenterEmptiness::Run(absl::Time now) {
  if (!chosen_.empty()) {
    if (now < validate_at_) return false;
    Validate(now);
    return true;
  }
  if (now < polled_at_ + kPoll) return false;
  // Polls that would have found nothing weren't made; the beat goes on.
  polled_at_ = polled_at_ == absl::InfinitePast() ? now : now - (now - polled_at_) % kPoll;
  if (!state_->Synced()) return false;
  Select(now);
  return !chosen_.empty();
}

void KarpenterEmptiness::Select(absl::Time now) {
  for (const auto& [name, claim] : state_->claims().entries()) {
    if (IsCandidate(claim->object, now)) chosen_.push_back(name);
  }
  if (!chosen_.empty()) validate_at_ = now + kValidation;
}

void KarpenterEmptiness::Validate(absl::Time now) {
  for (const std::string& name : std::exchange(chosen_, {})) {
    const auto* claim = state_->claims().Find(name);
    if (claim != nullptr && IsCandidate(claim->object, now)) Remove(*claim);
  }
  validate_at_ = absl::InfiniteFuture();
  polled_at_ = now;
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
