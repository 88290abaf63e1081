#include "coscheduling/admission/quota_admission.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "fmt/format.h"
#include "quota/pod_sets.h"

namespace muster::coscheduling {
namespace {

constexpr std::string_view kDefaultQueue = "default";
constexpr absl::Duration kReasonInterval = absl::Seconds(1);

// Some member is live, or still on its node.
bool Stands(const Gang& gang) { return gang.facts.live > 0 || gang.facts.terminating; }

}  // namespace

QuotaAdmission::QuotaAdmission(const EngineOptions& options, const cluster::Snapshot& snapshot,
                               const Gangs& gangs, Records* records, const Attempts& attempts,
                               Agenda* agenda, Outbox* outbox)
    : options_(options),
      snapshot_(snapshot),
      gangs_(gangs),
      records_(records),
      attempts_(attempts),
      agenda_(agenda),
      outbox_(outbox),
      scheduler_({.fair_sharing = options.fair_sharing,
                  .may_evict = [this](std::string_view id, bool surplus_only) {
                    const Gang* gang = GangOf(id);
                    return gang == nullptr || MayBeEvicted(*gang, surplus_only);
                  }}) {}

// --- observations ---

// Who waits may wait for something else now.
void QuotaAdmission::NoteObjects() {
  queues_changed_ = reasons_stale_ = true;
  for (const auto& [name_space, gangs] : unadmitted_) {
    for (const auto& [gang, amounts] : gangs) agenda_->Note(gang);
  }
}

void QuotaAdmission::NoteGangsIn(const std::string& name_space) {
  const std::map<GangKey, Gang>& all = gangs_.all();
  for (auto it = all.lower_bound({.name_space = name_space, .name = ""});
       it != all.end() && it->first.name_space == name_space; ++it) {
    agenda_->Note(it->second.id);
  }
}

void QuotaAdmission::Upsert(const kube::WorkloadPriorityClass& priority_class) {
  priority_classes_.insert_or_assign(priority_class.meta.name, priority_class.value);
  NotePriorityClass(priority_class.meta.name);
}

void QuotaAdmission::Remove(const kube::WorkloadPriorityClass& priority_class) {
  priority_classes_.erase(priority_class.meta.name);
  NotePriorityClass(priority_class.meta.name);
}

// Its pods are of its own namespace.
void QuotaAdmission::NoteBudget(const std::string& name_space) {
  const std::map<GangKey, Gang>& all = gangs_.all();
  for (auto it = all.lower_bound({.name_space = name_space, .name = ""});
       it != all.end() && it->first.name_space == name_space; ++it) {
    if (Holds(it->second)) scheduler_.InvalidateEviction(it->second.uid());
  }
}

void QuotaAdmission::NotePriorityClass(std::string_view name) {
  for (const auto& [key, gang] : gangs_.all()) {
    if (gang.priority_class_name == name) agenda_->Note(gang.id);
  }
}

// --- questions ---

const QuotaAdmission::Part& QuotaAdmission::PartOf(const Gang& gang) const {
  static const Part kNone;
  const auto it = parts_.find(gang.id);
  return it == parts_.end() ? kNone : it->second;
}

bool QuotaAdmission::IsUnderQuota(const Gang& gang) const {
  if (options_.quota != QuotaMode::kInternal) return false;
  if (!gang.queue_name.empty() || under_quota_.contains(gang.id)) return true;
  const std::string& name_space = gang.key.name_space;
  if (scheduler_.FindLocalQueue(fmt::format("{}/{}", name_space, kDefaultQueue)) != nullptr) {
    return true;
  }
  if (!options_.manage_jobs_without_queue_name) return false;
  const kube::Namespace* known = snapshot_.FindNamespace(name_space);
  return options_.managed_namespaces.Matches(known == nullptr ? kube::StringMap()
                                                              : known->meta.labels);
}

// Read off the record alone, so that a restart comes to the same answer: what is to be given back
// is taken out of the record first. The record of a gang of one ends with its pod.
bool QuotaAdmission::Holds(const Gang& gang) const {
  if (options_.quota != QuotaMode::kInternal) return false;
  const AdmissionRecord* record = records_->OwnOf(gang);
  if (record == nullptr || !record->quota || record->retry_after) return false;
  // Quota of another ClusterQueue than its own is nothing that was decided here.
  const kube::LocalQueue* queue =
      scheduler_.FindLocalQueue(gang.key.name_space + "/" + record->queue);
  if (queue != nullptr && queue->cluster_queue != record->quota->cluster_queue) return false;
  return !gang.key.is_pod || Stands(gang);
}

bool QuotaAdmission::Waits(const Gang& gang) const {
  const Part& part = PartOf(gang);
  return part.known && !part.known->admission;
}

const quota::PodSetAssignment* QuotaAdmission::GivenTo(const Gang& gang,
                                                       const kube::Pod& pod) const {
  if (!Holds(gang)) return nullptr;
  const quota::PodSetAssignment* given = records_->Of(gang)->quota->Find(quota::PodSetOf(pod));
  return given != nullptr && given->PaysFor(*pod.spec) ? given : nullptr;
}

bool QuotaAdmission::MayBePlaced(const Gang& gang, const std::string& uid) const {
  if (!Holds(gang)) return true;
  if (UncountedOf(gang).contains(uid)) return false;
  const kube::Pod& pod = *snapshot_.FindPod(uid);
  if (!quota::IsGivenFlavors(pod)) return false;
  const quota::PodSetAssignment* given = GivenTo(gang, pod);
  return given != nullptr && quota::HasFlavors(pod, *given);
}

std::string QuotaAdmission::QueueOf(const Gang& gang) const {
  if (Holds(gang)) return records_->Of(gang)->queue;
  return gang.queue_name.empty() ? std::string(kDefaultQueue) : gang.queue_name;
}

int64_t QuotaAdmission::PriorityOf(const Gang& gang) const {
  const auto it = priority_classes_.find(gang.priority_class_name);
  return it == priority_classes_.end() ? gang.priority : it->second;
}

quota::Workload QuotaAdmission::WorkloadOf(const Gang& gang) const {
  std::vector<const kube::Pod*> members;
  for (const auto* uids : {&gang.bound, &gang.unbound}) {
    for (const std::string& uid : *uids) members.push_back(snapshot_.FindPod(uid));
  }
  quota::PodSets sets = quota::GroupByPodSet(members, gang.facts.min_member - gang.facts.succeeded);
  return {.id = gang.uid(),
          .name_space = gang.key.name_space,
          .name = gang.key.name,
          .queue = QueueOf(gang),
          .priority = PriorityOf(gang),
          .queued_at = gang.created,
          .pod_sets = std::move(sets.required),
          .surplus = std::move(sets.surplus)};
}

const Gang* QuotaAdmission::GangOf(std::string_view workload) const {
  const auto it = gang_of_.find(std::string(workload));
  return it == gang_of_.end() ? nullptr : gangs_.Find(it->second);
}

size_t QuotaAdmission::KeptMembers(const Gang& gang) {
  return static_cast<size_t>(std::max<int64_t>(0, gang.facts.min_member - gang.facts.succeeded));
}

// --- steps of a gang ---

void QuotaAdmission::FindUncounted(const Gang& gang) {
  std::set<std::string>& uncounted = parts_[gang.id].uncounted;
  uncounted.clear();
  if (!Holds(gang)) return;
  const AdmissionRecord& record = *records_->Of(gang);
  std::map<std::string, int64_t> taken;
  for (const std::string& uid : gang.bound) ++taken[quota::PodSetOf(*snapshot_.FindPod(uid))];
  for (const std::string& uid : gang.unbound) {
    const std::string set = quota::PodSetOf(*snapshot_.FindPod(uid));
    // What is beyond minMember is being given back: nobody takes it up any more.
    const int64_t counted =
        record.eviction ? record.quota->CountedAsNeeded(set) : record.quota->Counted(set);
    if (++taken[set] > counted) uncounted.insert(uid);
  }
}

// What of the gang stands on nodes and wasn't counted, for each flavor that its node may be of.
quota::FlavorAmounts QuotaAdmission::UnadmittedOf(const Gang& gang) const {
  quota::FlavorAmounts amounts;
  if (!IsUnderQuota(gang)) return amounts;
  std::map<std::string, int64_t> taken;
  for (const std::string& uid : gang.pods) {
    const kube::Pod* pod = snapshot_.FindPod(uid);
    if (pod == nullptr || !pod->IsBound() || pod->IsTerminal()) continue;
    const quota::PodSetAssignment* given = GivenTo(gang, *pod);
    const bool counted =
        given != nullptr && ++taken[given->name] <= records_->Of(gang)->quota->Counted(given->name);
    const kube::Node* node = counted ? nullptr : snapshot_.FindNodeObject(pod->node_name);
    if (node == nullptr) continue;
    for (const kube::ResourceFlavor* flavor : scheduler_.Flavors()) {
      const bool may_be_of_it = std::ranges::all_of(flavor->node_labels, [&](const auto& label) {
        const std::string* value = node->meta.Label(label.first);
        return value != nullptr && *value == label.second;
      });
      if (!may_be_of_it) continue;
      for (const auto& [resource, amount] : pod->spec->requests.entries()) {
        int64_t& sum = amounts[{flavor->meta.name, resource}];
        if (__builtin_add_overflow(sum, amount, &sum)) sum = std::numeric_limits<int64_t>::max();
      }
    }
  }
  return amounts;
}

void QuotaAdmission::CountUnadmitted(GangId gang, const std::string& name_space,
                                     quota::FlavorAmounts amounts) {
  std::map<GangId, quota::FlavorAmounts>& gangs = unadmitted_[name_space];
  if (amounts.empty()) {
    gangs.erase(gang);
  } else {
    gangs[gang] = std::move(amounts);
  }
  quota::FlavorAmounts all;
  for (const auto& [id, parts] : gangs) {
    for (const auto& [what, amount] : parts) {
      int64_t& sum = all[what];
      if (__builtin_add_overflow(sum, amount, &sum)) sum = std::numeric_limits<int64_t>::max();
    }
  }
  scheduler_.SetUnadmitted(name_space, all);
  if (gangs.empty()) unadmitted_.erase(name_space);
}

void QuotaAdmission::Forget(GangId gang) {
  Withdraw(gang);
  under_quota_.erase(gang);
  const auto its = std::ranges::find_if(
      unadmitted_, [gang](const auto& all) { return all.second.contains(gang); });
  if (its != unadmitted_.end()) CountUnadmitted(gang, std::string(its->first), {});
}

void QuotaAdmission::Withdraw(GangId gang) {
  const auto it = parts_.find(gang);
  if (it == parts_.end()) return;
  if (it->second.known) {
    const std::string& id = it->second.known->workload.id;
    scheduler_.Withdraw(id);
    gang_of_.erase(id);
    queues_changed_ = true;
  }
  parts_.erase(it);
}

void QuotaAdmission::Sync(const Gang& gang, const Holding& holding) {
  if (options_.quota != QuotaMode::kInternal) return;
  if (IsUnderQuota(gang)) under_quota_.insert(gang.id);
  const auto known = parts_.find(gang.id);
  if (known != parts_.end() && known->second.known &&
      known->second.known->workload.id != gang.uid()) {
    Withdraw(gang.id);
  }
  FindUncounted(gang);
  CountUnadmitted(gang.id, gang.key.name_space, UnadmittedOf(gang));
  if (!Holds(gang)) {
    parts_[gang.id].idle_since = Never();
    const bool may_have_it = gang.ours && !gang.facts.blocked && !gang.facts.infeasible &&
                             gang.facts.live > 0 && (!gang.facts.backing_off || holding.fits_now);
    if (!may_have_it && parts_[gang.id].known) Withdraw(gang.id);
    return;
  }
  Part& part = parts_[gang.id];
  if (part.waits_for_room || !MayKeep(gang, holding)) {
    Release(gang);
    return;
  }
  const AdmissionRecord& record = *records_->Of(gang);
  if (part.granted == record.quota) part.granted.reset();
  if (part.granted) {
    WriteMore(gang);
    return;
  }
  quota::Workload workload = WorkloadOf(gang);
  // It needs more than it asked for, minMember was raised for example: back to the queue.
  if (!gang.facts.blocked && gang.bound.empty() && !holding.posted &&
      !record.quota->Covers(workload)) {
    Release(gang);
    return;
  }
  if (ReleaseIdleSurplus(gang)) return;
  TellHeld(gang, std::move(workload));
}

// Quota beyond minMember is given back when its pods have been gone for long enough to be made
// anew. True if it is being given back.
bool QuotaAdmission::ReleaseIdleSurplus(const Gang& gang) {
  AdmissionRecord record = *records_->Of(gang);
  std::map<std::string, int64_t> members;
  for (const auto* uids : {&gang.bound, &gang.unbound}) {
    for (const std::string& uid : *uids) ++members[quota::PodSetOf(*snapshot_.FindPod(uid))];
  }
  bool idle = false;
  for (quota::PodSetAssignment& given : record.quota->surplus) {
    const int64_t used =
        std::max<int64_t>(0, members[given.name] - record.quota->CountedAsNeeded(given.name));
    if (given.count <= used) continue;
    idle = true;
    given = given.ReducedTo(used);
  }
  Part& part = parts_[gang.id];
  if (!idle || record.eviction || gang.facts.terminating) {
    part.surplus_idle_since = Never();
    return false;
  }
  part.surplus_idle_since = std::min(part.surplus_idle_since, agenda_->now());
  const absl::Time due = part.surplus_idle_since + options_.repair_deadline;
  if (agenda_->now() < due) {
    agenda_->NoteAt(gang.id, due);
    return false;
  }
  std::erase_if(record.quota->surplus, [](const auto& given) { return given.count == 0; });
  records_->Write(gang, record);
  return true;
}

// Also notes since when nothing of the gang stands or may start.
bool QuotaAdmission::MayKeep(const Gang& gang, const Holding& holding) {
  const AdmissionRecord& record = *records_->Of(gang);
  Part& part = parts_[gang.id];
  const bool remade =
      record.bound_at && !record.eviction && (gang.facts.made_anew || holding.remade);
  if (!Stands(gang) && !holding.posted && !remade) {
    part.idle_since = std::min(part.idle_since, agenda_->now());
    return false;
  }
  const bool idle = gang.facts.blocked && gang.bound.empty() && !holding.posted;
  if (!idle || gang.facts.evicting) {
    part.idle_since = Never();
    return true;
  }
  // A gang that is restarted whole keeps its quota while its members are made anew.
  part.idle_since = std::min(part.idle_since, agenda_->now());
  const absl::Time until = part.idle_since + options_.repair_deadline;
  if (!record.bound_at || agenda_->now() >= until) return false;
  agenda_->NoteAt(gang.id, until);
  return true;
}

void QuotaAdmission::TellHeld(const Gang& gang, quota::Workload workload) {
  const AdmissionRecord& record = *records_->Of(gang);
  Part& part = parts_[gang.id];
  Known known = {.workload = std::move(workload),
                 .admission = record.quota,
                 .uncounted = part.uncounted.size()};
  if (part.known == known) return;
  part.known = std::move(known);
  const quota::Workload& told = part.known->workload;
  gang_of_[told.id] = gang.id;
  scheduler_.SetAdmitted(told, *record.quota);
  const bool grows = IsUnderQuota(gang) && !part.uncounted.empty() && !record.eviction;
  if (grows) scheduler_.EnqueueSurplus(told);
  queues_changed_ = true;
}

void QuotaAdmission::Admit(const Gang& gang, bool fits_now) {
  if (!gang.ours || gang.facts.blocked || gang.facts.live == 0 || gang.facts.admitted) return;
  if (gang.facts.evicting || (gang.unbound.empty() && gang.required() == 0)) return;
  if (gang.facts.backing_off && !fits_now) return;
  const AdmissionRecord* record = records_->CurrentOf(gang);
  const bool begins = record == nullptr || record->retry_after;
  if (gang.facts.infeasible && begins) return;
  if (gang.facts.waits_for_room && Holds(gang)) return;  // it is being given back
  const bool needs_quota = IsUnderQuota(gang) && gang.bound.empty();
  if (needs_quota && (begins || !Holds(gang))) {
    Request(gang);
  } else if (begins) {
    Begin(gang);
  } else {
    records_->Write(gang, attempts_.TakeOver(gang));
  }
}

// Puts the gang in line, unless it has its quota.
void QuotaAdmission::Request(const Gang& gang) {
  Part& part = parts_[gang.id];
  if (part.granted) {
    Begin(gang);
    return;
  }
  quota::Workload workload = WorkloadOf(gang);
  // Members that replace those of a run that is over take up its quota.
  if (Holds(gang) && records_->Of(gang)->quota->Covers(workload)) {
    part.granted = records_->Of(gang)->quota;
    Begin(gang);
    return;
  }
  if (Waits(gang) && part.known->workload == workload) return;
  part.known = {.workload = std::move(workload), .admission = {}, .uncounted = 0};
  gang_of_[part.known->workload.id] = gang.id;
  scheduler_.Enqueue(part.known->workload);
  queues_changed_ = true;
}

// More has been given than its record says.
void QuotaAdmission::WriteMore(const Gang& gang) {
  AdmissionRecord record = *records_->Of(gang);
  record.quota = GrantedTo(gang);
  records_->Write(gang, record);
}

void QuotaAdmission::Begin(const Gang& gang) {
  AdmissionRecord record = attempts_.Begin(gang);
  if (IsGranted(gang)) {
    record.queue = QueueOf(gang);
    record.quota = GrantedTo(gang);
  }
  records_->Write(gang, record);
}

void QuotaAdmission::Release(const Gang& gang) {
  parts_[gang.id].granted.reset();  // surplus that its record doesn't show yet
  AdmissionRecord record = *records_->Of(gang);
  record.quota.reset();
  record.queue.clear();
  record.eviction.reset();
  record.bound_at.reset();
  record.whole_with.reset();
  record.identity = options_.identity;
  records_->Write(gang, record);
}

void QuotaAdmission::ReleaseUntilRoom(const Gang& gang) {
  parts_[gang.id].waits_for_room = true;
  Release(gang);
}

void QuotaAdmission::GiveFlavors(const Gang& gang) {
  if (!gang.facts.admitted || !Holds(gang)) return;
  for (const std::string& uid : gang.unbound) {
    if (UncountedOf(gang).contains(uid)) continue;
    const kube::Pod& pod = *snapshot_.FindPod(uid);
    const quota::PodSetAssignment* given = GivenTo(gang, pod);
    if (given == nullptr || quota::HasFlavors(pod, *given)) continue;
    const std::string target = "flavors/" + uid;
    if (!outbox_->MayAct(gang.id, target)) continue;
    std::vector<const kube::ResourceFlavor*> flavors;
    for (const std::string& name : FlavorNames(*given)) {
      if (const kube::ResourceFlavor* flavor = scheduler_.FindFlavor(name)) {
        flavors.push_back(flavor);
      }
    }
    quota::FlavorAdditions added =
        quota::FlavorsFor(pod, *given, records_->Of(gang)->queue, flavors);
    // The selector of a pod without a gate can't be changed any more; the plan keeps it to its
    // flavors' nodes.
    if (!IsGatedByUs(pod)) added.node_selector.clear();
    outbox_->Act(gang.id, target, AssignFlavorsTo(pod, std::move(added)),
                 [this, id = gang.id](const absl::Status& status, absl::Time) {
                   const auto it = parts_.find(id);
                   if (it == parts_.end()) return;
                   it->second.flavors_error = status.ok() ? "" : std::string(status.message());
                 });
  }
}

// --- eviction ---

bool QuotaAdmission::MayBeEvicted(const Gang& gang, bool surplus_only) const {
  std::vector<const kube::Pod*> going;
  for (size_t i = surplus_only ? KeptMembers(gang) : 0; i < gang.bound.size(); ++i) {
    going.push_back(snapshot_.FindPod(gang.bound[i]));
  }
  return budgets_.Allow(going);
}

void QuotaAdmission::StartEviction(const Gang& gang, const std::string& why, bool surplus_only) {
  if (!Holds(gang)) return;
  Part& part = parts_[gang.id];
  const std::optional<Eviction>& written = records_->Of(gang)->eviction;
  for (const std::optional<Eviction>* already : {&written, &std::as_const(part.eviction)}) {
    if (*already && (!(*already)->surplus_only || surplus_only)) return;
  }
  part.eviction = {why, surplus_only};
  agenda_->Note(gang.id);
}

bool QuotaAdmission::NoteEviction(const Gang& gang) {
  const auto it = parts_.find(gang.id);
  if (it == parts_.end() || !it->second.eviction) return false;
  std::optional<Eviction>& eviction = it->second.eviction;
  if (!Holds(gang) || records_->Of(gang)->eviction == eviction) {
    eviction.reset();
    return false;
  }
  AdmissionRecord record = *records_->Of(gang);
  record.eviction = eviction;
  records_->Write(gang, record);
  return true;
}

void QuotaAdmission::ReleaseSurplus(const Gang& gang) {
  AdmissionRecord record = *records_->Of(gang);
  record.quota->surplus.clear();
  record.eviction.reset();
  records_->Write(gang, record);
}

// --- the step of all ---

void QuotaAdmission::Carry(const quota::Decision& decision) {
  const Gang* gang = GangOf(decision.id);
  if (gang == nullptr) return;
  agenda_->Note(gang->id);
  if (decision.admission) {
    Part& part = parts_[gang->id];
    // There is nothing that surplus could be added to: it gave its quota back, or its record went.
    if (decision.surplus_only && (part.waits_for_room || !Holds(*gang))) {
      if (part.known && part.known->admission) {
        scheduler_.SetAdmitted(part.known->workload, *part.known->admission);
      }
      return;
    }
    part.granted = *decision.admission;
    part.waits_for_room = false;
    part.known->admission = *decision.admission;
    if (decision.surplus_only) {
      WriteMore(*gang);
    } else {
      Begin(*gang);
    }
  }
  for (const quota::Victim& victim : decision.victims) {
    const Gang* found = GangOf(victim.id);
    if (found == nullptr) continue;
    StartEviction(*found,
                  fmt::format("gang {} {}", gang->key.ToString(), quota::VictimText(victim.reason)),
                  victim.surplus_only);
  }
}

// Each pass may change why all the others wait. There may be thousands, so they are read at most
// once in kReasonInterval.
void QuotaAdmission::ReadWaitReasons() {
  if (!reasons_stale_) return;
  const absl::Time due = reasons_read_ + kReasonInterval;
  if (agenda_->now() < due) {
    agenda_->WakeAt(due);
    return;
  }
  reasons_read_ = agenda_->now();
  reasons_stale_ = false;
  for (const auto& [workload, id] : gang_of_) {
    const Gang* gang = gangs_.Find(id);
    if (gang != nullptr && Waits(*gang)) agenda_->Note(id);
  }
}

void QuotaAdmission::Schedule(const Placeable& placeable) {
  if (options_.quota != QuotaMode::kInternal) return;
  if (!scheduler_.NeedsSchedule()) {
    ReadWaitReasons();
    return;
  }
  queues_changed_ = reasons_stale_ = true;
  // What is decided is compared with what the record says: as exact as the record's times.
  const absl::Time reserved_at = absl::FromUnixMillis(absl::ToUnixMillis(agenda_->now()));
  for (const quota::Decision& decision : scheduler_.Schedule(
           reserved_at, [&](const quota::Workload& workload, const quota::PodSet& set,
                            const kube::ResourceFlavor& flavor) {
             const Gang* gang = GangOf(workload.id);
             return gang == nullptr ? "" : placeable(*gang, workload, set, flavor);
           })) {
    Carry(decision);
  }
  for (const std::string& id : scheduler_.ToDrain()) {
    const Gang* gang = GangOf(id);
    if (gang == nullptr) continue;
    StartEviction(*gang, "its queue has stopPolicy HoldAndDrain", false);
  }
  ReadWaitReasons();
}

}  // namespace muster::coscheduling
