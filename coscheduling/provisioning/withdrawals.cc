// Orders that are taken back: NodeClaims whose nodes are still coming up, and that are late or that
// no gang needs any more, are deleted.
//
// Karpenter keeps a NodeClaim that doesn't register for 15 min, one that isn't initialized without
// end, and launches a gang's nodes one by one, so that the rest comes up, and idles until it is
// seen to be empty, though one of them was refused. Only claims for which a gang of ours asked are
// touched, and only until they are initialized; which gangs those were isn't remembered beyond a
// restart, after which such a claim is left to Karpenter.

#include <algorithm>

#include "coscheduling/engine_state.h"

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
bool Engine::State::MayGo(const cluster::NodeInfo& info) const {
  return info.claim != nullptr && !info.UsableNow() && !info.claim->IsTrue("Initialized") &&
         !info.claim->meta.deletion_time && info.readiness.stage != cluster::NodeStage::kGoing;
}

// A gang that gave up only because its time was over may find the node in its next attempt.
bool Engine::State::NeedsNoNodes(const GangKey& key) const {
  const auto it = gangs.find(key);
  if (it == gangs.end() || it->second.pods.empty()) return true;
  const Gang& gang = it->second;
  if (gang.signalled) return false;
  if (gang.state == v1::BACKING_OFF) {
    return gang.record && gang.record->given_up && IsHopeless(gang.record->given_up->code);
  }
  return gang.state == v1::BOUND || gang.state == v1::FINISHED;
}

bool Engine::State::IsNeeded(const std::string& claim, const cluster::NodeInfo& info) const {
  const std::set<GangKey> concerned = setbacks.Concerned(claim);
  if (concerned.empty()) return true;  // by whoever asked for it
  if (!std::ranges::all_of(concerned, [&](const GangKey& key) { return NeedsNoNodes(key); })) {
    return true;
  }
  return std::ranges::any_of(gangs, [&](const auto& entry) {
    for (const auto* places : {&entry.second.fixed, &entry.second.tentative}) {
      for (const auto& [uid, place] : *places) {
        if (snapshot.FindNode(place) == &info) return true;
      }
    }
    return false;
  });
}

void Engine::State::WithdrawNodes(absl::Time now) {
  if (!options.withdraw_nodes) return;
  for (auto& [name, needless_since] : coming_claims) {
    const cluster::NodeInfo* info = snapshot.FindNode(cluster::VirtualName(name));
    if (info == nullptr || !MayGo(*info)) continue;
    const bool only_daemons = std::ranges::all_of(info->pods, [&](const cluster::PlacedPod& pod) {
      return pod.assumed || OwnedByDaemonSet(*pod.pod);
    });
    if (!only_daemons) continue;
    const absl::Time overdue = setbacks.OverdueFrom(name, LimitsOfStages());
    const bool is_overdue = overdue <= now && !setbacks.Concerned(name).empty();
    if (!is_overdue) {
      if (overdue > now) WakeAt(overdue);
      if (IsNeeded(name, *info)) {
        needless_since = Never();
        continue;
      }
      needless_since = std::min(needless_since, now);
      if (now < needless_since + kGrace) {
        WakeAt(needless_since + kGrace);
        continue;
      }
    }
    const kube::ObjectMeta& meta = info->claim->meta;
    if (!Act("claim/" + name, now, DeleteNodeClaim{name, meta.uid, meta.resource_version}))
      continue;
    if (!is_overdue) setbacks.Withdraw(name);
  }
}

}  // namespace muster::coscheduling
