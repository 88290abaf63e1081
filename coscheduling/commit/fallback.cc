// Gangs whose members are made anew through their job: to use another flavor than the one that they
// carry, or because the gang must be restarted whole.
//
// Nothing is remembered here that matters. That a gang is to fall back follows from its record (it
// gave up, on these flavors), from what its members carry, and from its queue; that a job is to be
// resumed from its mark (job_restart.h).

#include <algorithm>
#include <utility>

#include "coscheduling/commit/job_restart.h"
#include "coscheduling/engine_state.h"
#include "coscheduling/gangs/pod_sets.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace muster::coscheduling {
namespace {

// How long a job is left alone after the API server refused to suspend it, or its user changed it
// while it was being restarted.
constexpr absl::Duration kLeftAlone = absl::Minutes(10);

constexpr std::string_view kByHand = "delete the gang's pods, so that they are made anew";

bool IsRestarting(const JobGangs::KnownJob& job) {
  return job.suspended && job.annotations.contains(kRestartAnnotation);
}

// The operator of a PyTorchJob makes pods of the same names again, so the old ones must all be
// gone; a Job keeps those that have ended.
bool IsLeft(const JobGangs::KnownJob& job, const kube::Pod& pod) {
  return job.kind == "PyTorchJob" || !pod.IsTerminal() || pod.IsDeleting();
}

SuspendJob Write(const JobGangs::KnownJob& job, std::optional<bool> suspend,
                 std::map<std::string, std::optional<std::string>> annotations) {
  return {std::string(job.api_version),
          std::string(job.kind),
          job.name_space,
          job.name,
          job.uid,
          job.resource_version,
          suspend,
          std::move(annotations)};
}

}  // namespace

// --- the job ---

const JobGangs::KnownJob* Engine::State::JobOf(const Gang& gang) const {
  for (const std::string& uid : gang.pods) {
    const kube::Pod* pod = snapshot.FindPod(uid);
    if (pod != nullptr) return jobs.OutermostOf(*pod);
  }
  if (gang.derived && !gang.derived->owner.uid.empty()) return jobs.Find(gang.derived->owner.uid);
  const kube::OwnerReference* owner =
      gang.group == nullptr ? nullptr : gang.group->meta.Controller();
  return owner == nullptr ? nullptr : jobs.Find(owner->uid);
}

std::vector<const kube::Pod*> Engine::State::PodsOf(const JobGangs::KnownJob& job) const {
  std::vector<const kube::Pod*> pods;
  for (const std::string& owner : jobs.Family(job.uid)) {
    const auto made = pods_of_owner.find(owner);
    if (made == pods_of_owner.end()) continue;
    for (const std::string& uid : made->second) {
      const kube::Pod* pod = snapshot.FindPod(uid);
      if (pod != nullptr) pods.push_back(pod);
    }
  }
  return pods;
}

int64_t Engine::State::PodsLeft(const JobGangs::KnownJob& job) const {
  return std::ranges::count_if(PodsOf(job),
                               [&](const kube::Pod* pod) { return IsLeft(job, *pod); });
}

// Another gang of the job that has started, or may do so at any moment.
std::string Engine::State::RunningBeside(const Gang& gang, const JobGangs::KnownJob& job) const {
  for (const kube::Pod* pod : PodsOf(job)) {
    if (gang.pods.contains(pod->meta.uid) || pod->IsTerminal()) continue;
    if (!pod->IsBound() && IsGatedByUs(*pod)) continue;
    const auto other = gang_of_pod.find(pod->meta.uid);
    return other == gang_of_pod.end() ? pod->meta.name : other->second->key.ToString();
  }
  return "";
}

