// With `quota: kueue`: a gang that gave up on the flavor that Kueue gave it is given back to Kueue,
// so that it gets another one.
//
// Kueue evicts a Workload whose spec.active is false (it suspends the job, and takes back the quota
// once no pod is left) and queues it again once it is true. By then its pod sets ask for the other
// flavors (quota/flavor_terms.h). The first patch carries the mark of job_restart.h, the second
// takes it off, so whoever leads goes on from the Workload alone. One that is inactive without the
// mark is its user's.

#include <algorithm>
#include <utility>

#include "coscheduling/commit/restarts.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kube/objects/job_restart.h"
#include "quota/flavor_terms.h"

namespace muster::coscheduling {
namespace {

// Nobody waits for Workloads to be observed, as the right to read them may be missing.
constexpr absl::Duration kWorkloadWait = absl::Seconds(10);

bool HasMark(const kube::Workload& workload) {
  return workload.meta.Annotation(kube::kRestartAnnotation) != nullptr;
}

std::optional<kube::TriedFlavors> TriedBy(const kube::Workload& workload) {
  const std::string* text = workload.meta.Annotation(kube::kTriedAnnotation);
  return text == nullptr ? std::nullopt : kube::DecodeTried(*text);
}

}  // namespace

bool Restarts::IsGivenBack(const kube::Workload& workload) {
  return !workload.active && HasMark(workload);
}

const kube::Workload* Restarts::WorkloadOf(const Gang& gang) const {
  const kube::AnyJob* job = gangs_.JobOf(gang);
  return job == nullptr ? nullptr : WorkloadOf(*job);
}

bool Restarts::IsKueues(const Gang& gang, const kube::AnyJob& job) const {
  return options_.quota == QuotaMode::kKueue &&
         (!gang.queue_name.empty() || workloads_.AnyOfJob(job.Key()));
}

bool Restarts::AwaitsWorkload(const Gang& gang) {
  const AdmissionRecord* record = records_.Of(gang);
  if (!GivesBackToKueue() || record == nullptr || !record->retry_after ||
      record->flavors_tried.empty() || agenda_->now() >= began_ + kWorkloadWait) {
    return false;
  }
  const kube::AnyJob* job = gangs_.JobOf(gang);
  if (job == nullptr || workloads_.AnyOfJob(job->Key())) return false;
  agenda_->NoteAt(gang.id, began_ + kWorkloadWait);
  return true;
}

std::set<std::string> Restarts::FlavorsOf(const Gang& gang) const {
  std::set<std::string> flavors = quota_->FlavorsOf(gang);
  const kube::Workload* workload = WorkloadOf(gang);
  if (workload == nullptr || !workload->reserved) return flavors;
  for (const kube::Workload::Reserved& set : workload->reserved_sets) {
    for (const auto& [resource, flavor] : set.flavors) flavors.insert(flavor);
  }
  return flavors;
}

Restarter Restarts::RestarterThroughKueue(const kube::AnyJob& job) const {
  const std::string title = job.Title();
  if (!options_.kueue_fallback) {
    return {nullptr, fmt::format("Kueue decides when {} is suspended", title),
            "turn on engine.kueueFallback"};
  }
  const kube::Workload* workload = WorkloadOf(job);
  if (workload == nullptr) {
    return {nullptr, fmt::format("Kueue's Workload of {} isn't known", title),
            std::string(kWorkloadRights)};
  }
  if (IsGivenBack(*workload)) return {&job, "", "", workload};
  const std::string name = "Workload " + workload->meta.FullName();
  if (!workload->error.empty()) return {nullptr, name + ": " + workload->error, ""};
  if (!workload->active) return {nullptr, name + " isn't active", "set its spec.active to true"};
  if (!workload->reserved || workload->evicted) {
    return {nullptr, fmt::format("Kueue is taking back the quota of {}", name), ""};
  }
  return {&job, "", "", workload};
}

quota::OtherChoice Restarts::ChoiceWithout(const kube::Workload& workload,
                                           const kube::TriedFlavors::Until& tried) {
  std::set<std::string> without;
  for (const auto& [name, until] : tried) {
    if (WasTried(tried, name)) without.insert(name);
  }
  return quota_->ChoiceWithout(workload, without, [this](const auto& set, const auto& flavor) {
    return placeability_->WhyNoNodesOf(set, flavor).empty();
  });
}

// Of what Kueue gave it now. Only the attempt that used that says anything about it.
std::set<std::string> Restarts::FailedInKueue(const Gang& gang,
                                              const AdmissionRecord& record) const {
  const kube::Workload* workload = WorkloadOf(gang);
  if (workload == nullptr) return {};
  const std::optional<kube::TriedFlavors> before = TriedBy(*workload);
  const bool given_back = IsGivenBack(*workload);
  if (!given_back && before && before->attempt >= record.attempt) return {};
  std::set<std::string> failed = FlavorsOf(gang);
  std::erase_if(failed,
                [&](const std::string& name) { return !WasTried(record.flavors_tried, name); });
  return failed;
}

void Restarts::KeepWorkload(const kube::Workload& workload) {
  if (workload.finished || workload.meta.deletion_time || !workload.error.empty()) return;
  const kube::AnyJob* job = gangs_.jobs().FindOwner(workload.meta);
  if (job == nullptr || job->going) return;
  const std::string target = "restart/" + job->uid;
  const kube::TriedFlavors tried = TriedBy(workload).value_or(kube::TriedFlavors());
  if (IsGivenBack(workload)) {
    // Its pod sets can't be changed while it has quota.
    if (workload.reserved || PodsLeft(*job) > 0) return;
    PatchWorkload patch =
        Workloads::Patch(workload, true, {{std::string(kube::kRestartAnnotation), {}}});
    patch.pod_sets = ChoiceWithout(workload, tried.flavors).pod_sets;
    outbox_->Act(target, std::move(patch));
    return;
  }
  if (HasMark(workload)) {
    outbox_->Act(target,
                 Workloads::Patch(workload, {}, {{std::string(kube::kRestartAnnotation), {}}}));
    return;
  }
  // While it waits for quota of the others, those that were tried come into question again.
  const bool restricted = std::ranges::any_of(workload.pod_sets, [](const auto& set) {
    return quota::IsRestricted(set.spec->affinity.required_node_terms);
  });
  if (workload.reserved || !restricted) return;
  absl::Time until = absl::InfinitePast();
  for (const auto& [name, at] : tried.flavors) until = std::max(until, at);
  if (agenda_->now() < until) {
    agenda_->WakeAt(until);
    return;
  }
  PatchWorkload patch = Workloads::Patch(workload, {}, {});
  patch.pod_sets = ChoiceWithout(workload, {}).pod_sets;
  outbox_->Act(target, std::move(patch));
}

Reason Restarts::KueueBlocker(const Gang& gang, const kube::AnyJob& job) const {
  const kube::Workload* workload = WorkloadOf(job);
  if (workload == nullptr) return {};
  if (IsGivenBack(*workload)) {
    return {v1::JOB_RESTARTING,
            fmt::format("{} is given back to Kueue for another flavor; {} of its pods are left: {}",
                        job.Title(), PodsLeft(job),
                        kube::DecodeMark(*workload->meta.Annotation(kube::kRestartAnnotation)).why),
            ""};
  }
  const std::optional<Fallback>& fallback = FallbackOf(gang);
  if (fallback && fallback->why_not.empty()) {
    return {v1::JOB_RESTARTING,
            fmt::format("{} is being given back to Kueue: {}", job.Title(), fallback->why), ""};
  }
  const std::optional<kube::TriedFlavors> tried = TriedBy(*workload);
  if (!tried || tried->flavors.empty() || workload->reserved || gang.facts.live > 0) return {};
  std::vector<std::string> names;
  for (const auto& [name, until] : tried->flavors) names.push_back(name);
  return {v1::JOB_RESTARTING,
          fmt::format("{} waits in Kueue for another flavor than {}, whose nodes didn't come",
                      job.Title(), fmt::join(names, " and ")),
          ""};
}

std::string Restarts::KueueNote(const Gang& gang) const {
  const kube::AnyJob* job = options_.quota == QuotaMode::kKueue ? gangs_.JobOf(gang) : nullptr;
  if (job == nullptr || !IsKueues(gang, *job)) return "";
  if (!options_.kueue_fallback) {
    return "; it stays on the flavor that Kueue gave it (engine.kueueFallback is off)";
  }
  if (WorkloadOf(*job) == nullptr) {
    return fmt::format("; Kueue's Workload of {} isn't known, so it keeps its flavor",
                       job->Title());
  }
  return "; its queue in Kueue has no other flavor for it that wasn't tried";
}

}  // namespace muster::coscheduling
