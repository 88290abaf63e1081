#include "coscheduling/admission/quota_admission.h"

#include <algorithm>
#include <utility>

#include "cluster/node_trouble.h"
#include "fmt/format.h"
#include "kube/objects/max_seconds.h"
#include "kube/objects/well_known.h"
#include "quota/flavor_terms.h"
#include "quota/pod_sets.h"
#include "quota/topology_levels.h"

namespace muster::coscheduling {
namespace {

constexpr std::string_view kDefaultQueue = "default";
constexpr absl::Duration kReasonInterval = absl::Seconds(1);
constexpr absl::Duration kTellingInterval = absl::Seconds(30);  // of what a Workload waits for

// A gang by which quota/ knows what runs unadmitted; names have no slash.
std::string WhoIs(const GangKey& key) { return key.is_pod ? "/" + key.name : key.name; }
GangKey KeyOf(const std::string& name_space, const std::string& who) {
  const bool is_pod = who.starts_with('/');
  return {name_space, is_pod ? who.substr(1) : who, is_pod};
}

kube::OwnerReference ReferenceTo(const kube::Pod& pod) {
  return {"v1", "Pod", pod.meta.name, pod.meta.uid, true};
}

bool IsStage(const Gang& gang) { return gang.derived && gang.derived->is_stage; }

// Some member is live, or still on its node.
bool Stands(const Gang& gang) { return gang.facts.live > 0 || gang.facts.terminating; }

}  // namespace

QuotaAdmission::QuotaAdmission(const Owner& owner, Records* writer, Workloads* workloads,
                               const Attempts& attempts)
    : Owner(owner),
      writer_(writer),
      workloads_(workloads),
      attempts_(attempts),
      scheduler_({.fair_sharing = options_.fair_sharing,
                  .resources = options_.resources,
                  .may_evict = [this](std::string_view id, bool surplus_only) {
                    const Gang* gang = GangOf(id);
                    return gang == nullptr || MayBeEvicted(*gang, surplus_only);
                  }}) {}

void QuotaAdmission::Observe(const cluster::Journal& journal) {
  if (options_.quota != QuotaMode::kInternal) return;
  for (const auto& [name, entry] : journal.nodes) {
    if (!entry.observed.empty()) CountOthers(name);
  }
}

// Who waits may wait for something else now.
void QuotaAdmission::NoteObjects() {
  ++eviction_rules_;
  queues_changed_ = reasons_stale_ = others_stale_ = true;
  for (const auto& [name_space, who] : scheduler_.Unadmitted()) {
    if (const Gang* gang = gangs_.Find(KeyOf(name_space, who))) agenda_->Note(gang->id);
  }
}

std::vector<const Gang*> QuotaAdmission::GangsIn(const std::string& name_space) const {
  std::vector<const Gang*> gangs;
  const std::map<GangKey, Gang>& all = gangs_.all();
  for (auto it = all.lower_bound({.name_space = name_space, .name = ""});
       it != all.end() && it->first.name_space == name_space; ++it) {
    gangs.push_back(&it->second);
  }
  return gangs;
}

// Its pods are of its own namespace.
void QuotaAdmission::NoteBudget(const std::string& name_space) {
  ++eviction_rules_;
  for (const Gang* gang : GangsIn(name_space)) {
    if (Holds(*gang)) scheduler_.InvalidateEviction(IdOf(*gang));
  }
}

void QuotaAdmission::NotePriorityClass(std::string_view name) {
  for (const auto& [key, gang] : gangs_.all()) {
    if (gang.priority_class_name == name || PodPriorityClassOf(gang)) agenda_->Note(gang.id);
  }
}

bool QuotaAdmission::IsUnderQuota(const Gang& gang) const {
  if (options_.quota != QuotaMode::kInternal) return false;
  return !gang.queue_name.empty() || under_quota_.contains(gang.id) ||
         ManagesAllIn(gang.key.name_space);
}

bool QuotaAdmission::ManagesAllIn(const std::string& name_space) const {
  const std::string by_default = fmt::format("{}/{}", name_space, kDefaultQueue);
  if (scheduler_.FindLocalQueue(by_default) != nullptr) return true;
  if (!options_.manage_jobs_without_queue_name) return false;
  const kube::Namespace* known = snapshot_.FindNamespace(name_space);
  return options_.managed_namespaces.Matches(known == nullptr ? kube::StringMap()
                                                              : known->meta.labels);
}

bool QuotaAdmission::AsksBySpec(const Gang& gang) const {
  if (!gang.unmade || !IsUnderQuota(gang)) return false;
  const kube::AnyJob* job = gangs_.JobOf(gang);
  return job != nullptr && job->suspended && SpecOf(gang).suspended;
}

std::string QuotaAdmission::IdOf(const Gang& gang) const {
  const kube::Workload* workload = workloads_->Of(gang);
  return workload == nullptr ? "" : workload->meta.uid;
}

const quota::Admission* QuotaAdmission::HeldBy(const Gang& gang) const {
  const Part& part = PartOf(gang);
  return part.held && !part.releasing ? &*part.held : nullptr;
}

const Eviction* QuotaAdmission::EvictionOf(const Gang& gang) const {
  const Part& part = PartOf(gang);
  return part.evicting ? &*part.evicting : nullptr;
}

std::vector<const Gang*> QuotaAdmission::StagesOf(const Gang& gang) const {
  std::vector<const Gang*> stages = {&gang};
  if (gang.derived ? !gang.derived->is_stage : !gang.pods.empty()) return stages;
  const kube::Workload* workload = workloads_->Of(gang);
  if (workload == nullptr) return stages;
  for (GangId id : workloads_->UsersOf(*workload)) {
    const Gang* other = gangs_.Find(id);
    if (other != nullptr && other != &gang && workloads_->Of(*other) == workload) {
      stages.push_back(other);
    }
  }
  return stages;
}

// By the pods as they are: another stage may not have been read yet.
bool QuotaAdmission::IsShared(const Gang& gang, bool used) const {
  return std::ranges::any_of(StagesOf(gang), [&](const Gang* stage) {
    if (stage == &gang) return false;
    if (!used && stage->pods.empty()) return !stage->spec_of.empty();
    const Part& part = PartOf(*stage);
    const bool uses = stage->facts.committing || (!part.releasing && !part.waits_for_room &&
                                                  !part.evicting && !stage->facts.backing_off);
    return std::ranges::any_of(gangs_.PodsOf(*stage), [&](const kube::Pod* pod) {
      return !pod->IsTerminal() && (pod->IsBound() || ((!used || uses) && IsLive(*pod)));
    });
  });
}

// Workloads of its members beyond minMember that have quota.
std::vector<const kube::Workload*> QuotaAdmission::SurplusOf(const Gang& gang) const {
  std::vector<const kube::Workload*> all;
  if (gang.key.is_pod) return all;
  for (const std::string& uid : gang.pods) {
    const kube::Workload* workload = workloads_->OfPod({gang.key.name_space, uid});
    if (workload != nullptr && quota::HasQuota(*workload)) all.push_back(workload);
  }
  return all;
}

void QuotaAdmission::Read(const Gang& gang) {
  Part& part = parts_[gang.id];
  part.evicting.reset();
  const AdmissionRecord* record = records_.OwnOf(gang);
  if (record != nullptr && record->preempted) {
    part.preempted = {*record->preempted, "Preempted", "", false};
  }
  const auto stands = [](const kube::Pod* pod) { return pod->IsBound() && !pod->IsTerminal(); };
  if (part.preempted && std::ranges::none_of(gangs_.PodsOf(gang), stands)) part.preempted.reset();
  if (!IsUnderQuota(gang)) part.evicting = part.preempted;
  if (options_.quota != QuotaMode::kInternal) return;
  part.held.reset();
  part.own.clear();
  const auto note_eviction = [&](const kube::Workload& workload, bool surplus_only) {
    if (!workload.evicted || part.evicting) return;
    const kube::Condition& evicted = workload.conditions.at("Evicted");
    part.evicting = {evicted.message, evicted.reason, "", surplus_only};
  };
  const kube::Workload* workload = workloads_->Of(gang);
  part.deactivated = workload != nullptr && !workload->active;
  part.releasing &= workload != nullptr && quota::HasQuota(*workload);
  if (workload == nullptr) return;
  under_quota_.insert(gang.id);
  workloads_->Use(gang, *workload);
  if (!quota::HasQuota(*workload)) return;
  part.queue = workload->queue;
  part.held = CountedIn(gang, workload->reclaimable);
  note_eviction(*workload, false);
  for (const kube::Workload* more : SurplusOf(gang)) {
    part.own.insert(more->meta.Controller()->uid);
    quota::AddSurplus(part.held->surplus, quota::ReservedIn(*more).pod_sets);
    note_eviction(*more, true);
  }
}

quota::Admission QuotaAdmission::CountedIn(
    const Gang& gang, const std::map<std::string, int64_t>& reclaimable) const {
  quota::Admission counted = quota::CountedIn(*workloads_->Of(gang), reclaimable);
  std::vector<const kube::Pod*> pods = gangs_.PodsOf(gang);
  const auto unmade = AsksBySpec(gang) ? quota::PodsOf(SpecOf(gang)) : std::vector<kube::Pod>();
  for (const kube::Pod& pod : unmade) pods.push_back(&pod);
  quota::NameByPods(std::move(pods), &counted);
  return counted;
}

bool QuotaAdmission::Waits(const Gang& gang) const {
  const Part& part = PartOf(gang);
  return part.known && !part.known->admission;
}

bool QuotaAdmission::IsAsked(const Gang& gang) const {
  if (Waits(gang) || IsGranted(gang) || AsksBySpec(gang)) return true;
  return IsUnderQuota(gang) && !Holds(gang) && gang.bound.empty() && gang.facts.live > 0;
}

const quota::PodSetAssignment* QuotaAdmission::GivenTo(const Gang& gang,
                                                       const kube::Pod& pod) const {
  const quota::Admission* held = HeldBy(gang);
  if (held == nullptr) return nullptr;
  const quota::PodSetAssignment* given = held->Find(quota::PodSetOf(pod));
  return given != nullptr && given->PaysFor(*pod.spec, options_.resources) ? given : nullptr;
}

bool QuotaAdmission::MayBePlaced(const Gang& gang, const std::string& uid) const {
  if (UncountedOf(gang).contains(uid) || PartOf(gang).untaken.contains(uid)) return false;
  if (!Holds(gang)) return true;
  const kube::Pod& pod = *snapshot_.FindPod(uid);
  if (!quota::IsGivenFlavors(pod)) return false;
  const quota::PodSetAssignment* given = GivenTo(gang, pod);
  return given != nullptr && quota::HasFlavors(pod, *given);
}

std::string QuotaAdmission::QueueOf(const Gang& gang) const {
  if (Holds(gang)) return PartOf(gang).queue;
  return gang.queue_name.empty() ? std::string(kDefaultQueue) : gang.queue_name;
}

int64_t QuotaAdmission::PriorityOf(const Gang& gang) const {
  const std::string& name = gang.priority_class_name;
  if (const auto* named = scheduler_.FindPriorityClass(name)) return named->value;
  const auto of_pods = name.empty() ? PodPriorityClassOf(gang) : std::nullopt;
  const auto value = of_pods ? scheduler_.PodPriorityOf(*of_pods) : std::nullopt;
  // A class that is gone says what it said, as in Kueue.
  const kube::Workload* workload = workloads_->Of(gang);
  if (value || !workload || (name.empty() && !of_pods)) return value.value_or(gang.priority);
  return workload->priority;
}

int64_t QuotaAdmission::ClaimOf(const Gang& gang) const {
  if (IsUnderQuota(gang)) return PriorityOf(gang);
  if (gang.facts.live > 0 || gang.pods.empty()) return gang.priority;
  return snapshot_.FindPod(*gang.pods.begin())->priority;
}

bool QuotaAdmission::KeepsRoomFrom(const Gang& victim, int64_t claim) const {
  const std::vector<const kube::Pod*> live = gangs_.LiveOf(victim);
  if (live.empty()) return false;
  const std::optional<int64_t> most = scheduler_.MayOptOutUpTo(live.front()->priority_class_name);
  if (!most || claim > *most) return false;
  return gangs_.IsMarked(victim, kPreemptibleAnnotation, "false");
}

bool QuotaAdmission::MayPreempt(const Gang& gang, const Gang& victim) const {
  if (options_.quota == QuotaMode::kKueue || ClaimOf(victim) >= ClaimOf(gang) ||
      KeepsRoomFrom(victim, ClaimOf(gang))) {
    return false;
  }
  if (!IsUnderQuota(gang) || !IsUnderQuota(victim)) {
    return !IsUnderQuota(gang) && !IsUnderQuota(victim);
  }
  const quota::Admission* held = HeldBy(gang);
  const quota::Admission* others = HeldBy(victim);
  if (held == nullptr || others == nullptr || held->cluster_queue != others->cluster_queue ||
      IsShared(victim, false)) {
    return false;  // other stages of its job would go with it
  }
  const kube::ClusterQueue* queue = scheduler_.FindClusterQueue(held->cluster_queue);
  return queue != nullptr &&
         queue->preemption.within_cluster_queue != kube::WithinQueuePolicy::kNever;
}

// The PriorityClass that its job names and its pods don't carry, or not yet; nullopt: they do.
std::optional<std::string> QuotaAdmission::PodPriorityClassOf(const Gang& gang) const {
  const kube::AnyJob* maker = gangs_.MakerOf(gang);
  const bool said = maker != nullptr && (gang.unmade || !maker->priority_class.empty());
  return said ? std::optional(quota::PriorityClassOf(*maker)) : std::nullopt;
}

Reason QuotaAdmission::LabelFault(const Gang& gang) const {
  const std::string& name = gang.priority_class_name;
  const auto of_pods = name.empty() ? PodPriorityClassOf(gang) : std::nullopt;
  const bool there = of_pods ? scheduler_.PodPriorityOf(*of_pods).has_value()
                             : name.empty() || scheduler_.FindPriorityClass(name) != nullptr;
  if (!there && !workloads_->Of(gang)) {
    return {v1::PRIORITY_CLASS_NOT_FOUND,
            of_pods ? fmt::format("PriorityClass {}, which {} names, doesn't exist", *of_pods,
                                  gang.derived->maker)
                    : fmt::format("WorkloadPriorityClass {}, which label {} names, doesn't exist",
                                  name, kPriorityClassLabel),
            "create it, or name another one"};
  }
  if (gang.max_seconds.empty() || kube::MaxSecondsOf(gang.max_seconds)) return {};
  return {v1::MEMBER_INVALID, kube::BadMaxSeconds(gang.max_seconds), "correct it, or remove it"};
}

quota::Workload QuotaAdmission::WorkloadOf(const Gang& gang) const {
  quota::PodSets sets =
      quota::GroupByPodSet(gangs_.LiveOf(gang), gang.facts.min_member - gang.facts.succeeded);
  if (AsksBySpec(gang)) {
    sets.required = quota::PodSetsOf(SpecOf(gang));
  } else if (const kube::Workload* own = gang.unmade ? workloads_->Of(gang) : nullptr) {
    sets.required = quota::AsAsked(*own).pod_sets;
  }
  return {.id = IdOf(gang),
          .name_space = gang.key.name_space,
          .name = gang.key.name,
          .queue = QueueOf(gang),
          .priority = PriorityOf(gang),
          .max_seconds = kube::MaxSecondsOf(gang.max_seconds),
          .queued_at = gang.created,
          .pod_sets = std::move(sets.required),
          .surplus = std::move(sets.surplus)};
}

const Gang* QuotaAdmission::GangOf(std::string_view workload) const {
  const auto it = gang_of_.find(std::string(workload));
  return it == gang_of_.end() ? nullptr : gangs_.Find(it->second);
}

// Members that are going away: what they use is nobody else's yet. On a lost node nobody uses any.
std::vector<const kube::Pod*> QuotaAdmission::GoingOf(const Gang& gang) const {
  std::vector<const kube::Pod*> going;
  if (!gang.facts.terminating) return going;
  for (const kube::Pod* pod : gangs_.PodsOf(gang)) {
    if (!pod->IsDeleting() || !pod->IsBound() || pod->IsTerminal()) continue;
    const std::optional<cluster::NodeTrouble> trouble = cluster::TroubleOf(
        snapshot_.FindNode(pod->node_name), std::nullopt, agenda_->now(), options_.node_grace);
    if (trouble && agenda_->now() >= trouble->lost_at) continue;
    if (trouble) agenda_->NoteAt(gang.id, trouble->lost_at);
    going.push_back(pod);
  }
  return going;
}

void QuotaAdmission::FindUncounted(const Gang& gang) {
  Part& part = parts_[gang.id];
  part.uncounted.clear();
  part.untaken.clear();
  std::erase_if(part.joining, [&](const std::string& uid) { return !part.own.contains(uid); });
  const quota::Admission* held = HeldBy(gang);
  // What stands without quota, pods that went over from another gang for example, brings none.
  if (held == nullptr && !gang.bound.empty() && IsUnderQuota(gang)) {
    part.uncounted.insert(gang.unbound.begin(), gang.unbound.end());
  }
  if (held == nullptr) return;
  std::vector<const kube::Pod*> members = GoingOf(gang);
  std::ranges::copy(gangs_.LiveOf(gang), std::back_inserter(members));
  // What is given on, or will be, is no place that those beyond minMember could use.
  std::optional<quota::Admission> places;
  if (!part.own.empty()) places = CountedIn(gang, ReclaimableOf(gang, OwnPodsOf(gang)));
  part.uncounted = quota::FindUncounted(std::move(members), places ? *places : *held, part.own,
                                        EvictionOf(gang), &part.joining);
  for (const kube::Workload* more : SurplusOf(gang)) {
    const std::string& uid = more->meta.Controller()->uid;
    const kube::Pod& pod = *snapshot_.FindPod(uid);
    const bool waits = IsLive(pod) && !pod.IsBound();
    if (waits && !workloads_->TakeOver(gang, *more)) part.untaken.insert(uid);
  }
}

quota::FlavorAmounts QuotaAdmission::UnadmittedOf(const Gang& gang) const {
  if (!IsUnderQuota(gang)) return {};
  return quota::UnadmittedOf(gangs_.PodsOf(gang), HeldBy(gang), options_.resources,
                             scheduler_.Flavors(),
                             [this](const auto& node) { return snapshot_.FindNodeObject(node); });
}

// What is no gang's and stands there, though others than Muster put it there.
void QuotaAdmission::CountOthers(const std::string& node) {
  std::map<std::string, quota::FlavorAmounts> amounts;  // by namespace
  const cluster::NodeInfo* info = scheduler_.Flavors().empty() ? nullptr : snapshot_.FindNode(node);
  if (info != nullptr && info->object != nullptr) {
    std::string_view unmanaged;  // the last namespace that is
    for (const cluster::PlacedPod& placed : info->pods) {
      const kube::ObjectMeta& meta = placed.pod->meta;
      if (meta.Label(kube::kQueueLabel) == nullptr &&
          (meta.name_space == unmanaged || !ManagesAllIn(meta.name_space))) {
        unmanaged = meta.name_space;
        continue;
      }
      if (gangs_.OfPod(meta.uid) != nullptr) continue;
      quota::AddUnadmitted(options_.resources.Count(placed.pod->spec->requests), info->object->meta,
                           scheduler_.Flavors(), &amounts[meta.name_space]);
    }
  }
  scheduler_.SetUnadmittedOn(node, std::move(amounts));
}

void QuotaAdmission::Forget(GangId gang, const GangKey& key) {
  Withdraw(gang);
  parts_.Forget(gang);
  under_quota_.erase(gang);
  scheduler_.SetUnadmitted(key.name_space, WhoIs(key), {});
}

void QuotaAdmission::Withdraw(GangId gang) {
  Part* part = parts_.Find(gang);
  if (part == nullptr) return;
  const std::string id = part->known ? part->known->workload.id : "";
  if (const auto told = gang_of_.find(id); told != gang_of_.end() && told->second == gang) {
    gang_of_.erase(told);
    queues_changed_ = true;
    // Another stage goes on with what is counted, or asks.
    const Gang* heir = workloads_->NoteGangs(id);
    if (heir != nullptr && heir->id != gang && part->known->admission) {
      gang_of_[id] = heir->id;
      parts_[heir->id].known = part->known;
    } else {
      scheduler_.Withdraw(id);
    }
  }
  part->known.reset();
  part->granted.reset();
  part->eviction.reset();
  part->waits_for_room = false;
}

// What it holds was reserved before it gave up.
bool QuotaAdmission::GaveUp(const Gang& gang) const {
  const AdmissionRecord* record = records_.OwnOf(gang);
  return record != nullptr && record->retry_after &&
         record->deadline - PartOf(gang).held->reserved_at >= absl::Milliseconds(1);
}

bool QuotaAdmission::IsOfQuotaBefore(const Gang& gang, const AdmissionRecord& record) const {
  const quota::Admission* held = HeldBy(gang);
  return held != nullptr && gang.bound.empty() && record.admitted_at < held->reserved_at;
}

void QuotaAdmission::Sync(const Gang& gang, const Holding& holding) {
  if (options_.quota != QuotaMode::kInternal) return;
  if (IsUnderQuota(gang)) under_quota_.insert(gang.id);
  Part& part = parts_[gang.id];
  if (part.known && part.known->workload.id != IdOf(gang)) Withdraw(gang.id);
  FindUncounted(gang);
  scheduler_.SetUnadmitted(gang.key.name_space, WhoIs(gang.key), UnadmittedOf(gang));
  if (!part.held) {
    part.idle_since = Never();
    const bool there = gang.facts.live > 0 || AsksBySpec(gang);
    const bool may_have_it = gang.ours && !gang.facts.blocked && !gang.facts.infeasible &&
                             !part.deactivated && there &&
                             (!gang.facts.backing_off || holding.fits_now);
    if (!may_have_it && part.known) Withdraw(gang.id);
    workloads_->LetGo(gang, there || Stands(gang) || IsShared(gang, false));
    ReleaseSurplus(gang);
    return;
  }
  // Counted until its Workload shows none, though it is over when this process finds it.
  if (!part.known) TellHeld(gang, WorkloadOf(gang));
  const bool gives_up = part.releasing || part.waits_for_room || GaveUp(gang) ||
                        (gang.facts.backing_off && !holding.fits_now);
  if (gives_up || !MayKeep(gang, holding)) {
    // It is its job's, and other stages use it, or are still to come.
    const kube::AnyJob* job = gangs_.JobOf(gang);
    const bool goes_on = job != nullptr && job->GoesOn() && IsStage(gang) &&
                         gang.facts.succeeded >= gang.facts.min_member;
    if (!IsShared(gang, gives_up) && (gives_up || !goes_on)) return Release(gang);
    part.releasing = part.waits_for_room = false;
  }
  ReleaseNeedless(gang);
  if (part.granted && part.granted->HasTheSame(*part.held)) part.granted.reset();
  if (part.granted && ReserveMore(gang)) return;
  part.granted.reset();
  quota::Workload workload = WorkloadOf(gang);
  if (!StillFits(gang, workload, holding) && !IsShared(gang, true)) return Release(gang);
  const kube::Workload& own = *workloads_->Of(gang);
  if (part.deactivated) StartEviction(gang, quota::Deactivation(own));
  agenda_->NoteAt(gang.id, quota::ExecutionEnds(own));
  if (quota::ExecutionEnds(own) <= agenda_->now()) workloads_->Deactivate(gang, own);
  Reclaim(gang);
  TellHeld(gang, std::move(workload));
}

// Not if it needs more than it asked for, minMember was raised for example, or its job's spec has
// become another one: back to the queue.
bool QuotaAdmission::StillFits(const Gang& gang, const quota::Workload& asked,
                               const Holding& holding) const {
  if (gang.facts.blocked || !gang.bound.empty() || holding.posted) return true;
  if (!AsksBySpec(gang)) return PartOf(gang).held->Covers(asked, options_.resources);
  const auto named = quota::AsOfJob(asked.pod_sets, SpecOf(gang).pod_sets);
  return named && quota::HasPodSets(*workloads_->Of(gang), *named);
}

// Members that use its own Workload, of all stages that share it.
std::vector<const kube::Pod*> QuotaAdmission::OwnPodsOf(const Gang& gang) const {
  std::vector<const kube::Pod*> pods;
  for (const Gang* stage : StagesOf(gang)) {
    for (const kube::Pod* pod : gangs_.PodsOf(*stage)) {
      if (!PartOf(*stage).own.contains(pod->meta.uid)) pods.push_back(pod);
    }
  }
  return pods;
}

std::map<std::string, int64_t> QuotaAdmission::ReclaimableOf(
    const Gang& gang, const std::vector<const kube::Pod*>& own) const {
  const kube::AnyJob* maker = gangs_.MakerOf(gang);
  return quota::ReclaimableOf(*workloads_->Of(gang), maker ? maker : gangs_.JobOf(gang), own);
}

// What members had that have succeeded goes to others while the rest runs. Where all stand is
// written down beside what was reserved for them.
void QuotaAdmission::Reclaim(const Gang& gang) {
  if ((gang.bound.empty() && !IsShared(gang, true)) || EvictionOf(gang) != nullptr) return;
  const kube::Workload& workload = *workloads_->Of(gang);
  const std::vector<const kube::Pod*> own = OwnPodsOf(gang);
  workloads_->Reclaim(gang, workload, ReclaimableOf(gang, own));
  const auto node_of = [this](const auto& node) { return snapshot_.FindNodeObject(node); };
  if (auto placed = quota::WithPlaces(scheduler_, workload, own, node_of)) {
    workloads_->Place(gang, workload, *std::move(placed));
  }
}

// What members have of their own that have ended, or for whom the gang's own Workload has a place.
void QuotaAdmission::ReleaseNeedless(const Gang& gang) {
  for (const kube::Workload* more : SurplusOf(gang)) {
    const kube::Pod* pod = snapshot_.FindPod(more->meta.Controller()->uid);
    if (pod == nullptr) continue;
    const bool joins = PartOf(gang).joining.contains(pod->meta.uid);
    if (!joins && !pod->IsTerminal()) continue;
    const char* how = pod->phase == kube::PodPhase::kSucceeded ? "Succeeded" : "Failed";
    workloads_->Release(gang, *more, joins ? quota::kOutOfSync : how);
  }
}

// Also notes since when nothing of the gang stands or may start.
bool QuotaAdmission::MayKeep(const Gang& gang, const Holding& holding) {
  const AdmissionRecord* record = records_.OwnOf(gang);
  const bool ran = record != nullptr && record->bound_at;
  Part& part = parts_[gang.id];
  const kube::AnyJob* job = gangs_.JobOf(gang);
  const bool over = gang.facts.succeeded >= gang.facts.min_member || (job && job->finished);
  const bool remade = ran && !part.evicting && (gang.facts.made_anew || (holding.remade && !over));
  // That of a PodGroup which was deleted, and whose members are gone too.
  const std::string& owner = workloads_->Of(gang)->meta.Controller()->uid;
  const bool of_another = gang.group != nullptr && gang.bound.empty() && !gang.facts.terminating &&
                          !owner.empty() && owner != gang.uid() && owner != workloads_->JobOf(gang);
  if ((!Stands(gang) || of_another) && !gang.unmade && !holding.posted && !remade) {
    part.idle_since = std::min(part.idle_since, agenda_->now());
    return false;
  }
  const bool idle = gang.facts.blocked && gang.bound.empty() && !holding.posted;
  if (!idle || gang.facts.evicting) {
    part.idle_since = Never();
    return true;
  }
  // A gang that is restarted whole keeps its quota while its members are made anew; one whose job
  // was resumed for it, until they have been made.
  const bool resumed =
      !gang.spec_of.empty() && (record == nullptr || IsOfQuotaBefore(gang, *record));
  part.idle_since = std::min(part.idle_since, agenda_->now());
  const absl::Time until = part.idle_since + options_.repair_deadline;
  if ((!ran && !resumed) || agenda_->now() >= until) return false;
  agenda_->NoteAt(gang.id, until);
  return true;
}

void QuotaAdmission::TellHeld(const Gang& gang, quota::Workload workload) {
  const Gang* teller = GangOf(workload.id);
  if (teller != nullptr && teller != &gang && IdOf(*teller) == workload.id) return;
  Part& part = parts_[gang.id];
  Known known = {
      .workload = std::move(workload), .admission = part.held, .uncounted = part.uncounted.size()};
  if (part.known == known) return;
  part.known = std::move(known);
  const quota::Workload& told = part.known->workload;
  gang_of_[told.id] = gang.id;
  scheduler_.SetAdmitted(told, *part.held);
  if (!part.uncounted.empty() && EvictionOf(gang) == nullptr) scheduler_.EnqueueSurplus(told);
  queues_changed_ = true;
}

void QuotaAdmission::Admit(const Gang& gang, bool fits_now) {
  const bool by_spec = AsksBySpec(gang);
  if (!gang.ours || gang.facts.blocked || gang.facts.admitted || gang.facts.evicting) return;
  if (gang.facts.backing_off && !fits_now) return;
  if (by_spec && !PartOf(gang).held) return Request(gang);
  if (by_spec || gang.facts.live == 0 || (gang.unbound.empty() && gang.required() == 0)) return;
  const AdmissionRecord* record = records_.CurrentOf(gang);
  const bool begins = record == nullptr || record->retry_after || IsOfQuotaBefore(gang, *record);
  if (gang.facts.infeasible && begins) return;
  if (gang.facts.waits_for_room && Holds(gang)) return;  // it is being given back
  const bool needs_quota = IsUnderQuota(gang) && gang.bound.empty();
  if (PartOf(gang).releasing) return;
  if (needs_quota && !Holds(gang)) {
    Request(gang);
  } else if (needs_quota && !workloads_->TakeOver(gang, *workloads_->Of(gang))) {
    return;
  } else if (begins) {
    writer_->Write(gang, attempts_.Begin(gang));
  } else {
    writer_->Write(gang, attempts_.TakeOver(gang));
  }
}

// The job, if the gang is all that it makes or a stage of it: then all stages are asked for. Else
// its PodGroup, or the pod alone. One that there is stays.
kube::OwnerReference QuotaAdmission::OwnerOfWorkload(const Gang& gang,
                                                     std::vector<quota::PodSet>* asked) const {
  const kube::Workload* known = workloads_->Of(gang);
  const std::string job = workloads_->JobOf(gang);
  const kube::Workload* others = workloads_->OfJob({gang.key.name_space, job});
  bool jobs = gang.unmade || (gang.derived && !job.empty() &&
                              (others == nullptr || !workloads_->IsOthers(gang, *others)));
  const kube::AnyJob* maker = IsStage(gang) && !gang.unmade ? gangs_.MakerOf(gang) : nullptr;
  if (maker != nullptr && (known == nullptr || known->meta.Controller()->uid == job)) {
    std::vector<quota::PodSet> all = quota::WithOthersOf(*maker, *asked);
    jobs &= quota::AsOfJob(all, maker->pod_sets).has_value();
    if (jobs || known != nullptr) *asked = std::move(all);
  }
  if (known != nullptr) return *known->meta.Controller();
  if (jobs) return gang.derived->owner;
  if (gang.group == nullptr) return ReferenceTo(*snapshot_.FindPod(*gang.pods.begin()));
  return {"scheduling.x-k8s.io/v1alpha1", "PodGroup", gang.key.name, gang.uid(), true};
}

// Puts the gang in line, or reserves what it was granted.
void QuotaAdmission::Request(const Gang& gang) {
  Part& part = parts_[gang.id];
  if (part.deactivated) return workloads_->Wait(gang, *workloads_->Of(gang), {});
  if (scheduler_.IsClosed() || LabelFault(gang).code != v1::REASON_UNSPECIFIED) return;
  if (part.granted) return workloads_->Reserve(gang, *workloads_->Of(gang), *part.granted);
  if (gang.unmade && !TemplatesFor(gang).empty()) return;  // what they had comes first
  const Gang* first = GangOf(IdOf(gang));
  if (first != nullptr && first != &gang && IsAsked(*first)) return;  // another stage asks
  quota::Workload asked = WorkloadOf(gang);
  const kube::OwnerReference owner = OwnerOfWorkload(gang, &asked.pod_sets);
  const kube::Workload* workload = workloads_->Keep(gang, owner, asked);
  if (workload == nullptr) return;
  asked.id = workload->meta.uid;
  if (Waits(gang) && part.known->workload == asked) {
    const quota::Wait wait = scheduler_.WhyWaiting(asked.id);
    if (wait.code == quota::WaitCode::kNone || quota::SaysWhy(*workload, wait)) return;
    if (scheduler_.HoldsAny()) return;  // most weren't judged yet
    const absl::Time due = part.told_waiting + kTellingInterval;
    if (agenda_->now() < due) return agenda_->NoteAt(gang.id, due);
    part.told_waiting = agenda_->now();
    return workloads_->Wait(gang, *workload, wait);
  }
  part.known = {.workload = std::move(asked), .admission = {}, .uncounted = 0};
  part.told_waiting = absl::InfinitePast();
  gang_of_[part.known->workload.id] = gang.id;
  scheduler_.Enqueue(part.known->workload);
  queues_changed_ = reasons_stale_ = true;
}

// What was granted beyond what is reserved: each member has a Workload of its own for it. False if
// there is nobody to give it to any more.
bool QuotaAdmission::ReserveMore(const Gang& gang) {
  const Part& part = PartOf(gang);
  bool any = false;
  for (const auto& [pod, given] :
       quota::MissingSurplus(gangs_.LiveOf(gang), *part.granted, *part.held, part.own)) {
    any = true;
    quota::Workload asked = part.known->workload;
    asked.pod_sets = {{given.name, 1, pod->spec}};
    const kube::Workload* workload = workloads_->Keep(gang, ReferenceTo(*pod), asked);
    if (workload == nullptr) continue;
    workloads_->Reserve(gang, *workload,
                        {part.granted->cluster_queue, {given}, {}, part.granted->reserved_at});
  }
  return any;
}

// The record first: who finds the quota gone must not take up the run that used it.
void QuotaAdmission::Release(const Gang& gang) {
  Part& part = parts_[gang.id];
  part.granted.reset();  // surplus that isn't reserved yet
  part.releasing = part.held.has_value();
  if (!GoingOf(gang).empty() || records_.IsBeingWritten(gang)) return;
  if (const AdmissionRecord* known = records_.OwnOf(gang)) {
    AdmissionRecord record = *known;
    record.bound_at.reset();
    record.whole_with.reset();
    record.identity = options_.identity;
    if (record != *known) {
      writer_->Write(gang, record);
      if (gang.group != nullptr) return;
    }
  }
  ReleaseSurplus(gang);
  const kube::Workload* workload = workloads_->Of(gang);
  if (workload == nullptr || !quota::HasQuota(*workload) || IsShared(gang, true)) return;
  const bool succeeded = std::ranges::all_of(StagesOf(gang), [](const Gang* stage) {
    return stage->facts.succeeded >= stage->facts.min_member;
  });
  const kube::AnyJob* job = gangs_.JobOf(gang);
  const bool over =
      NextState(gang.facts) == v1::FINISHED && (!IsStage(gang) || job == nullptr || job->finished);
  workloads_->Release(gang, *workload, !over ? "" : succeeded ? "Succeeded" : "Failed");
}

std::vector<quota::TemplateChange> QuotaAdmission::TemplatesFor(const Gang& gang) const {
  const kube::Workload* workload = workloads_->Of(gang);
  if (workload == nullptr) return {};
  if (!PartOf(gang).held) return quota::WithoutFlavors(SpecOf(gang), *workload);
  return quota::WithFlavors(SpecOf(gang), *workload, *PartOf(gang).held,
                            [this](std::string_view name) { return scheduler_.FindFlavor(name); });
}

void QuotaAdmission::ReleaseUntilRoom(const Gang& gang) {
  const std::vector<const Gang*> stages = StagesOf(gang);
  for (const Gang* stage : stages) {
    parts_[stage->id].waits_for_room = true;
    agenda_->Note(stage->id);  // before it is planned again
  }
  if (!IsShared(gang, true)) return Release(gang);
  for (const Gang* stage : stages) parts_[stage->id].waits_for_room = false;
}

void QuotaAdmission::GiveFlavors(const Gang& gang) {
  if (!gang.facts.admitted || !Holds(gang)) return;
  for (const std::string& uid : gang.unbound) {
    if (UncountedOf(gang).contains(uid) || PartOf(gang).untaken.contains(uid)) continue;
    const kube::Pod& pod = *snapshot_.FindPod(uid);
    const quota::PodSetAssignment* given = GivenTo(gang, pod);
    if (given == nullptr || quota::HasFlavors(pod, *given)) continue;
    const std::string target = "flavors/" + uid;
    if (!outbox_->MayAct(gang.id, target)) continue;
    quota::FlavorAdditions added =
        quota::FlavorsFor(pod, *given, PartOf(gang).queue, scheduler_.FlavorsOf(*given));
    // The selector of a pod without a gate can't be changed any more; the plan keeps it to its
    // flavors' nodes.
    if (!IsGatedByUs(pod)) added.node_selector.clear();
    outbox_->Act(gang.id, target, AssignFlavorsTo(pod, std::move(added)),
                 [this, id = gang.id](const absl::Status& status, absl::Time) {
                   if (Part* part = parts_.Find(id)) {
                     part->flavors_error = status.ok() ? "" : std::string(status.message());
                   }
                 });
  }
}

bool QuotaAdmission::MayBeEvicted(const Gang& gang, bool surplus_only) const {
  std::vector<const kube::Pod*> going;
  for (const Gang* stage : StagesOf(gang)) {
    for (size_t i = surplus_only ? stage->kept() : 0; i < stage->bound.size(); ++i) {
      going.push_back(snapshot_.FindPod(stage->bound[i]));
    }
  }
  return budgets_.Allow(going);
}

void QuotaAdmission::StartEviction(const Gang& gang, Eviction eviction) {
  if (!Holds(gang) && IsUnderQuota(gang)) return;
  Part& part = parts_[gang.id];
  for (const std::optional<Eviction>* already : {&part.evicting, &part.eviction}) {
    if (*already && (!(*already)->surplus_only || eviction.surplus_only)) return;
  }
  part.eviction = std::move(eviction);
  agenda_->Note(gang.id);
}

// The record first: who finds some members gone must know that all are to go. That of a gang of one
// is in memory, as there is no half of it.
bool QuotaAdmission::NoteInRecord(const Gang& gang) {
  Part& part = parts_[gang.id];
  const AdmissionRecord* known = records_.OwnOf(gang);
  const bool noted = gang.bound.empty() || part.preempted;
  if (!noted) {
    AdmissionRecord record = known != nullptr ? *known : attempts_.Begin(gang);
    record.preempted = part.eviction->why;
    if (!record.bound_at) record.bound_at = agenda_->now();
    writer_->Write(gang, record);
    return true;
  }
  part.eviction.reset();
  return false;
}

bool QuotaAdmission::NoteEviction(const Gang& gang) {
  if (!PartOf(gang).eviction) return false;
  if (!IsUnderQuota(gang)) return NoteInRecord(gang);
  Part& part = parts_[gang.id];
  const Eviction* written = EvictionOf(gang);
  if (!Holds(gang) ||
      (written != nullptr && written->surplus_only == part.eviction->surplus_only)) {
    part.eviction.reset();
    return false;
  }
  std::vector<const kube::Workload*> those = SurplusOf(gang);
  if (!part.eviction->surplus_only) those = {workloads_->Of(gang)};
  for (const kube::Workload* workload : those) workloads_->Evict(gang, *workload, *part.eviction);
  if (those.empty()) part.eviction.reset();
  return !those.empty();
}

void QuotaAdmission::ReleaseSurplus(const Gang& gang) {
  for (const kube::Workload* more : SurplusOf(gang)) workloads_->Release(gang, *more);
}

void QuotaAdmission::Carry(const quota::Decision& decision) {
  const Gang* gang = GangOf(decision.id);
  if (gang == nullptr) return;
  agenda_->Note(gang->id);
  if (decision.admission) {
    Part& part = parts_[gang->id];
    // There is nothing that surplus could be added to: it gave its quota back.
    if (decision.surplus_only && (part.waits_for_room || !Holds(*gang))) {
      if (part.known && part.known->admission) {
        scheduler_.SetAdmitted(part.known->workload, *part.known->admission);
      }
      return;
    }
    part.granted = *decision.admission;
    for (const Gang* stage : StagesOf(*gang)) parts_[stage->id].waits_for_room = false;
    part.known->admission = *decision.admission;
    if (decision.surplus_only) {
      ReserveMore(*gang);
    } else {
      workloads_->Reserve(*gang, *workloads_->Of(*gang), *part.granted);
    }
  }
  for (const quota::Victim& victim : decision.victims) {
    const Gang* found = GangOf(victim.id);
    if (found == nullptr) continue;
    StartEviction(
        *found, {fmt::format("gang {} {}", gang->key.ToString(), quota::VictimText(victim.reason)),
                 "Preempted", std::string(quota::KueueReason(victim.reason)), victim.surplus_only});
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
  if (scheduler_.IsClosed()) return ReadWaitReasons();
  const auto untaken = workloads_->Attend();
  queues_changed_ |= scheduler_.SetOrphans(
      workloads_->Orphans(), [this](const std::string& uid) { return gang_of_.contains(uid); });
  if (std::exchange(others_stale_, false)) {
    for (const auto& [name, info] : snapshot_.nodes()) CountOthers(name);
  }
  if (!untaken) return ReadWaitReasons();
  reasons_stale_ |= scheduler_.Hold(*untaken);
  const bool due = scheduler_.NeedsSchedule();
  for (const auto& [id, why] : scheduler_.ToDrain()) {  // though nobody waits
    const Gang* gang = GangOf(id);
    if (gang == nullptr) continue;
    StartEviction(*gang, {"its queue has stopPolicy HoldAndDrain", std::string(why), "", false});
  }
  if (!due) return ReadWaitReasons();
  queues_changed_ = reasons_stale_ = true;
  // What is decided is compared with what Workloads say: as exact as the times there.
  const absl::Time reserved_at = absl::FromUnixMillis(absl::ToUnixMillis(agenda_->now()));
  for (const quota::Decision& decision : scheduler_.Schedule(
           reserved_at, [&](const quota::Workload& workload, const quota::PodSet& set,
                            const kube::ResourceFlavor& flavor) {
             const Gang* gang = GangOf(workload.id);
             return gang == nullptr ? "" : placeable(*gang, workload, set, flavor);
           })) {
    Carry(decision);
  }
  ReadWaitReasons();
}

}  // namespace muster::coscheduling
