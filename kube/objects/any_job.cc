#include "kube/objects/any_job.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <set>

#include "fmt/format.h"

namespace muster::kube {
namespace {

constexpr std::string_view kCronJob = "CronJob";

struct JobKind {
  std::string_view kind;
  std::string_view api_version;
};
constexpr std::array<JobKind, 5> kJobKinds = {{{kJobKind, "batch/v1"},
                                               {kStatefulSetKind, "apps/v1"},
                                               {kJobSetKind, "jobset.x-k8s.io/v1alpha2"},
                                               {kPyTorchJobKind, "kubeflow.org/v1"},
                                               {kTrainJobKind, "trainer.kubeflow.org/v1alpha1"}}};

std::string_view GroupOf(std::string_view api_version) {
  const size_t slash = api_version.find('/');
  return slash == std::string_view::npos ? "" : api_version.substr(0, slash);
}

std::string_view ApiVersionOf(std::string_view kind) {
  const auto* known = std::ranges::find(kJobKinds, kind, &JobKind::kind);
  return known == kJobKinds.end() ? "" : known->api_version;
}

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, {}, [](unsigned char c) { return std::tolower(c); },
      [](unsigned char c) { return std::tolower(c); });
}

int64_t AtOnce(const JobSpec& spec) {
  return spec.completions ? std::min(spec.parallelism, *spec.completions) : spec.parallelism;
}

AnyJob Begin(std::string_view kind, const ObjectMeta& meta, const std::string& error) {
  AnyJob job;
  job.kind = kind;
  job.api_version = ApiVersionOf(kind);
  job.generation = meta.generation;
  job.name_space = meta.name_space;
  job.name = meta.name;
  job.uid = meta.uid;
  job.resource_version = meta.resource_version;
  job.created = meta.creation_time;
  job.labels = meta.labels;
  job.annotations = meta.annotations;
  job.going = meta.deletion_time.has_value();
  job.fault = error;
  if (const std::string* name = meta.Label(kReplicatedJobLabel)) job.replicated_job = *name;
  const OwnerReference* owner = meta.Controller();
  const std::string_view parent = kind == kJobKind      ? kJobSetKind
                                  : kind == kJobSetKind ? kTrainJobKind
                                                        : "";
  if (owner != nullptr && owner->kind == parent && IsAnyJob(*owner)) {
    job.parent = *owner;
  } else if (owner != nullptr && owner->kind != kCronJob) {
    job.foreign_owner = fmt::format("{} {}/{}", owner->kind, meta.name_space, owner->name);
  }
  return job;
}

}  // namespace

std::string AnyJob::Title() const { return fmt::format("{} {}/{}", kind, name_space, name); }

const std::string* AnyJob::Annotation(std::string_view key) const {
  const auto it = annotations.find(key);
  return it == annotations.end() ? nullptr : &it->second;
}

AnyJob ToAnyJob(const Job& job) {
  AnyJob any = Begin(kJobKind, job.meta, job.error);
  any.suspended = job.spec.suspend;
  any.finished = job.finished;
  const int64_t count = AtOnce(job.spec);
  any.parts.push_back({{}, job.meta.name, count, count, {{"", job.spec.scheduler_name}}});
  return any;
}

AnyJob ToAnyJob(const StatefulSet& set) {
  AnyJob any = Begin(kStatefulSetKind, set.meta, set.error);
  const int64_t at_once = set.parallel ? set.replicas : std::min<int64_t>(set.replicas, 1);
  if (!set.parallel) {
    any.one_by_one =
        "spec.podManagementPolicy is OrderedReady, so its pods are made one after the other, each "
        "once the one before is ready";
  }
  any.parts.push_back({{}, set.meta.name, at_once, set.replicas, {{"", set.scheduler_name}}});
  return any;
}

AnyJob ToAnyJob(const JobSet& set) {
  AnyJob any = Begin(kJobSetKind, set.meta, set.error);
  any.suspended = set.suspend;
  any.finished = set.finished;
  // Those that wait for the same start at the same moment.
  std::vector<std::set<std::string>> waits_for;
  for (const ReplicatedJob& job : set.replicated_jobs) {
    std::set<std::string> conditions(job.depends_on.begin(), job.depends_on.end());
    if (set.in_order) conditions.insert("before " + job.name);
    auto at = std::ranges::find(waits_for, conditions);
    if (at == waits_for.end()) {
      at = waits_for.insert(at, std::move(conditions));
      any.parts.emplace_back().name = fmt::format("{}-{}", set.meta.name, job.name);
    }
    AnyJob::Part& part = any.parts[static_cast<size_t>(at - waits_for.begin())];
    part.replicated_jobs.push_back(job.name);
    part.schedulers.push_back({job.name, job.spec.scheduler_name});
    // Both factors are below 2^31.
    if (__builtin_add_overflow(part.at_once, job.replicas * AtOnce(job.spec), &part.at_once)) {
      part.at_once = std::numeric_limits<int64_t>::max();
    }
    part.fewest = part.at_once;
  }
  if (any.parts.size() == 1) any.parts.front().name = set.meta.name;
  return any;
}

AnyJob ToAnyJob(const PyTorchJob& job) {
  AnyJob any = Begin(kPyTorchJobKind, job.meta, job.error);
  any.suspended = job.suspend;
  any.finished = job.finished;
  any.schedule_timeout_seconds = job.schedule_timeout_seconds;
  AnyJob::Part part;
  part.name = job.meta.name;
  for (const ReplicaType& type : job.replica_types) {
    part.at_once += type.replicas;  // two types at most, each below 2^31
    const bool elastic = job.elastic_min_replicas && EqualsIgnoringCase(type.name, "Worker");
    part.fewest += elastic ? std::min(type.replicas, *job.elastic_min_replicas) : type.replicas;
    part.schedulers.push_back({type.name, type.scheduler_name});
  }
  if (job.min_available && *job.min_available > 0) part.fewest = *job.min_available;
  any.parts.push_back(std::move(part));
  return any;
}

AnyJob ToAnyJob(const TrainJob& job) {
  AnyJob any = Begin(kTrainJobKind, job.meta, job.error);
  any.suspended = job.suspend;
  any.finished = job.finished;
  return any;
}

bool IsAnyJob(const OwnerReference& owner) {
  const std::string_view api_version = ApiVersionOf(owner.kind);
  return !api_version.empty() && GroupOf(api_version) == GroupOf(owner.api_version);
}

}  // namespace muster::kube
