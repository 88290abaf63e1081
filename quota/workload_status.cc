#include "quota/workload_status.h"

#include <algorithm>
#include <utility>

#include "quota/pod_sets.h"

namespace muster::quota {
namespace {

constexpr const char* kQuotaReserved = "QuotaReserved";
constexpr const char* kAdmitted = "Admitted";
constexpr const char* kEvicted = "Evicted";
constexpr const char* kPreempted = "Preempted";
constexpr const char* kRequeued = "Requeued";
constexpr const char* kFinished = "Finished";
constexpr const char* kDeactivationTarget = "DeactivationTarget";
constexpr const char* kLeader = "muster.dev/Leader";

bool IsTrue(const Conditions& conditions, const char* type) {
  const auto it = conditions.find(type);
  return it != conditions.end() && it->second.status == "True";
}

// Its time changes with its status alone.
void Set(Conditions* conditions, const char* type, bool status, std::string_view reason,
         std::string message, absl::Time now) {
  kube::Condition& condition = (*conditions)[type];
  const char* text = status ? "True" : "False";
  if (condition.status != text) condition.last_transition = now;
  condition.status = text;
  condition.reason = reason;
  condition.message = std::move(message);
}

struct Restart {
  std::string_view reason;
  const char* message;
};

// Why it is queued again that was out of the line, in Kueue's words; nothing if it is in line, or
// what it was put out for isn't over. Who waits is active.
Restart RestartOf(const Conditions& conditions, const Wait& wait) {
  const auto requeued = conditions.find(kRequeued);
  if (requeued == conditions.end() || requeued->second.status == "True") return {};
  const std::string& out = requeued->second.reason;
  if (out.starts_with("Deactivated")) return {"Reactivated", "The workload was reactivated"};
  if (wait.code == WaitCode::kQueueStopped) return {};
  if (out == "ClusterQueueStopped") {
    return {"ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped"};
  }
  if (out == "LocalQueueStopped") {
    return {"LocalQueueRestarted", "The LocalQueue was restarted after being stopped"};
  }
  return {};
}

}  // namespace

WorkloadState StateOf(const kube::Workload& workload) {
  if (workload.finished) return WorkloadState::kReleased;
  if (!workload.reserved) return WorkloadState::kWaiting;
  if (workload.evicted) return WorkloadState::kEvicting;
  return IsTrue(workload.conditions, kAdmitted) ? WorkloadState::kAdmitted
                                                : WorkloadState::kReserved;
}

bool HasFinalizer(const kube::Workload& workload) {
  return std::ranges::count(workload.meta.finalizers, kube::kInUseFinalizer) > 0;
}

bool AsksFor(const kube::Workload& workload, const Workload& asked) {
  return workload.queue == asked.queue && workload.priority == asked.priority &&
         workload.max_seconds == asked.max_seconds &&
         std::ranges::equal(workload.pod_sets, asked.pod_sets, [](const auto& a, const auto& b) {
           return a.name == b.name && a.count == b.count;
         });
}

bool HasPodSets(const kube::Workload& workload, const std::vector<PodSet>& asked) {
  return std::ranges::equal(workload.pod_sets, asked, [](const auto& a, const auto& b) {
    return a.name == b.name && a.count == b.count && a.spec->requests == b.spec->requests;
  });
}

bool SaysWhy(const kube::Workload& workload, const Wait& wait) {
  const auto told = workload.conditions.find(kQuotaReserved);
  return told != workload.conditions.end() && told->second.message == wait.message &&
         RestartOf(workload.conditions, wait).reason.empty();
}

Admission InOrderOf(const kube::Workload& workload, const Admission& admission) {
  Admission named = {admission.cluster_queue, {}, {}, admission.reserved_at};
  for (const kube::Workload::PodSet& set : workload.pod_sets) {
    const auto given = std::ranges::find_if(admission.pod_sets, [&](const PodSetAssignment& each) {
      return each.name == set.name || IsOfRole(each.name, set.name);
    });
    if (given == admission.pod_sets.end()) continue;
    named.pod_sets.push_back(*given);
    named.pod_sets.back().name = set.name;
  }
  return named;
}

Admission ReservedIn(const kube::Workload& workload) {
  Admission admission;
  admission.cluster_queue = workload.cluster_queue;
  for (const kube::Workload::Reserved& set : workload.reserved_sets) {
    admission.pod_sets.push_back({set.name, set.count, set.flavors, set.usage, set.topology});
  }
  const auto since = workload.conditions.find(kQuotaReserved);
  if (since != workload.conditions.end()) admission.reserved_at = since->second.last_transition;
  return admission;
}

Admission CountedIn(const kube::Workload& workload,
                    const std::map<std::string, int64_t>& reclaimable) {
  Admission admission = ReservedIn(workload);
  for (PodSetAssignment& set : admission.pod_sets) {
    const auto over = reclaimable.find(set.name);
    if (over == reclaimable.end() || set.count <= 0) continue;
    set = set.ReducedTo(set.count - std::clamp<int64_t>(over->second, 0, set.count));
  }
  return admission;
}

std::map<std::string, int64_t> ReclaimableOf(const kube::Workload& workload,
                                             const kube::AnyJob* job,
                                             const std::vector<const kube::Pod*>& pods) {
  std::map<std::string, int64_t> reclaimable = workload.reclaimable;
  const bool any =
      job != nullptr
          ? std::ranges::any_of(job->pod_sets, [](const auto& made) { return made.over > 0; })
          : std::ranges::count(pods, kube::PodPhase::kSucceeded, &kube::Pod::phase) > 0;
  if (!any) return reclaimable;
  for (const kube::Workload::Reserved& set : workload.reserved_sets) {
    int64_t over = 0;
    int64_t standing = 0;
    for (const kube::Pod* pod : pods) {
      const std::string of = PodSetOf(*pod);
      if (of != set.name && !IsOfRole(of, set.name)) continue;
      standing += pod->IsTerminal() ? 0 : 1;
      const bool is_last = job == nullptr && pod->meta.Controller() == nullptr;
      over += is_last && pod->phase == kube::PodPhase::kSucceeded ? 1 : 0;
    }
    if (job != nullptr) {
      for (const kube::AnyJob::PodSet& made : job->pod_sets) {
        if (made.name == set.name || IsOfRole(set.name, made.name)) over = made.over;
      }
    }
    const int64_t free = std::min(over, set.count - standing);
    if (free > 0 && free > reclaimable[set.name]) reclaimable[set.name] = free;
  }
  std::erase_if(reclaimable, [](const auto& each) { return each.second <= 0; });
  return reclaimable;
}

absl::Time ExecutionEnds(const kube::Workload& workload) {
  const bool runs = StateOf(workload) == WorkloadState::kAdmitted;
  if (!runs || !workload.max_seconds || !workload.active) return absl::InfiniteFuture();
  return workload.conditions.at(kAdmitted).last_transition +
         absl::Seconds(*workload.max_seconds - workload.past_seconds.value_or(0));
}

bool IsToBeDeactivated(const kube::Workload& workload) {
  return IsTrue(workload.conditions, kDeactivationTarget);
}

Eviction Deactivation(const kube::Workload& workload) {
  if (!IsToBeDeactivated(workload)) {
    return {"spec.active of its Workload is false", "Deactivated", ""};
  }
  const kube::Condition& why = workload.conditions.at(kDeactivationTarget);
  return {"The workload is deactivated due to " + why.message, "DeactivatedDueTo" + why.reason, ""};
}

std::optional<int64_t> PastSeconds(const kube::Workload& workload, const Conditions& conditions) {
  const bool ends = workload.finished || IsTrue(conditions, kFinished) ||
                    (!IsToBeDeactivated(workload) && IsTrue(conditions, kDeactivationTarget));
  if (ends) return std::nullopt;
  if (!IsTrue(workload.conditions, kAdmitted) || IsTrue(conditions, kAdmitted)) {
    return workload.past_seconds;
  }
  const absl::Duration ran =
      conditions.at(kAdmitted).last_transition - workload.conditions.at(kAdmitted).last_transition;
  return workload.past_seconds.value_or(0) + absl::ToInt64Seconds(ran);
}

std::vector<kube::OwnerReference> OwnersBefore(const kube::Workload& workload) {
  const std::string* owner = workload.meta.Annotation(kOwnerAnnotation);
  const std::string* uid = workload.meta.Label(kJobUidLabel);
  if (owner == nullptr || uid == nullptr || KeeperOf(workload).empty()) return {};
  const size_t slash = owner->find('/');
  if (slash == std::string::npos) return {};
  return {{"", owner->substr(0, slash), owner->substr(slash + 1), *uid, true}};
}

std::string LeaderOf(const kube::Workload& workload) {
  const auto leader = workload.conditions.find(kLeader);
  return leader == workload.conditions.end() ? "" : leader->second.message;
}

std::string KeeperOf(const kube::Workload& workload) {
  std::string leader = LeaderOf(workload);
  const std::string* made_by = workload.meta.Annotation(kLeaderAnnotation);
  return leader.empty() && made_by != nullptr ? *made_by : leader;
}

Conditions Taken(const kube::Workload& workload, const std::string& leader, absl::Time now) {
  Conditions conditions = workload.conditions;
  Set(&conditions, kLeader, true, "Leads", leader, now);
  return conditions;
}

Conditions Waiting(const kube::Workload& workload, const Wait& wait, absl::Time now) {
  if (!workload.active) return Evicted(workload, Deactivation(workload), now);
  const bool usable = wait.code >= WaitCode::kResourceNotCovered;
  Conditions conditions = workload.conditions;
  Set(&conditions, kQuotaReserved, false, usable ? "Pending" : "Inadmissible", wait.message, now);
  const Restart again = RestartOf(conditions, wait);
  if (!again.reason.empty()) Set(&conditions, kRequeued, true, again.reason, again.message, now);
  return conditions;
}

Conditions Admitted(const kube::Workload& workload, const Admission& admission, absl::Time now) {
  Conditions conditions = workload.conditions;
  conditions.erase(kFinished);
  const Restart again = RestartOf(conditions, {});
  if (!again.reason.empty()) Set(&conditions, kRequeued, true, again.reason, again.message, now);
  for (const char* before : {kEvicted, kPreempted}) {
    if (!IsTrue(conditions, before)) continue;
    Set(&conditions, before, false, kQuotaReserved,
        "Previously: " + workload.conditions.at(before).message, now);
  }
  Set(&conditions, kQuotaReserved, true, kQuotaReserved,
      "Quota reserved in ClusterQueue " + admission.cluster_queue, now);
  Set(&conditions, kAdmitted, true, kAdmitted, "The workload is admitted", now);
  conditions[kQuotaReserved].last_transition = admission.reserved_at;
  return conditions;
}

Conditions OverTime(const kube::Workload& workload, absl::Time now) {
  Conditions conditions = workload.conditions;
  Set(&conditions, kDeactivationTarget, true, "MaximumExecutionTimeExceeded",
      "exceeding the maximum execution time", now);
  return conditions;
}

Conditions Evicted(const kube::Workload& workload, const Eviction& eviction, absl::Time now) {
  Conditions conditions = workload.conditions;
  if (!workload.active) conditions.erase(kDeactivationTarget);
  Set(&conditions, kEvicted, true, eviction.reason, eviction.why, now);
  if (!eviction.preempted.empty()) {
    Set(&conditions, kPreempted, true, eviction.preempted, eviction.why, now);
  }
  return conditions;
}

Conditions Released(const kube::Workload& workload, std::string_view finished, absl::Time now) {
  Conditions conditions = workload.conditions;
  const bool evicted = IsTrue(conditions, kEvicted);
  const std::string why = evicted ? conditions.at(kEvicted).message : "It has no quota";
  Set(&conditions, kQuotaReserved, false, "Pending", why, now);
  Set(&conditions, kAdmitted, false, "NoReservation", "The workload has no reservation", now);
  if (evicted) {
    // What was preempted is queued again at once; what was stopped or deactivated once that ends.
    const std::string reason = conditions.at(kEvicted).reason;
    Set(&conditions, kRequeued, reason == kPreempted, reason, why, now);
  }
  conditions.erase(kFinished);
  if (!finished.empty()) {
    Set(&conditions, kFinished, true, finished,
        finished == kOutOfSync ? "Its pod uses the quota of its gang"
                               : "Its members have all ended",
        now);
  }
  return conditions;
}

}  // namespace muster::quota
