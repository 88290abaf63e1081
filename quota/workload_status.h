// The status of a Workload: what it says was reserved, in which state the quota of its gang is, and
// what Kueue's conditions become with each step.
//
//   waiting -> reserved -> admitted -> evicting -> waiting
//                             |            |
//                             +------------+-----> released
//
// Reasons and transitions are those of sigs.k8s.io/kueue v0.19.2 (apis/kueue/v1beta2
// workload_types.go, pkg/workload/workload.go, pkg/controller/jobframework/reconciler.go).
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "kube/objects/any_job.h"
#include "kube/objects/pod.h"
#include "kube/objects/quota.h"
#include "quota/quota_scheduler.h"
#include "quota/workload.h"

namespace muster::quota {

enum class WorkloadState {
  kWaiting,   // for quota
  kReserved,  // checks are awaited that others make
  kAdmitted,  // its members may start
  kEvicting,  // it is admitted until its last member is gone
  kReleased,  // it has ended
};
WorkloadState StateOf(const kube::Workload& workload);
// Quota is counted for it.
inline bool HasQuota(const kube::Workload& workload) {
  const WorkloadState state = StateOf(workload);
  return state != WorkloadState::kWaiting && state != WorkloadState::kReleased;
}

inline constexpr size_t kMaxPodSets = 18;  // of one Workload
bool HasFinalizer(const kube::Workload& workload);
// It asks for this already.
bool AsksFor(const kube::Workload& workload, const Workload& asked);
// Its pod sets are these, and ask for as much.
bool HasPodSets(const kube::Workload& workload, const std::vector<PodSet>& asked);
// It says already that it waits for this.
bool SaysWhy(const kube::Workload& workload, const Wait& wait);

// Why members are being evicted: all of them, or those beyond minMember.
struct Eviction {
  std::string why;        // "gang team/urgent reclaims quota of its own queue"
  std::string reason;     // of condition Evicted
  std::string preempted;  // of condition Preempted; empty: it isn't preempted
  bool surplus_only = false;
};

// The same by the names of its pod sets, and in their order; without surplus.
Admission InOrderOf(const kube::Workload& workload, const Admission& admission);

// What was reserved for it; nothing as surplus.
Admission ReservedIn(const kube::Workload& workload);
// The same without those that are reclaimable, by pod set.
Admission CountedIn(const kube::Workload& workload,
                    const std::map<std::string, int64_t>& reclaimable);
// What counts: without those that it says are reclaimable.
inline Admission CountedIn(const kube::Workload& workload) {
  return CountedIn(workload, workload.reclaimable);
}
// Which of its pods are to be reclaimable: those that are over as their job says, or, without a
// job, that have succeeded and that nobody makes anew. `pods`: all of the gang that it counts;
// whoever of them may still use something isn't given back. What was given back stays so.
std::map<std::string, int64_t> ReclaimableOf(const kube::Workload& workload,
                                             const kube::AnyJob* job,
                                             const std::vector<const kube::Pod*>& pods);

// When it has run for as long as it may (kueue.x-k8s.io/max-exec-time-seconds), together with what
// it ran before; never if it doesn't run, or may for ever (Kueue v0.19.2
// pkg/controller/core/workload_controller.go:906).
absl::Time ExecutionEnds(const kube::Workload& workload);
// It is to be deactivated by whoever admits, as its conditions say.
bool IsToBeDeactivated(const kube::Workload& workload);
// Why one that isn't active any more is evicted.
Eviction Deactivation(const kube::Workload& workload);
// How long it has run by then, in seconds, once its conditions are these; nullopt: not yet, or it
// begins anew.
std::optional<int64_t> PastSeconds(const kube::Workload& workload,
                                   const std::map<std::string, kube::Condition>& conditions);

// Who may reserve it, as its status says: no user can write that. "" if nobody has taken it over.
std::string LeaderOf(const kube::Workload& workload);
// On a Workload: which Muster made it.
inline constexpr std::string_view kLeaderAnnotation = "muster.dev/leader";
// "KIND/NAME" of the owner that it was made for; label kJobUidLabel has its UID. Deleting an owner
// and orphaning what it owns takes the reference to it away, and frees no quota.
inline constexpr std::string_view kOwnerAnnotation = "muster.dev/owner";
inline constexpr char kJobUidLabel[] = "kueue.x-k8s.io/job-uid";
// Those owners of one that Muster made, controlling it; none if it doesn't say.
std::vector<kube::OwnerReference> OwnersBefore(const kube::Workload& workload);
// The same, or else who made it, which its user can change: that costs one write and concerns
// nobody else. "": no Muster did.
std::string KeeperOf(const kube::Workload& workload);

// Its conditions once it was taken over, while it waits for quota, once that is reserved and it is
// admitted, it has run for too long, its eviction has begun, its quota was taken back (`finished`:
// the reason of condition Finished; empty: it goes on).
using Conditions = std::map<std::string, kube::Condition>;
Conditions Taken(const kube::Workload& workload, const std::string& leader, absl::Time now);
Conditions Waiting(const kube::Workload& workload, const Wait& wait, absl::Time now);
Conditions Admitted(const kube::Workload& workload, const Admission& admission, absl::Time now);
Conditions OverTime(const kube::Workload& workload, absl::Time now);
Conditions Evicted(const kube::Workload& workload, const Eviction& eviction, absl::Time now);
Conditions Released(const kube::Workload& workload, std::string_view finished, absl::Time now);
// Reason of condition Finished of a member's own Workload, once its gang's has a place for it.
inline constexpr std::string_view kOutOfSync = "OutOfSync";

}  // namespace muster::quota
