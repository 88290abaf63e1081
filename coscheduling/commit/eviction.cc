#include "coscheduling/commit/eviction.h"

#include <algorithm>

namespace muster::coscheduling {

// One that is gated may stay.
bool Evictions::MustGo(const Gang& gang) const {
  return !gang.bound.empty() || std::ranges::any_of(gang.unbound, [this](const std::string& uid) {
    return !IsGatedByUs(*snapshot_.FindPod(uid));
  });
}

void Evictions::Decide(const Gang& gang, bool posted) {
  if (quota_->NoteEviction(gang) || !quota_->Holds(gang)) return;
  const std::optional<Eviction>& eviction = records_.Of(gang)->eviction;
  if (!eviction) return;
  const bool surplus_only = eviction->surplus_only;
  const size_t kept = surplus_only ? QuotaAdmission::KeptMembers(gang) : 0;
  if (!surplus_only && MustGo(gang) && restarts_->RestartWhole(gang, eviction->why)) return;
  bool any = gang.facts.terminating || posted;
  const auto evict = [&](const std::string& uid) {
    any = true;
    outbox_->Act(gang.id, "evict/" + uid, EvictPod{RefOf(*snapshot_.FindPod(uid))});
  };
  for (size_t i = kept; i < gang.bound.size(); ++i) evict(gang.bound[i]);
  if (!surplus_only) {
    // One that may be bound at any moment isn't waited for: it is bound, or its pod is gone.
    for (const std::string& uid : gang.unbound) {
      if (!IsGatedByUs(*snapshot_.FindPod(uid))) evict(uid);
    }
  }
  if (any) return;
  if (surplus_only) {
    quota_->ReleaseSurplus(gang);
  } else {
    quota_->Release(gang);
  }
}

}  // namespace muster::coscheduling
