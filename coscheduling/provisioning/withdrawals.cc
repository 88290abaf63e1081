// Orders that are taken back: NodeClaims whose nodes are still coming up, and that are late or that
// no gang needs any more, are deleted.
//
// Karpenter keeps a NodeClaim that doesn't register for 15 min, one that isn't initialized without
// end, and launches a gang's nodes one by one, so that the rest comes up, and idles until it is
// seen to be empty, though one of them was refused. Only claims for which a gang of ours asked are
// touched, and only until they are initialized; which gangs those were isn't remembered beyond a
// restart, after which such a claim is left to Karpenter.

#include <algorithm>

#include "coscheduling/provisioning/provisioning.h"

namespace muster::coscheduling {
namespace {

// So long a claim that nobody needs is kept: quota that was given back with it may let another gang
// in that takes it.
constexpr absl::Duration kGrace = absl::Seconds(2);

bool OwnedByDaemonSet(const kube::Pod& pod) {
  return std::ranges::any_of(
      pod.meta.owners, [](const kube::OwnerReference& owner) { return owner.kind == "DaemonSet"; });
}

// What no node of this kind would change: the others of the gang weren't to be had.
bool IsHopeless(v1::ReasonCode code) {
  return code == v1::INSUFFICIENT_CAPACITY || code == v1::LAUNCH_FAILED ||
         code == v1::POOL_LIMIT_REACHED;
}

}  // namespace

// It is Karpenter's, isn't initialized, nor going already.
bool Provisioning::MayGo(const cluster::NodeInfo& info) {
  return info.claim != nullptr && !info.UsableNow() && !info.claim->IsTrue("Initialized") &&
         !info.claim->meta.deletion_time && info.readiness.stage != cluster::NodeStage::kGoing;
}

// A gang that gave up only because its time was over may find the node in its next attempt.
bool Provisioning::NeedsNoNodes(const GangKey& key) const {
  const Gang* found = gangs_.Find(key);
  if (found == nullptr || found->pods.empty()) return true;
  const Gang& gang = *found;
  if (IsSignalled(gang)) return false;
  if (gang.state == v1::BACKING_OFF) {
    const AdmissionRecord* record = records_.Of(gang);
    return record != nullptr && record->given_up && IsHopeless(record->given_up->code);
  }
  return gang.state == v1::BOUND || gang.state == v1::FINISHED;
}

bool Provisioning::IsNeeded(const std::string& claim, const cluster::NodeInfo& info) const {
  const std::set<GangKey> concerned = setbacks_.Concerned(claim);
  if (concerned.empty()) return true;  // by whoever asked for it
  if (!std::ranges::all_of(concerned, [&](const GangKey& key) { return NeedsNoNodes(key); })) {
    return true;
  }
  return !placement_->GangsOn(info.name()).empty() ||
         !placement_->GangsOn(cluster::VirtualName(claim)).empty();
}

void Provisioning::WithdrawNodes() {
  if (!options_.withdraw_nodes) return;
  const absl::Time now = agenda_->now();
  for (auto& [name, needless_since] : coming_claims_) {
    const cluster::NodeInfo* info = snapshot_.FindNode(cluster::VirtualName(name));
    if (info == nullptr || !MayGo(*info)) continue;
    const bool only_daemons = std::ranges::all_of(info->pods, [&](const cluster::PlacedPod& pod) {
      return pod.assumed || OwnedByDaemonSet(*pod.pod);
    });
    if (!only_daemons) continue;
    const absl::Time overdue = setbacks_.OverdueFrom(name, LimitsOfStages());
    const bool is_overdue = overdue <= now && !setbacks_.Concerned(name).empty();
    if (!is_overdue) {
      if (overdue > now) agenda_->WakeAt(overdue);
      if (IsNeeded(name, *info)) {
        needless_since = Never();
        continue;
      }
      needless_since = std::min(needless_since, now);
      if (now < needless_since + kGrace) {
        agenda_->WakeAt(needless_since + kGrace);
        continue;
      }
    }
    if (!outbox_->Act("claim/" + name, DeleteNodeClaim{RefOf(info->claim->meta)})) continue;
    if (!is_overdue) setbacks_.Withdraw(name);
  }
}

}  // namespace muster::coscheduling
