// Quota: which gangs wait for it, hold it, and give it back.
//
// A gang holds quota while its record says so. What quota/ decides is counted there at once and
// carried in gang.quota.granted until the record shows it, so nothing is given twice meanwhile.

#include <algorithm>
#include <utility>

#include "coscheduling/engine_state.h"
#include "coscheduling/gangs/pod_sets.h"
#include "fmt/format.h"

namespace muster::coscheduling {
namespace {

constexpr std::string_view kDefaultQueue = "default";
constexpr absl::Duration kReasonInterval = absl::Seconds(1);

const char* VictimText(quota::VictimReason reason) {
  switch (reason) {
    case quota::VictimReason::kInClusterQueue:
      return "needs quota of the same ClusterQueue";
    case quota::VictimReason::kReclamation:
      return "reclaims quota that its ClusterQueue had lent";
    case quota::VictimReason::kFairSharing:
      return "has the smaller share in the cohort";
    case quota::VictimReason::kReclaimWhileBorrowing:
      return "reclaims quota in the cohort while it borrows itself";
  }
  return "";
}

// Pod sets are named after what their specs ask (pod_sets.h).
bool Equal(const std::vector<quota::PodSet>& a, const std::vector<quota::PodSet>& b) {
  return std::ranges::equal(a, b, [](const quota::PodSet& left, const quota::PodSet& right) {
    return left.name == right.name && left.count == right.count;
  });
}

bool Equal(const quota::Workload& a, const quota::Workload& b) {
  return a.queue == b.queue && a.priority == b.priority && a.queued_at == b.queued_at &&
         Equal(a.pod_sets, b.pod_sets) && Equal(a.surplus, b.surplus);
}

const quota::PodSetAssignment* Find(const std::vector<quota::PodSetAssignment>& sets,
                                    const std::string& name) {
  auto it = std::ranges::find(sets, name, &quota::PodSetAssignment::name);
  return it == sets.end() ? nullptr : &*it;
}

int64_t CountIn(const std::vector<quota::PodSetAssignment>& sets, const std::string& name) {
  const quota::PodSetAssignment* given = Find(sets, name);
  return given == nullptr ? 0 : given->count;
}

// Without and with what is beyond minMember.
int64_t CountedAsNeeded(const quota::Admission& admission, const std::string& set) {
  return CountIn(admission.pod_sets, set);
}
int64_t Counted(const quota::Admission& admission, const std::string& set) {
  return CountIn(admission.pod_sets, set) + CountIn(admission.surplus, set);
}

// True if all that the workload needs to start was counted.
bool Covers(const quota::Admission& admission, const quota::Workload& workload) {
  return std::ranges::all_of(workload.pod_sets, [&](const quota::PodSet& set) {
    return set.count <= Counted(admission, set.name);
  });
}

// Some member is live, or still on its node.
bool Stands(const Gang& gang) { return gang.facts.live > 0 || gang.facts.terminating; }

}  // namespace

bool Engine::State::UsesQuota() const {
  return options.quota == QuotaMode::kInternal && quotas.HasQueues();
}

const quota::PodSetAssignment* Engine::State::GivenTo(const Gang& gang,
                                                      const kube::Pod& pod) const {
  if (!HoldsQuota(gang)) return nullptr;
  const std::string set = PodSetOf(pod);
  const quota::PodSetAssignment* given = Find(gang.record->quota->pod_sets, set);
  return given != nullptr ? given : Find(gang.record->quota->surplus, set);
}

std::string Engine::State::QueueOf(const Gang& gang) const {
  if (HoldsQuota(gang)) return gang.record->queue;
  return gang.queue_name.empty() ? std::string(kDefaultQueue) : gang.queue_name;
}

int64_t Engine::State::QueuePriorityOf(const Gang& gang) const {
  auto it = priority_classes.find(gang.priority_class_name);
  return it == priority_classes.end() ? gang.priority : it->second;
}

quota::Workload Engine::State::WorkloadOf(const Gang& gang) const {
  std::vector<const kube::Pod*> members;
  for (const auto* uids : {&gang.bound, &gang.unbound}) {
    for (const std::string& uid : *uids) members.push_back(snapshot.FindPod(uid));
  }
  PodSets sets = GroupByPodSet(members, gang.facts.min_member - gang.facts.succeeded);
  return {.id = gang.uid(),
          .name_space = gang.key.name_space,
          .name = gang.key.name,
          .queue = QueueOf(gang),
          .priority = QueuePriorityOf(gang),
          .queued_at = gang.created,
          .pod_sets = std::move(sets.required),
          .surplus = std::move(sets.surplus)};
}

// Read off the record alone, so that a restart comes to the same answer: what is to be given back
// is taken out of the record first. The record of a gang of one ends with its pod.
bool Engine::State::HoldsQuota(const Gang& gang) const {
  if (options.quota != QuotaMode::kInternal) return false;
  if (!gang.record || !gang.record->quota || gang.record->retry_after) return false;
  if (gang.key.is_pod && !Stands(gang)) return false;
  return gang.record->uid == gang.uid();
}

void Engine::State::FindUncounted(Gang& gang) const {
  gang.quota.uncounted.clear();
  if (!HoldsQuota(gang)) return;
  std::map<std::string, int64_t> taken;
  for (const std::string& uid : gang.bound) ++taken[PodSetOf(*snapshot.FindPod(uid))];
  for (const std::string& uid : gang.unbound) {
    const std::string set = PodSetOf(*snapshot.FindPod(uid));
    // What is beyond minMember is being given back: nobody takes it up any more.
    const int64_t counted = gang.record->eviction ? CountedAsNeeded(*gang.record->quota, set)
                                                  : Counted(*gang.record->quota, set);
    if (++taken[set] > counted) gang.quota.uncounted.insert(uid);
  }
}

void Engine::State::WithdrawQuota(Gang& gang) {
  if (!gang.quota.known) return;
  const std::string& id = gang.quota.known->workload.id;
  quotas.Withdraw(id);
  gang_of_quota.erase(id);
  gang.quota = {};
  queues_changed = true;
}

// Keeps what quota/ knows of the gang at what its record and its members say.
void Engine::State::SyncQuota(Gang& gang, absl::Time now) {
  if (options.quota != QuotaMode::kInternal) return;
  FindUncounted(gang);
  if (gang.quota.known && gang.quota.known->workload.id != gang.uid()) WithdrawQuota(gang);
  if (!HoldsQuota(gang)) {
    gang.quota.idle_since = Never();
    const bool may_have_it = gang.ours && !gang.facts.blocked && !gang.facts.infeasible &&
                             gang.facts.live > 0 && (!gang.facts.backing_off || gang.fits_now);
    if (!may_have_it) WithdrawQuota(gang);
    return;
  }
  if (!MayKeepQuota(gang, now)) {
    ReleaseQuota(gang, now);
    return;
  }
  if (gang.quota.granted == gang.record->quota) gang.quota.granted.reset();
  if (gang.quota.granted) {  // more has been given
    AdmissionRecord record = *gang.record;
    record.quota = gang.quota.granted;
    WriteRecord(gang, record, now);
    return;
  }
  quota::Workload workload = WorkloadOf(gang);
  // It needs more than it asked for, minMember was raised for example: back to the queue.
  if (!gang.facts.blocked && gang.bound.empty() && gang.posted.empty() &&
      !Covers(*gang.record->quota, workload)) {
    ReleaseQuota(gang, now);
    return;
  }
  TellHeldQuota(gang, std::move(workload));
}

// Also notes since when nothing of the gang stands or may start.
bool Engine::State::MayKeepQuota(Gang& gang, absl::Time now) {
  const bool remade = gang.record->bound_at && !gang.record->eviction &&
                      (gang.facts.made_anew || now < gang.remade_until);
  if (!Stands(gang) && gang.posted.empty() && !remade) {
    gang.quota.idle_since = std::min(gang.quota.idle_since, now);
    return false;
  }
  const bool idle = gang.facts.blocked && gang.bound.empty() && gang.posted.empty();
  if (!idle || gang.facts.evicting) {
    gang.quota.idle_since = Never();
    return true;
  }
  // A gang that is restarted whole keeps its quota while its members are made anew.
  gang.quota.idle_since = std::min(gang.quota.idle_since, now);
  const absl::Time until = gang.quota.idle_since + options.repair_deadline;
  if (!gang.record->bound_at || now >= until) return false;
  WakeAt(until);
  return true;
}

void Engine::State::TellHeldQuota(Gang& gang, quota::Workload workload) {
  GangQuota::Known known = {.workload = std::move(workload),
                            .admission = gang.record->quota,
                            .uncounted = gang.quota.uncounted.size()};
  if (gang.quota.known && gang.quota.known->admission == known.admission &&
      gang.quota.known->uncounted == known.uncounted &&
      Equal(gang.quota.known->workload, known.workload)) {
    return;
  }
  gang.quota.known = std::move(known);
  const quota::Workload& told = gang.quota.known->workload;
  gang_of_quota[told.id] = &gang;
  quotas.SetAdmitted(told, *gang.record->quota);
  const bool grows = UsesQuota() && !gang.quota.uncounted.empty() && !gang.record->eviction;
  if (grows) quotas.EnqueueSurplus(told);
  queues_changed = true;
}

void Engine::State::RequestQuota(Gang& gang, absl::Time now) {
  if (gang.quota.granted) {
    WriteRecord(gang, NewRecord(gang, NextAttempt(gang), now), now);
    return;
  }
  quota::Workload workload = WorkloadOf(gang);
  // Members that replace those of a run that is over take up its quota.
  if (HoldsQuota(gang)) {
    if (Covers(*gang.record->quota, workload)) {
      gang.quota.granted = gang.record->quota;
      WriteRecord(gang, NewRecord(gang, NextAttempt(gang), now), now);
      return;
    }
  }
  gang.facts.waits_for_quota = true;
  if (gang.quota.Waits() && Equal(gang.quota.known->workload, workload)) return;
  gang.quota.known = {.workload = std::move(workload), .admission = {}, .uncounted = 0};
  gang_of_quota[gang.quota.known->workload.id] = &gang;
  quotas.Enqueue(gang.quota.known->workload);
  queues_changed = true;
}

void Engine::State::ReleaseQuota(Gang& gang, absl::Time now) {
  AdmissionRecord record = *gang.record;
  record.quota.reset();
  record.queue.clear();
  record.eviction.reset();
  record.bound_at.reset();
  record.identity = options.identity;
  WriteRecord(gang, record, now);
}

void Engine::State::Carry(const quota::Decision& decision, absl::Time now) {
  auto it = gang_of_quota.find(decision.id);
  if (it == gang_of_quota.end()) return;
  Gang& gang = *it->second;
  gang.dirty = true;
  if (decision.admission) {
    gang.quota.granted = *decision.admission;
    gang.quota.known->admission = *decision.admission;
    AdmissionRecord record =
        decision.surplus_only ? *gang.record : NewRecord(gang, NextAttempt(gang), now);
    record.quota = *decision.admission;
    WriteRecord(gang, record, now);
  }
  for (const quota::Victim& victim : decision.victims) {
    auto found = gang_of_quota.find(victim.id);
    if (found == gang_of_quota.end()) continue;
    StartEviction(*found->second,
                  fmt::format("gang {} {}", gang.key.ToString(), VictimText(victim.reason)),
                  victim.surplus_only, now);
  }
}

// Each pass may change why all the others wait. There may be thousands, so they are read at most
// once in kReasonInterval.
void Engine::State::ReadWaitReasons(absl::Time now) {
  if (!reasons_stale) return;
  const absl::Time due = reasons_read + kReasonInterval;
  if (now < due) {
    WakeAt(due);
    return;
  }
  reasons_read = now;
  reasons_stale = false;
  for (const auto& [id, gang] : gang_of_quota) gang->dirty |= gang->quota.Waits();
  WakeAt(now);
}

void Engine::State::ScheduleQuota(absl::Time now) {
  if (options.quota != QuotaMode::kInternal) return;
  if (now >= next_flavor_retry) places_changed = true;
  if (std::exchange(places_changed, false)) {
    placeability.clear();
    next_flavor_retry = Never();
    quotas.InvalidatePlacement();
  }
  WakeAt(next_flavor_retry);
  if (!quotas.NeedsSchedule()) {
    ReadWaitReasons(now);
    return;
  }
  queues_changed = reasons_stale = true;
  // What is decided is compared with what the record says: as exact as the record's times.
  const absl::Time reserved_at = absl::FromUnixMillis(absl::ToUnixMillis(now));
  for (const quota::Decision& decision : quotas.Schedule(
           reserved_at, [this](const quota::Workload& workload, const quota::PodSet& set,
                               const kube::ResourceFlavor& flavor) {
             return WhyNotPlaceable(workload, set, flavor);
           })) {
    Carry(decision, now);
  }
  for (const std::string& id : quotas.ToDrain()) {
    auto it = gang_of_quota.find(id);
    if (it == gang_of_quota.end()) continue;
    StartEviction(*it->second, "its queue has stopPolicy HoldAndDrain", false, now);
  }
  ReadWaitReasons(now);
}

// Gives each counted member its flavors' labels and tolerations.
void Engine::State::DecideFlavors(Gang& gang, absl::Time now) {
  if (!gang.facts.admitted || !HoldsQuota(gang)) return;
  for (const std::string& uid : gang.unbound) {
    if (gang.quota.uncounted.contains(uid)) continue;
    const std::string target = "flavors/" + uid;
    if (!MayAct(target, now)) continue;
    const kube::Pod& pod = *snapshot.FindPod(uid);
    const quota::PodSetAssignment* given = GivenTo(gang, pod);
    if (given == nullptr || HasFlavors(pod, *given)) continue;
    std::vector<const kube::ResourceFlavor*> flavors;
    for (const std::string& name : FlavorNames(*given)) {
      if (const kube::ResourceFlavor* flavor = quotas.FindFlavor(name)) flavors.push_back(flavor);
    }
    AssignFlavors assign = FlavorsFor(pod, *given, gang.record->queue, flavors);
    // The selector of a pod without a gate can't be changed any more; RequestFor keeps it to its
    // flavors' nodes.
    if (!IsGatedByUs(pod)) assign.node_selector.clear();
    Act(target, now, std::move(assign),
        [this, key = gang.key](const absl::Status& status, absl::Time) {
          auto it = gangs.find(key);
          if (it == gangs.end()) return;
          it->second.quota.flavors_error = status.ok() ? "" : std::string(status.message());
          it->second.dirty = true;
        });
  }
}

}  // namespace muster::coscheduling
