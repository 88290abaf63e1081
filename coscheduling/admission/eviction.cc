// Eviction of whole gangs, or of what they have beyond minMember: written into the record first,
// then asked of the API server pod by pod, and quota is given back once nothing of it stands.

#include <algorithm>

#include "coscheduling/engine_state.h"

namespace muster::coscheduling {
namespace {

// How many bound members, first in rank order, the gang needs to go on.
size_t KeptMembers(const Gang& gang) {
  return static_cast<size_t>(std::max<int64_t>(0, gang.facts.min_member - gang.facts.succeeded));
}

}  // namespace

// One that is gated may stay.
bool Engine::State::MustGo(const Gang& gang) const {
  return !gang.bound.empty() || std::ranges::any_of(gang.unbound, [this](const std::string& uid) {
    return !IsGatedByUs(*snapshot.FindPod(uid));
  });
}

void Engine::State::StartEviction(Gang& gang, const std::string& why, bool surplus_only,
                                  absl::Time now) {
  if (!HoldsQuota(gang)) return;
  for (const std::optional<Eviction>* already : {&gang.record->eviction, &gang.quota.eviction}) {
    if (*already && (!(*already)->surplus_only || surplus_only)) return;
  }
  gang.quota.eviction = {why, surplus_only};
  gang.dirty = true;
  WakeAt(now);
}

// As the API server's eviction counts: running pods, and no pod of two budgets
// (k8s.io/kubernetes pkg/registry/core/pod/storage/eviction.go v1.34).
bool Engine::State::MayBeEvicted(const Gang& gang, bool surplus_only) const {
  const size_t kept = surplus_only ? KeptMembers(gang) : 0;
  std::map<std::string, int64_t> evicted;
  for (size_t i = kept; i < gang.bound.size(); ++i) {
    const kube::Pod& pod = *snapshot.FindPod(gang.bound[i]);
    if (pod.phase != kube::PodPhase::kRunning) continue;
    int budgets_of_pod = 0;
    for (const auto& [name, budget] : budgets) {
      if (budget.meta.name_space != pod.meta.name_space || !budget.selector ||
          !budget.selector->Matches(pod.meta.labels)) {
        continue;
      }
      if (++evicted[name] > budget.disruptions_allowed || ++budgets_of_pod > 1) return false;
    }
  }
  return true;
}

void Engine::State::DecideEviction(Gang& gang, absl::Time now) {
  if (!HoldsQuota(gang)) {
    gang.quota.eviction.reset();
    return;
  }
  if (gang.quota.eviction) {
    if (gang.record->eviction == gang.quota.eviction) {
      gang.quota.eviction.reset();
    } else {
      AdmissionRecord record = *gang.record;
      record.eviction = gang.quota.eviction;
      WriteRecord(gang, record, now);
      return;
    }
  }
  if (!gang.record->eviction) return;
  const bool surplus_only = gang.record->eviction->surplus_only;
  const size_t kept = surplus_only ? KeptMembers(gang) : 0;
  if (!surplus_only && MustGo(gang) && RestartWhole(gang, gang.record->eviction->why, now)) return;
  bool any = gang.facts.terminating;
  for (size_t i = kept; i < gang.bound.size(); ++i) {
    any = true;
    Act("evict/" + gang.bound[i], now, EvictPod{RefOf(*snapshot.FindPod(gang.bound[i]))});
  }
  if (!surplus_only) {
    // One that may be bound at any moment isn't waited for: it is bound, or its pod is gone.
    for (const std::string& uid : gang.unbound) {
      const kube::Pod& pod = *snapshot.FindPod(uid);
      if (IsGatedByUs(pod)) continue;
      any = true;
      Act("evict/" + uid, now, EvictPod{RefOf(pod)});
    }
  }
  if (any || !gang.posted.empty()) return;
  if (!surplus_only) {
    ReleaseQuota(gang, now);
    return;
  }
  AdmissionRecord record = *gang.record;
  record.quota->surplus.clear();
  record.eviction.reset();
  WriteRecord(gang, record, now);
}

}  // namespace muster::coscheduling