Engine::State::Restarter Engine::State::RestarterOf(const Gang& gang) const {
  std::vector<std::string> live = gang.bound;
  live.insert(live.end(), gang.unbound.begin(), gang.unbound.end());
  const JobGangs::KnownJob* job = nullptr;
  for (const std::string& uid : live) {
    const JobGangs::KnownJob* own = jobs.OutermostOf(*snapshot.FindPod(uid));
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
  if (const auto left = left_alone.find(job->uid);
      left != left_alone.end() && clock < left->second.until) {
    return {nullptr, left->second.why, left->second.fix};
  }
  return {job, "", ""};
}

bool Engine::State::Restart(const JobGangs::KnownJob& job, const std::string& why,
                            const std::optional<TriedFlavors>& tried, absl::Time now) {
  const RestartMark mark = {now, why, job.generation + 1};
  std::map<std::string, std::optional<std::string>> annotations;
  annotations.emplace(kRestartAnnotation, EncodeMark(mark));
  if (tried) annotations.emplace(kTriedAnnotation, EncodeTried(*tried));
  return Act("restart/" + job.uid, now, Write(job, true, std::move(annotations)),
             NoteRefusedRestart(job, "to suspend " + job.Title(),
                                "let muster patch this kind of job "
                                "(deploy/base/rbac-muster.yaml)"));
}

InFlight::OnFinish Engine::State::NoteRefusedRestart(const JobGangs::KnownJob& job,
                                                     const std::string& what,
                                                     const std::string& fix) {
  return [this, uid = job.uid, what, fix](const absl::Status& status, absl::Time at) {
    if (status.ok()) {
      left_alone.erase(uid);
      return;
    }
    // What comes right by itself is tried again at once.
    if (status.code() != absl::StatusCode::kPermissionDenied &&
        status.code() != absl::StatusCode::kInvalidArgument) {
      return;
    }
    left_alone[uid] = {
        fmt::format("the API server refuses {}: {}", what, std::string(status.message())), fix,
        at + kLeftAlone};
    needs_pass = true;
    for (auto& [key, gang] : gangs) gang.dirty |= gang.fallback.has_value();
  };
}

void Engine::State::KeepRestarts(absl::Time now) {
  KeepWorkloads(now);
  if (restarting_seen != jobs.Restarting()) {
    std::vector<std::string> changed;
    std::ranges::set_symmetric_difference(restarting_seen, jobs.Restarting(),
                                          std::back_inserter(changed));
    restarting_seen = jobs.Restarting();
    for (auto& [key, gang] : gangs) {
      // Those with pods were told when their job changed.
      const JobGangs::KnownJob* job = gang.pods.empty() ? JobOf(gang) : nullptr;
      gang.dirty |= job != nullptr && std::ranges::count(changed, job->uid) > 0;
    }
  }
  for (const std::string& uid : restarting_seen) {
    const JobGangs::KnownJob& job = *jobs.Find(uid);
    if (job.going) continue;
    const RestartStep step = NextRestartStep(job, PodsLeft(job));
    if (step == RestartStep::kWait) continue;
    const std::optional<bool> suspend =
        step == RestartStep::kResume ? std::optional(false) : std::nullopt;
    if (step == RestartStep::kLeave) {
      left_alone[uid] = {
          fmt::format("{} was taken over by its user while it was being restarted", job.Title()),
          std::string(kByHand), now + kLeftAlone};
    }
    Act("restart/" + uid, now, Write(job, suspend, {{std::string(kRestartAnnotation), {}}}));
  }
}

Reason Engine::State::RestartBlocker(Gang& gang) {
  const JobGangs::KnownJob* job = JobOf(gang);
  if (job != nullptr && IsRestarting(*job)) {
    gang.remade_until = clock + options.repair_deadline;
    const std::string why = DecodeMark(*job->Annotation(kRestartAnnotation)).why;
    return {
        v1::JOB_RESTARTING,
        fmt::format("{} is suspended until its pods are gone, and then resumed; {} are left{}{}",
                    job->Title(), PodsLeft(*job), why.empty() ? "" : ": ", why),
        ""};
  }
  if (job != nullptr && IsKueues(gang, *job)) return KueueBlocker(gang, *job);
  if (job == nullptr || !gang.fallback || !gang.fallback->why_not.empty()) return {};
  return {v1::JOB_RESTARTING,
          fmt::format("{} is being suspended: {}", job->Title(), gang.fallback->why), ""};
}

// --- another flavor ---

TriedFlavors Engine::State::TriedBefore(const Gang& gang) const {
  const JobGangs::KnownJob* job = JobOf(gang);
  const std::string* text = job == nullptr ? nullptr : job->Annotation(kTriedAnnotation);
  if (const kube::Workload* given = job == nullptr ? nullptr : KueuesWorkloadOf(*job)) {
    text = given->meta.Annotation(kTriedAnnotation);
  }
  std::optional<TriedFlavors> tried = DecodeTried(text == nullptr ? "" : *text);
  if (!tried) return {0, {}};
  std::erase_if(tried->flavors, [this](const auto& each) { return each.second <= clock; });
  if (tried->flavors.empty()) tried->attempt = 0;
  return *tried;
}

// One that members made anew could use and that hasn't been tried; "" if there is none.
std::string Engine::State::NextFlavor(const Gang& gang,
                                      const std::map<std::string, absl::Time>& tried) {
  if (!UsesQuota()) return "";
  quota::Workload workload = WorkloadOf(gang);
  std::map<std::string, std::set<std::string>> carried;  // by pod set
  for (const std::string& uid : gang.unbound) {
    const kube::Pod& pod = *snapshot.FindPod(uid);
    const auto set = std::ranges::find(workload.pod_sets, PodSetOf(pod), &quota::PodSet::name);
    if (set == workload.pod_sets.end() || carried.contains(set->name)) continue;
    std::vector<const kube::ResourceFlavor*> flavors;
    for (const std::string& name : carried[set->name] = CarriedFlavors(pod)) {
      if (const kube::ResourceFlavor* flavor = quotas.FindFlavor(name)) flavors.push_back(flavor);
    }
    std::optional<kube::PodSpec> spec = SpecBeforeFlavors(pod, flavors);
    if (!spec) return "";
    set->spec = std::make_shared<const kube::PodSpec>(*std::move(spec));
  }
  for (const quota::PodSet& set : workload.pod_sets) {
    for (const std::string& name : carried[set.name]) {
      for (const kube::ResourceFlavor* other : quotas.OtherFlavors(workload, set.name, name)) {
        const auto until = tried.find(other->meta.name);
        if (until != tried.end() && clock < until->second) continue;
        if (WhyNoNodesOf(set, *other).empty()) return other->meta.name;
      }
    }
  }
  return "";
}

std::string Engine::State::WhyNoFallback(const Gang& gang, std::string* fix) const {
  std::vector<std::string> policies;
  if (gang.group != nullptr) {
    if (const std::string* value = gang.group->meta.Annotation(kFallbackAnnotation)) {
      policies.push_back(*value);
    }
  }
  for (const std::string& uid : gang.unbound) {
    const kube::Pod& pod = *snapshot.FindPod(uid);
    const std::string* value = pod.meta.Annotation(kFallbackAnnotation);
    policies.push_back(value == nullptr ? jobs.OwnersAnnotation(pod, kFallbackAnnotation) : *value);
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

std::string Engine::State::WhatFailed(const Gang& gang, const AdmissionRecord& record,
                                      const std::set<std::string>& flavors) {
  return fmt::format(
      "nodes for all members of gang {} didn't come on flavor {} within {} (attempt {})",
      gang.key.ToString(), fmt::join(flavors, " and "),
      absl::FormatDuration(absl::Trunc(record.deadline - record.admitted_at, absl::Seconds(1))),
      record.attempt);
}

std::optional<Fallback> Engine::State::FallbackOf(const Gang& gang, const AdmissionRecord& record) {
  const bool started = !gang.bound.empty() || !gang.posted.empty() || gang.facts.succeeded > 0 ||
                       std::ranges::any_of(gang.unbound, [&](const std::string& uid) {
                         return IsCommitted(gang, uid);
                       });
  if (started || gang.unbound.empty() || !record.retry_after) return std::nullopt;
  if (options.quota == QuotaMode::kKueue) return FallbackInKueue(gang, record);
  std::set<std::string> carried;
  for (const std::string& uid : gang.unbound) carried.merge(CarriedFlavors(*snapshot.FindPod(uid)));
  if (carried.empty()) return std::nullopt;
  Fallback fallback;
  fallback.flavor = NextFlavor(gang, record.flavors_tried);
  if (fallback.flavor.empty()) return std::nullopt;
  fallback.why = fmt::format("{}; members made anew can use flavor {}",
                             WhatFailed(gang, record, carried), fallback.flavor);
  fallback.why_not = WhyNoFallback(gang, &fallback.fix);
  return fallback;
}

void Engine::State::FindFallback(Gang& gang) {
  const bool gave_up = gang.ours && gang.record && gang.record->uid == gang.uid() &&
                       gang.record->retry_after && !gang.record->quota;
  gang.fallback = gave_up ? FallbackOf(gang, *gang.record) : std::nullopt;
}

// There is no reason to wait with a flavor that wasn't tried. Those that were stay so until the
// next attempt has had its time as well, or it would be their turn again before all others'.
void Engine::State::NoteFallback(const Gang& gang, AdmissionRecord* record, absl::Time now) {
  const std::optional<Fallback> fallback = FallbackOf(gang, *record);
  if (!fallback || !fallback->why_not.empty()) return;
  const absl::Duration pause = *record->retry_after - now;
  const absl::Time until = now + 2 * pause + DeadlineOf(gang);
  for (auto& [name, tried] : record->flavors_tried) {
    if (tried > now) tried = std::max(tried, until);
  }
  record->retry_after = now;
}

void Engine::State::DecideFallback(Gang& gang, absl::Time now) {
  if (!gang.fallback || !gang.fallback->why_not.empty()) return;
  const Restarter restarter = RestarterOf(gang);
  if (restarter.job == nullptr) return;
  const TriedFlavors tried = {gang.record->attempt, gang.record->flavors_tried};
  if (restarter.workload != nullptr) {
    GiveBack(*restarter.job, *restarter.workload, gang.fallback->why, tried, now);
  } else if (!IsRestarting(*restarter.job)) {
    Restart(*restarter.job, gang.fallback->why, tried, now);
  }
}

Reason Engine::State::WithFallback(const Gang& gang, Reason reason) const {
  if (!gang.fallback) reason.message += KueueNote(gang);
  if (!gang.fallback || gang.fallback->why_not.empty()) return reason;
  reason.message += fmt::format("; flavor {} can't be used instead: {}", gang.fallback->flavor,
                                gang.fallback->why_not);
  if (!gang.fallback->fix.empty()) {
    reason.fix = fmt::format("to use flavor {}: {}", gang.fallback->flavor, gang.fallback->fix);
  }
  return reason;
}

// --- whole ---

// False if its job can't do it.
bool Engine::State::RestartWhole(const Gang& gang, const std::string& why, absl::Time now) {
  const Restarter restarter = RestarterOf(gang);
  // One that Kueue resumes might wait for quota first.
  if (restarter.job == nullptr || restarter.workload != nullptr) return false;
  if (!IsRestarting(*restarter.job) && Restart(*restarter.job, why, std::nullopt, now)) {
    ++stats.gangs_restarted;
  }
  return true;
}

}  // namespace muster::coscheduling
