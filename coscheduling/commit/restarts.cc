#include "coscheduling/commit/restarts.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "quota/pod_sets.h"

namespace muster::coscheduling {
namespace {

// How long a job is left alone after the API server refused to suspend it, or its user changed it
// while it was being restarted.
constexpr absl::Duration kLeftAlone = absl::Minutes(10);

constexpr std::string_view kByHand = "delete the gang's pods, so that they are made anew";

bool IsRestarting(const kube::AnyJob& job) {
  return job.suspended && job.annotations.contains(kRestartAnnotation);
}

// The operator of a PyTorchJob makes pods of the same names again, so the old ones must all be
// gone; a Job keeps those that have ended.
bool IsLeft(const kube::AnyJob& job, const kube::Pod& pod) {
  return job.kind == "PyTorchJob" || !pod.IsTerminal() || pod.IsDeleting();
}

SuspendJob Write(const kube::AnyJob& job, std::optional<bool> suspend,
                 std::map<std::string, std::optional<std::string>> annotations) {
  return {std::string(job.api_version), std::string(job.kind),
          ObjectRef{job.name_space, job.name, job.uid, job.resource_version}, suspend,
          std::move(annotations)};
}

}  // namespace

// --- the job ---

const std::optional<Fallback>& Restarts::FallbackOf(const Gang& gang) const {
  static const std::optional<Fallback> kNone;
  const auto it = parts_.find(gang.id);
  return it == parts_.end() ? kNone : it->second.fallback;
}

bool Restarts::WasRemade(const Gang& gang) const {
  const auto it = parts_.find(gang.id);
  return it != parts_.end() && agenda_->now() < it->second.remade_until;
}

int64_t Restarts::PodsLeft(const kube::AnyJob& job) const {
  return std::ranges::count_if(gangs_.PodsOf(job),
                               [&](const kube::Pod* pod) { return IsLeft(job, *pod); });
}

// Another gang of the job that has started, or may do so at any moment.
std::string Restarts::RunningBeside(const Gang& gang, const kube::AnyJob& job) const {
  for (const kube::Pod* pod : gangs_.PodsOf(job)) {
    if (gang.pods.contains(pod->meta.uid) || pod->IsTerminal()) continue;
    if (!pod->IsBound() && IsGatedByUs(*pod)) continue;
    const Gang* other = gangs_.OfPod(pod->meta.uid);
    return other == nullptr ? pod->meta.name : other->key.ToString();
  }
  return "";
}

Restarter Restarts::RestarterOf(const Gang& gang) const {
  std::vector<std::string> live = gang.bound;
  live.insert(live.end(), gang.unbound.begin(), gang.unbound.end());
  const kube::AnyJob* job = nullptr;
  for (const std::string& uid : live) {
    const kube::AnyJob* own = gangs_.jobs().OutermostOf(*snapshot_.FindPod(uid));
    if (own == nullptr) {
      return {nullptr, "its members are pods that no job makes anew", std::string(kByHand)};
    }
    if (job != nullptr && job != own) {
      return {nullptr, fmt::format("{} and {} both make members", job->Title(), own->Title()),
              std::string(kByHand)};
    }
    job = own;
  }
  if (job == nullptr || job->going) return {nullptr, "its job is gone", ""};
  if (IsKueues(gang, *job)) return RestarterThroughKueue(gang, *job);
  if (IsRestarting(*job)) return {job, "", ""};
  const std::string title = job->Title();
  if (job->kind == "StatefulSet") {
    return {nullptr, title + " can't be suspended", std::string(kByHand)};
  }
  if (job->suspended) return {nullptr, title + " is suspended already", "resume it"};
  if (!job->foreign_owner.empty()) {
    return {
        nullptr,
        fmt::format("{} belongs to {}, which may not want it suspended", title, job->foreign_owner),
        std::string(kByHand)};
  }
  if (const std::string other = RunningBeside(gang, *job); !other.empty()) {
    return {nullptr, fmt::format("{} runs {} as well", title, other), std::string(kByHand)};
  }
  if (const auto left = left_alone_.find(job->uid);
      left != left_alone_.end() && agenda_->now() < left->second.until) {
    return {nullptr, left->second.why, left->second.fix};
  }
  return {job, "", ""};
}

bool Restarts::Restart(const kube::AnyJob& job, const std::string& why,
                       const std::optional<TriedFlavors>& tried) {
  const RestartMark mark = {agenda_->now(), why, job.generation + 1};
  std::map<std::string, std::optional<std::string>> annotations;
  annotations.emplace(kRestartAnnotation, EncodeMark(mark));
  if (tried) annotations.emplace(kTriedAnnotation, EncodeTried(*tried));
  return outbox_->Act("restart/" + job.uid, Write(job, true, std::move(annotations)),
                      NoteRefusal(job, "to suspend " + job.Title(),
                                  "let muster patch this kind of job "
                                  "(deploy/base/rbac-muster.yaml)"));
}

Outbox::OnFinish Restarts::NoteRefusal(const kube::AnyJob& job, const std::string& what,
                                       const std::string& fix) {
  return [this, uid = job.uid, what, fix](const absl::Status& status, absl::Time at) {
    if (status.ok()) {
      left_alone_.erase(uid);
      return;
    }
    // What comes right by itself is tried again at once.
    if (status.code() != absl::StatusCode::kPermissionDenied &&
        status.code() != absl::StatusCode::kInvalidArgument) {
      return;
    }
    left_alone_[uid] = {
        fmt::format("the API server refuses {}: {}", what, std::string(status.message())), fix,
        at + kLeftAlone};
    for (const auto& [gang, part] : parts_) {
      if (part.fallback) agenda_->Note(gang);
    }
  };
}

void Restarts::KeepGoing() {
  began_ = std::min(began_, agenda_->now());
  KeepWorkloads();
  const std::set<std::string>& restarting = gangs_.jobs().Restarting();
  if (restarting.empty() && restarting_seen_.empty()) return;
  if (restarting_seen_ != restarting) {
    std::vector<std::string> changed;
    std::ranges::set_symmetric_difference(restarting_seen_, restarting,
                                          std::back_inserter(changed));
    restarting_seen_ = restarting;
    for (const std::string& uid : changed) {
      const kube::AnyJob* job = gangs_.jobs().Find(uid);
      if (job == nullptr) continue;
      for (GangId gang : gangs_.GangsOf(*job)) agenda_->Note(gang);
    }
  }
  for (const std::string& uid : restarting_seen_) {
    const kube::AnyJob& job = *gangs_.jobs().Find(uid);
    if (job.going) continue;
    const RestartStep step = NextRestartStep(job, PodsLeft(job));
    if (step == RestartStep::kWait) continue;
    const std::optional<bool> suspend =
        step == RestartStep::kResume ? std::optional(false) : std::nullopt;
    if (step == RestartStep::kLeave) {
      left_alone_[uid] = {
          fmt::format("{} was taken over by its user while it was being restarted", job.Title()),
          std::string(kByHand), agenda_->now() + kLeftAlone};
    }
    outbox_->Act("restart/" + uid, Write(job, suspend, {{std::string(kRestartAnnotation), {}}}));
  }
}

Reason Restarts::Blocker(const Gang& gang) {
  const kube::AnyJob* job = gangs_.JobOf(gang);
  if (job != nullptr && IsRestarting(*job)) {
    parts_[gang.id].remade_until = agenda_->now() + options_.repair_deadline;
    const std::string why = DecodeMark(*job->Annotation(kRestartAnnotation)).why;
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

// --- another flavor ---

TriedFlavors Restarts::TriedBefore(const Gang& gang) const {
  const kube::AnyJob* job = gangs_.JobOf(gang);
  const std::string* text = job == nullptr ? nullptr : job->Annotation(kTriedAnnotation);
  if (const kube::Workload* given = job == nullptr ? nullptr : WorkloadOf(*job)) {
    text = given->meta.Annotation(kTriedAnnotation);
  }
  std::optional<TriedFlavors> tried = DecodeTried(text == nullptr ? "" : *text);
  if (!tried) return {0, {}};
  std::erase_if(tried->flavors, [this](const auto& each) { return each.second <= agenda_->now(); });
  if (tried->flavors.empty()) tried->attempt = 0;
  return *tried;
}

// One that members made anew could use and that hasn't been tried; "" if there is none.
std::string Restarts::NextFlavor(const Gang& gang, const std::map<std::string, absl::Time>& tried) {
  if (!quota_->InUse()) return "";
  quota::Workload workload = quota_->WorkloadOf(gang);
  std::map<std::string, std::set<std::string>> carried;  // by pod set
  for (const std::string& uid : gang.unbound) {
    const kube::Pod& pod = *snapshot_.FindPod(uid);
    const auto set =
        std::ranges::find(workload.pod_sets, quota::PodSetOf(pod), &quota::PodSet::name);
    if (set == workload.pod_sets.end() || carried.contains(set->name)) continue;
    std::vector<const kube::ResourceFlavor*> flavors;
    for (const std::string& name : carried[set->name] = quota::CarriedFlavors(pod)) {
      if (const kube::ResourceFlavor* flavor = quota_->scheduler().FindFlavor(name))
        flavors.push_back(flavor);
    }
    std::optional<kube::PodSpec> spec = quota::SpecBeforeFlavors(pod, flavors);
    if (!spec) return "";
    set->spec = std::make_shared<const kube::PodSpec>(*std::move(spec));
  }
  for (const quota::PodSet& set : workload.pod_sets) {
    for (const std::string& name : carried[set.name]) {
      for (const kube::ResourceFlavor* other : quota_->OtherFlavors(workload, set.name, name)) {
        const auto until = tried.find(other->meta.name);
        if (until != tried.end() && agenda_->now() < until->second) continue;
        if (placeability_->WhyNoNodesOf(set, *other).empty()) return other->meta.name;
      }
    }
  }
  return "";
}

std::string Restarts::WhyNoFallback(const Gang& gang, std::string* fix) const {
  std::vector<std::string> policies;
  if (gang.group != nullptr) {
    if (const std::string* value = gang.group->meta.Annotation(kFallbackAnnotation)) {
      policies.push_back(*value);
    }
  }
  for (const std::string& uid : gang.unbound) {
    const kube::Pod& pod = *snapshot_.FindPod(uid);
    const std::string* value = pod.meta.Annotation(kFallbackAnnotation);
    policies.push_back(value == nullptr ? gangs_.jobs().OwnersAnnotation(pod, kFallbackAnnotation)
                                        : *value);
  }
  for (const std::string& policy : policies) {
    if (std::string why = WhyFallbackIsOff(policy); !why.empty()) {
      *fix = fmt::format("remove annotation {}, or delete the gang's pods", kFallbackAnnotation);
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
  return record != nullptr && !NextFlavor(gang, record->flavors_tried).empty() &&
         WhyNoFallback(gang, &fix).empty();
}

std::string WhatFailed(const Gang& gang, const AdmissionRecord& record,
                       const std::set<std::string>& flavors) {
  return fmt::format(
      "nodes for all members of gang {} didn't come on flavor {} within {} (attempt {})",
      gang.key.ToString(), fmt::join(flavors, " and "),
      absl::FormatDuration(absl::Trunc(record.deadline - record.admitted_at, absl::Seconds(1))),
      record.attempt);
}

std::optional<Fallback> Restarts::SeekFallback(const Gang& gang, const AdmissionRecord& record) {
  const bool started = !gang.bound.empty() || gang.facts.succeeded > 0 ||
                       std::ranges::any_of(gang.unbound, [&](const std::string& uid) {
                         return placement_.IsPinned(gang, uid);
                       });
  if (started || gang.unbound.empty() || !record.retry_after) return std::nullopt;
  if (options_.quota == QuotaMode::kKueue) return FallbackInKueue(gang, record);
  std::set<std::string> carried;
  for (const std::string& uid : gang.unbound)
    carried.merge(quota::CarriedFlavors(*snapshot_.FindPod(uid)));
  if (carried.empty()) return std::nullopt;
  Fallback fallback;
  fallback.flavor = NextFlavor(gang, record.flavors_tried);
  if (fallback.flavor.empty()) return std::nullopt;
  fallback.why = fmt::format("{}; members made anew can use flavor {}",
                             WhatFailed(gang, record, carried), fallback.flavor);
  fallback.why_not = WhyNoFallback(gang, &fallback.fix);
  return fallback;
}

void Restarts::FindFallback(const Gang& gang) {
  const AdmissionRecord* record = records_.OwnOf(gang);
  const bool gave_up = gang.ours && record != nullptr && record->retry_after && !record->quota;
  if (gave_up) {
    parts_[gang.id].fallback = SeekFallback(gang, *record);
  } else if (const auto it = parts_.find(gang.id); it != parts_.end()) {
    it->second.fallback.reset();
  }
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
  if (restarter.job == nullptr) return;
  const AdmissionRecord& record = *records_.Of(gang);
  const TriedFlavors tried = {record.attempt, record.flavors_tried};
  bool started = false;
  if (restarter.workload != nullptr) {
    started = GiveBack(*restarter.job, *restarter.workload, fallback->why, tried);
  } else if (!IsRestarting(*restarter.job)) {
    started = Restart(*restarter.job, fallback->why, tried);
  }
  // What can't be asked now is asked again.
  if (!started) outbox_->MayAct(gang.id, "restart/" + restarter.job->uid);
}

Reason Restarts::WithFallback(const Gang& gang, Reason reason) const {
  const std::optional<Fallback>& fallback = FallbackOf(gang);
  if (!fallback) reason.message += KueueNote(gang);
  if (!fallback || fallback->why_not.empty()) return reason;
  reason.message +=
      fmt::format("; flavor {} can't be used instead: {}", fallback->flavor, fallback->why_not);
  if (!fallback->fix.empty()) {
    reason.fix = fmt::format("to use flavor {}: {}", fallback->flavor, fallback->fix);
  }
  return reason;
}

// --- whole ---

bool Restarts::RestartWhole(const Gang& gang, const std::string& why) {
  const Restarter restarter = RestarterOf(gang);
  // One that Kueue resumes might wait for quota first.
  if (restarter.job == nullptr || restarter.workload != nullptr) return false;
  if (IsRestarting(*restarter.job)) return true;
  if (Restart(*restarter.job, why, std::nullopt)) {
    ++restarted_;
  } else {
    outbox_->MayAct(gang.id, "restart/" + restarter.job->uid);
  }
  return true;
}

}  // namespace muster::coscheduling
