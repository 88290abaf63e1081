#include "coscheduling/commit/restarts.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kube/objects/time_text.h"
#include "quota/pod_sets.h"

namespace muster::coscheduling {
namespace {

// How long a job is left alone after the API server refused to suspend it, or its user changed it
// while it was being restarted.
constexpr absl::Duration kLeftAlone = absl::Minutes(10);

constexpr const char* kByHand = "delete the gang's pods, so that they are made anew";

bool IsRestarting(const kube::AnyJob& job) {
  return job.suspended && job.annotations.contains(kube::kRestartAnnotation);
}

}  // namespace

bool Restarts::WasRemade(const Gang& gang) const {
  return agenda_->now() < parts_.Of(gang.id).remade_until;
}

int64_t Restarts::PodsLeft(const kube::AnyJob& job) const {
  return std::ranges::count_if(gangs_.PodsOf(job.Key()),
                               [&](const kube::Pod* pod) { return kube::IsLeftOf(job, *pod); });
}

void Restarts::NoteGangsOf(const kube::AnyJob* job) {
  if (job == nullptr) return;
  for (GangId gang : gangs_.GangsOf(job->Key())) agenda_->Note(gang);
}

// Another gang of the job that has started, or may do so at any moment.
std::string Restarts::RunningBeside(const Gang& gang, const kube::AnyJob& job) const {
  for (const kube::Pod* pod : gangs_.PodsOf(job.Key())) {
    if (gang.pods.contains(pod->meta.uid) || pod->IsTerminal()) continue;
    if (!pod->IsBound() && !gangs_.MayBeBound(*pod)) continue;
    const Gang* other = gangs_.OfPod(pod->meta.uid);
    // With all stages of its job.
    const bool evicted = quota_->Holds(gang) && quota_->EvictionOf(gang) != nullptr;
    if (other != nullptr && evicted && quota_->IdOf(*other) == quota_->IdOf(gang)) continue;
    return other == nullptr ? pod->meta.name : other->key.ToString();
  }
  return "";
}

Restarter Restarts::RestarterOf(const Gang& gang) const {
  const kube::AnyJob* job = nullptr;
  for (const kube::Pod* pod : gangs_.LiveOf(gang)) {
    const kube::AnyJob* own = gangs_.jobs().OutermostOf(*pod);
    if (own == nullptr) {
      return {nullptr, "its members are pods that no job makes anew", kByHand};
    }
    if (job != nullptr && job != own) {
      return {nullptr, fmt::format("{} and {} both make members", job->Title(), own->Title()),
              kByHand};
    }
    job = own;
  }
  if (job == nullptr && gang.unmade) job = gangs_.JobOf(gang);
  if (job == nullptr || job->going) return {nullptr, "its job is gone", ""};
  const bool kueues = IsKueues(gang, *job);
  Restarter found = kueues ? RestarterThroughKueue(*job) : RestarterThroughItself(*job);
  if (found.job == nullptr || HasBegun(found)) return found;
  if (const std::string other = RunningBeside(gang, *job); !other.empty()) {
    return {nullptr, fmt::format("{} runs {} as well", job->Title(), other), kueues ? "" : kByHand};
  }
  if (const auto left = left_alone_.find(job->uid);
      left != left_alone_.end() && agenda_->now() < left->second.until) {
    return {nullptr, left->second.why, left->second.fix};
  }
  return found;
}

Restarter Restarts::RestarterThroughItself(const kube::AnyJob& job) const {
  if (IsRestarting(job)) return {&job, "", ""};
  const std::string title = job.Title();
  if (!job.no_suspend.empty()) return {nullptr, title + " " + job.no_suspend, kByHand};
  if (job.suspended) return {nullptr, title + " is suspended already", "resume it"};
  if (!job.foreign_owner.empty()) {
    return {
        nullptr,
        fmt::format("{} belongs to {}, which may not want it suspended", title, job.foreign_owner),
        kByHand};
  }
  return {&job, "", ""};
}

bool Restarts::HasBegun(const Restarter& restarter) {
  return restarter.workload != nullptr ? IsGivenBack(*restarter.workload)
                                       : IsRestarting(*restarter.job);
}

// Asks for the first of the two patches, with the mark. True if that was started; what can't be
// asked now is asked again.
bool Restarts::Begin(const Gang& gang, const Restarter& restarter, const std::string& why,
                     const std::optional<kube::TriedFlavors>& tried) {
  const kube::AnyJob& job = *restarter.job;
  const kube::Workload* workload = restarter.workload;
  const std::string target = "restart/" + job.uid;
  const int64_t generation = workload != nullptr ? workload->meta.generation : job.generation;
  Annotations annotations;
  annotations.emplace(kube::kRestartAnnotation,
                      kube::EncodeMark({agenda_->now(), why, generation + 1}));
  if (tried) annotations.emplace(kube::kTriedAnnotation, kube::EncodeTried(*tried));
  Action patch;
  std::string what, fix;
  if (workload != nullptr) {
    patch = Workloads::Patch(*workload, false, std::move(annotations));
    what = "to give back Workload " + workload->meta.FullName();
    fix = kWorkloadRights;
  } else {
    patch = quota::SuspendTo(job, true, std::move(annotations));
    what = "to suspend " + job.Title();
    fix = "let muster patch this kind of job (deploy/base/rbac-muster.yaml)";
  }
  return outbox_->Act(gang.id, target, std::move(patch),
                      [this, uid = job.uid, what, fix](const absl::Status& status, absl::Time at) {
                        if (status.ok()) {
                          left_alone_.erase(uid);
                          return;
                        }
                        // What comes right by itself is tried again at once.
                        if (status.code() != absl::StatusCode::kPermissionDenied &&
                            status.code() != absl::StatusCode::kInvalidArgument) {
                          return;
                        }
                        left_alone_[uid] = {fmt::format("the API server refuses {}: {}", what,
                                                        std::string(status.message())),
                                            fix, at + kLeftAlone};
                        for (const auto& [id, part] : parts_) {
                          if (part.fallback) agenda_->Note(id);
                        }
                      });
}

bool Restarts::IsStartedByQuota(const kube::AnyJob& job) const {
  const Gang* gang = gangs_.OfSpec(job.uid);
  return gang != nullptr && job.HasFlavors() && quota_->IsUnderQuota(*gang);
}

void Restarts::KeepGoing() {
  began_ = std::min(began_, agenda_->now());
  if (GivesBackToKueue()) {
    for (const kube::Workload* workload : workloads_.Marked()) KeepWorkload(*workload);
  }
  const std::set<std::string>& restarting = gangs_.jobs().known().Restarting();
  if (restarting_seen_ != restarting) {
    restarting_seen_.insert(restarting.begin(), restarting.end());
    for (const std::string& uid : restarting_seen_) NoteGangsOf(gangs_.jobs().Find(uid));
    restarting_seen_ = restarting;
  }
  for (const std::string& uid : restarting_seen_) {
    const kube::AnyJob& job = *gangs_.jobs().Find(uid);
    if (job.going) continue;
    const kube::RestartStep step = kube::NextRestartStep(job, PodsLeft(job));
    if (step == kube::RestartStep::kWait) continue;
    const bool resume = step == kube::RestartStep::kResume && !IsStartedByQuota(job);
    const std::optional<bool> suspend = resume ? std::optional(false) : std::nullopt;
    if (step == kube::RestartStep::kLeave) {
      left_alone_[uid] = {
          fmt::format("{} was taken over by its user while it was being restarted", job.Title()),
          kByHand, agenda_->now() + kLeftAlone};
    }
    outbox_->Act("restart/" + uid,
                 quota::SuspendTo(job, suspend, {{std::string(kube::kRestartAnnotation), {}}}));
  }
}

Reason Restarts::Blocker(const Gang& gang) {
  const kube::AnyJob* job = gangs_.JobOf(gang);
  if (job != nullptr && IsRestarting(*job)) {
    parts_[gang.id].remade_until = agenda_->now() + options_.repair_deadline;
    const std::string why = kube::DecodeMark(*job->Annotation(kube::kRestartAnnotation)).why;
    return {
        v1::JOB_RESTARTING,
        fmt::format("{} is suspended until its pods are gone, and then resumed; {} are left{}{}",
                    job->Title(), PodsLeft(*job), why.empty() ? "" : ": ", why),
        ""};
  }
  if (job != nullptr && IsKueues(gang, *job)) return KueueBlocker(gang, *job);
  const std::optional<Fallback>& fallback = FallbackOf(gang);
  if (job == nullptr || !fallback || !fallback->why_not.empty()) return {};
  return {v1::JOB_RESTARTING, fmt::format("{} is being suspended: {}", job->Title(), fallback->why),
          ""};
}

kube::TriedFlavors Restarts::TriedBefore(const Gang& gang) const {
  const kube::AnyJob* job = gangs_.JobOf(gang);
  const std::string* text = job == nullptr ? nullptr : job->Annotation(kube::kTriedAnnotation);
  const bool kueues = options_.quota == QuotaMode::kKueue;
  if (const kube::Workload* given = kueues ? WorkloadOf(gang) : nullptr) {
    text = given->meta.Annotation(kube::kTriedAnnotation);
  }
  std::optional<kube::TriedFlavors> tried = kube::DecodeTried(text == nullptr ? "" : *text);
  if (!tried) return {0, {}};
  std::erase_if(tried->flavors, [this](const auto& each) { return each.second <= agenda_->now(); });
  if (tried->flavors.empty()) tried->attempt = 0;
  return *tried;
}

bool Restarts::WasTried(const kube::TriedFlavors::Until& tried, const std::string& flavor) const {
  const auto until = tried.find(flavor);
  return until != tried.end() && agenda_->now() < until->second;
}

std::vector<cluster::NodeSource> Restarts::OtherFlavors(const Gang& gang,
                                                        const kube::TriedFlavors::Until& tried) {
  std::vector<cluster::NodeSource> found;
  const kube::Workload* written = quota_->IsUnderQuota(gang) ? workloads_.Of(gang) : nullptr;
  if (written == nullptr) return found;
  quota::Workload workload = quota_->WorkloadOf(gang);
  std::map<std::string, std::set<std::string>> carried =
      quota::TakeOffFlavors(gangs_.UnboundOf(gang), *written, &workload.pod_sets);
  for (const quota::PodSet& set : workload.pod_sets) {
    for (const std::string& name : carried[set.name]) {
      for (const kube::ResourceFlavor* other : quota_->OtherFlavors(workload, set.name, name)) {
        cluster::NodeSource source = {.flavor = other->meta.name};
        if (std::ranges::count(found, source.flavor, &cluster::NodeSource::flavor) > 0) continue;
        source.lacking = WasTried(tried, source.flavor)
                             ? "failed, not before " + kube::ClockText(tried.at(source.flavor))
                             : placeability_->WhyNoNodesOf(set, *other);
        source.is_open = source.lacking.empty();
        found.push_back(std::move(source));
      }
    }
  }
  return found;
}

std::set<std::string> Restarts::CarriedBy(const Gang& gang) const {
  std::set<std::string> flavors;
  for (auto* pod : gangs_.UnboundOf(gang)) flavors.merge(quota::CarriedFlavors(*pod));
  return flavors;
}

std::vector<cluster::NodeSource> Restarts::NodeSourcesOf(const Gang& gang) const {
  return cluster::InOrder(provisioning_.ZoneSourcesOf(gang),
                          fmt::format("{}", fmt::join(CarriedBy(gang), " and ")),
                          parts_.Of(gang.id).other_flavors);
}

std::string Restarts::WhyNoFallback(const Gang& gang, std::string* fix) const {
  std::vector<std::string> policies;
  if (gang.group != nullptr) {
    if (const std::string* value = gang.group->meta.Annotation(kube::kFallbackAnnotation)) {
      policies.push_back(*value);
    }
  }
  for (const kube::Pod* pod : gangs_.UnboundOf(gang)) {
    const std::string* value = pod->meta.Annotation(kube::kFallbackAnnotation);
    policies.push_back(value != nullptr
                           ? *value
                           : gangs_.jobs().OwnersAnnotation(*pod, kube::kFallbackAnnotation));
  }
  for (const std::string& policy : policies) {
    if (std::string why = kube::WhyFallbackIsOff(policy); !why.empty()) {
      *fix =
          fmt::format("remove annotation {}, or delete the gang's pods", kube::kFallbackAnnotation);
      return why;
    }
  }
  Restarter restarter = RestarterOf(gang);
  *fix = std::move(restarter.fix);
  return std::move(restarter.why_not);
}

bool Restarts::MayUseAnotherFlavor(const Gang& gang) {
  if (options_.quota == QuotaMode::kKueue) return false;
  const AdmissionRecord* record = records_.OwnOf(gang);
  std::string fix;
  return record != nullptr &&
         std::ranges::any_of(OtherFlavors(gang, record->flavors_tried),
                             &cluster::NodeSource::is_open) &&
         WhyNoFallback(gang, &fix).empty();
}

std::optional<Fallback> Restarts::SeekFallback(const Gang& gang, const AdmissionRecord& record) {
  const bool started = !gang.bound.empty() || gang.facts.succeeded > 0 ||
                       std::ranges::any_of(gang.unbound, [&](const std::string& uid) {
                         return placement_.IsPinned(gang, uid);
                       });
  if (started || gang.unbound.empty() || !record.retry_after) return std::nullopt;
  const bool kueues = options_.quota == QuotaMode::kKueue;
  const std::vector<cluster::NodeSource> sources = NodeSourcesOf(gang);
  const auto next = cluster::NextOf(sources);
  Fallback fallback;
  std::string failed;
  if (next != sources.end() && !next->zone.empty()) {
    failed = "in zone " + sources.front().zone;
    fallback.other = "zone " + next->zone;
  } else {
    const std::set<std::string> flavors = kueues ? FailedInKueue(gang, record) : CarriedBy(gang);
    if (flavors.empty()) return std::nullopt;
    failed = fmt::format("on flavor {}", fmt::join(flavors, " and "));
    std::string flavor = next != sources.end() ? next->flavor : "";
    if (kueues) flavor = ChoiceWithout(*WorkloadOf(gang), record.flavors_tried).flavor;
    if (flavor.empty()) return std::nullopt;
    fallback.other = "flavor " + flavor;
  }
  fallback.why = fmt::format(
      "nodes for all members of gang {} didn't come {} within {} (attempt {}); {} {}",
      gang.key.ToString(), failed,
      absl::FormatDuration(absl::Trunc(record.deadline - record.admitted_at, absl::Seconds(1))),
      record.attempt, kueues ? "Kueue can give it" : "members made anew can use", fallback.other);
  fallback.why_not = WhyNoFallback(gang, &fallback.fix);
  return fallback;
}

std::set<std::string> Restarts::FailedWith(const Gang& gang) const {
  const std::string zone = provisioning_.CarriedZone(gang);
  if (zone.empty()) return FlavorsOf(gang);
  std::set<std::string> failed;
  const auto is_other = [&](const auto& each) { return each.is_open && each.zone != zone; };
  if (std::ranges::none_of(provisioning_.ZoneSourcesOf(gang), is_other)) failed = FlavorsOf(gang);
  failed.insert(ZoneTried(zone));
  return failed;
}

void Restarts::FindFallback(const Gang& gang) {
  const AdmissionRecord* record = records_.OwnOf(gang);
  const bool gave_up = gang.ours && record != nullptr && record->retry_after &&
                       (!quota_->Holds(gang) || quota_->IsShared(gang, true));
  std::vector<cluster::NodeSource> others;
  if (record != nullptr && gang.bound.empty() && options_.quota != QuotaMode::kKueue) {
    others = OtherFlavors(gang, record->flavors_tried);
  }
  Part* part = gave_up || !others.empty() ? &parts_[gang.id] : parts_.Find(gang.id);
  if (part == nullptr) return;
  part->other_flavors = std::move(others);
  part->fallback = gave_up ? SeekFallback(gang, *record) : std::nullopt;
}

// There is no reason to wait with a flavor that wasn't tried. Those that were stay so until the
// next attempt has had its time as well, or it would be their turn again before all others'.
void Restarts::NoteFallback(const Gang& gang, AdmissionRecord* record) {
  const absl::Time now = agenda_->now();
  const std::optional<Fallback> fallback = SeekFallback(gang, *record);
  if (!fallback || !fallback->why_not.empty()) return;
  const absl::Duration pause = *record->retry_after - now;
  const absl::Time until = now + 2 * pause + provisioning_.DeadlineOf(gang);
  for (auto& [name, tried] : record->flavors_tried) {
    if (tried > now) tried = std::max(tried, until);
  }
  record->retry_after = now;
}

void Restarts::Decide(const Gang& gang) {
  const std::optional<Fallback>& fallback = FallbackOf(gang);
  if (!fallback || !fallback->why_not.empty()) return;
  const Restarter restarter = RestarterOf(gang);
  if (restarter.job == nullptr || HasBegun(restarter)) return;
  const AdmissionRecord& record = *records_.Of(gang);
  Begin(gang, restarter, fallback->why, kube::TriedFlavors{record.attempt, record.flavors_tried});
}

Reason Restarts::WithFallback(const Gang& gang, Reason reason) const {
  const std::optional<Fallback>& fallback = FallbackOf(gang);
  if (!fallback) reason.message += KueueNote(gang);
  if (!fallback || fallback->why_not.empty()) return reason;
  reason.message +=
      fmt::format("; {} can't be used instead: {}", fallback->other, fallback->why_not);
  if (!fallback->fix.empty()) {
    reason.fix = fmt::format("to use {}: {}", fallback->other, fallback->fix);
  }
  return reason;
}

bool Restarts::RestartWhole(const Gang& gang, const std::string& why) {
  const Restarter restarter = RestarterOf(gang);
  // One that Kueue resumes might wait for quota first.
  if (restarter.job == nullptr || restarter.workload != nullptr) return false;
  if (!HasBegun(restarter) && Begin(gang, restarter, why, std::nullopt)) ++restarted_;
  return true;
}

void Restarts::Evict(const Gang& gang, bool posted) {
  if (quota_->NoteEviction(gang)) return;
  const Eviction* eviction = quota_->EvictionOf(gang);
  if (eviction == nullptr || (quota_->IsUnderQuota(gang) && !quota_->Holds(gang))) return;
  const bool surplus_only = eviction->surplus_only;
  const size_t kept = surplus_only ? gang.kept() : 0;
  std::vector<std::string> going;
  for (size_t i = kept; i < gang.bound.size(); ++i) going.push_back(gang.bound[i]);
  if (!surplus_only) {
    // One that is gated may stay. One that may be bound at any moment isn't waited for: it is
    // bound, or its pod is gone.
    std::ranges::copy_if(gang.unbound, std::back_inserter(going), [this](const std::string& uid) {
      return gangs_.MayBeBound(*snapshot_.FindPod(uid));
    });
    const kube::AnyJob* job = gangs_.JobOf(gang);
    const bool carries_flavors = job != nullptr && IsStartedByQuota(*job);
    if ((!going.empty() || carries_flavors) && RestartWhole(gang, eviction->why)) return;
  }
  for (const std::string& uid : going) {
    outbox_->Act(gang.id, "evict/" + uid, EvictPod{RefOf(*snapshot_.FindPod(uid))});
  }
  if (!going.empty() || gang.facts.terminating || posted || !quota_->Holds(gang)) return;
  if (surplus_only) {
    quota_->ReleaseSurplus(gang);
  } else {
    quota_->Release(gang);
  }
}

}  // namespace muster::coscheduling
