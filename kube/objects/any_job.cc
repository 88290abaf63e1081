#include "kube/objects/any_job.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <set>

#include "fmt/format.h"
#include "kube/objects/decode.h"

namespace muster::kube {
namespace {

constexpr std::string_view kCronJob = "CronJob";

// Of a PyTorchJob.
constexpr std::string_view kMaster = "Master";
// Of an MPIJob.
constexpr std::string_view kLauncher = "Launcher";
constexpr std::string_view kWorker = "Worker";

struct JobKind {
  std::string_view kind;
  std::string_view api_version;
  // What may make it. That these never lead back to it keeps owners from running in circles.
  std::array<std::string_view, 3> parents = {};
};
constexpr std::array<JobKind, 8> kJobKinds = {
    {{kJobKind, "batch/v1", {kJobSetKind, kMPIJobKind, kRayJobKind}},
     {kStatefulSetKind, "apps/v1"},
     {kJobSetKind, "jobset.x-k8s.io/v1alpha2", {kTrainJobKind}},
     {kPyTorchJobKind, "kubeflow.org/v1"},
     {kTrainJobKind, "trainer.kubeflow.org/v1alpha1"},
     {kMPIJobKind, "kubeflow.org/v2beta1"},
     {kRayClusterKind, "ray.io/v1", {kRayJobKind}},
     {kRayJobKind, "ray.io/v1"}}};

std::string_view GroupOf(std::string_view api_version) {
  const size_t slash = api_version.find('/');
  return slash == std::string_view::npos ? "" : api_version.substr(0, slash);
}

const JobKind* FindKind(std::string_view kind) {
  const auto* known = std::ranges::find(kJobKinds, kind, &JobKind::kind);
  return known == kJobKinds.end() ? nullptr : known;
}

// Both factors are below 2^31.
void AddProduct(int64_t a, int64_t b, int64_t* sum) {
  if (__builtin_add_overflow(*sum, a * b, sum)) *sum = std::numeric_limits<int64_t>::max();
}

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, {}, [](unsigned char c) { return std::tolower(c); },
      [](unsigned char c) { return std::tolower(c); });
}

int64_t AtOnce(const JobSpec& spec) {
  return spec.completions ? std::min(spec.parallelism, *spec.completions) : spec.parallelism;
}

// A template that can't be read is a fault of the job, as its pods can't be counted.
std::shared_ptr<const Pod> PodOf(const PodTemplate& made, const std::string& path, AnyJob* job) {
  absl::StatusOr<Pod> pod = Decode<Pod>(made.json);
  const std::string error = pod.ok() ? pod->spec_error : std::string(pod.status().message());
  if (!error.empty() && job->fault.empty()) job->fault = fmt::format("{}: {}", path, error);
  if (!pod.ok()) {
    pod = Pod();
    pod->spec = std::make_shared<const PodSpec>();
  }
  pod->meta.name_space = job->name_space;
  return std::make_shared<const Pod>(*std::move(pod));
}

void AddPodSet(std::string name, int64_t count, const PodTemplate& made, std::string path,
               AnyJob* job, int64_t over = 0) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  std::shared_ptr<const Pod> pod = job->suspended ? PodOf(made, path, job) : nullptr;
  job->pod_sets.push_back(
      {std::move(name), count, made.json, std::move(path), made.has_flavors, std::move(pod), over});
}

// In this order, whatever that of the object is.
void AddPodSets(const std::vector<ReplicaType>& types, std::string_view field,
                std::string_view first, AnyJob* job) {
  for (const bool of_first : {true, false}) {
    for (const ReplicaType& type : types) {
      if ((type.name == first) != of_first) continue;
      AddPodSet(type.name, type.replicas, type.pod_template,
                fmt::format("/spec/{}/{}/template", field, type.name), job);
    }
  }
}

AnyJob Begin(std::string_view kind, const ObjectMeta& meta, const std::string& error) {
  AnyJob job;
  job.kind = kind;
  const JobKind& known = *FindKind(kind);
  job.api_version = known.api_version;
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
  if (owner != nullptr && IsAnyJob(*owner) && std::ranges::count(known.parents, owner->kind) > 0) {
    job.parent = *owner;
    if (owner->kind == kMPIJobKind) job.replicated_job = kLauncher;
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
  any.failed = job.failed;
  const int64_t count = AtOnce(job.spec);
  any.parts.push_back({{}, job.meta.name, count, count, {{"", job.spec.scheduler_name}}});
  any.has_start_time = job.has_start_time;
  // Without completions all of its pods are over once one of them is.
  const int64_t parallelism = job.spec.parallelism;
  const int64_t left = std::max<int64_t>(0, job.spec.completions.value_or(parallelism) - job.over);
  const int64_t over = parallelism > 1 && job.over > 0 ? std::max<int64_t>(0, count - left) : 0;
  AddPodSet("main", count, job.spec.pod_template, "/spec/template", &any, over);
  return any;
}

AnyJob ToAnyJob(const StatefulSet& set) {
  AnyJob any = Begin(kStatefulSetKind, set.meta, set.error);
  any.no_suspend = "can't be suspended";
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
  any.failed = set.failed;
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
    int64_t pods = 0;
    AddProduct(job.replicas, AtOnce(job.spec), &pods);
    AddProduct(pods, 1, &part.at_once);
    part.fewest = part.at_once;
    const bool said = job.succeeded > 0 && job.succeeded <= job.replicas;
    AddPodSet(job.name, pods, job.spec.pod_template,
              fmt::format("/spec/replicatedJobs/{}/template/spec/template", any.pod_sets.size()),
              &any, said ? job.succeeded * AtOnce(job.spec) : 0);
  }
  if (any.parts.size() == 1) any.parts.front().name = set.meta.name;
  return any;
}

AnyJob ToAnyJob(const PyTorchJob& job) {
  AnyJob any = Begin(kPyTorchJobKind, job.meta, job.error);
  any.suspended = job.suspend;
  any.finished = job.finished;
  any.failed = job.failed;
  any.schedule_timeout_seconds = job.schedule_timeout_seconds;
  any.priority_class = job.priority_class;
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
  AddPodSets(job.replica_types, "pytorchReplicaSpecs", kMaster, &any);
  return any;
}

AnyJob ToAnyJob(const TrainJob& job) {
  AnyJob any = Begin(kTrainJobKind, job.meta, job.error);
  any.suspended = job.suspend;
  any.finished = job.finished;
  any.failed = job.failed;
  return any;
}

AnyJob ToAnyJob(const MPIJob& job) {
  AnyJob any = Begin(kMPIJobKind, job.meta, job.error);
  any.suspended = job.suspend;
  any.finished = job.finished;
  any.failed = job.failed;
  any.schedule_timeout_seconds = job.schedule_timeout_seconds;
  any.priority_class = job.priority_class;
  any.replicated_job = kWorker;
  AnyJob::Part first, later;
  first.name = job.meta.name;
  later.name = job.meta.name + "-launcher";
  for (const ReplicaType& type : job.replica_types) {
    AnyJob::Part& part = job.launcher_waits && type.name == kLauncher ? later : first;
    part.replicated_jobs.push_back(type.name);
    part.at_once += type.replicas;  // two types, each below 2^31
    part.schedulers.push_back({type.name, type.scheduler_name});
  }
  AddPodSets(job.replica_types, "mpiReplicaSpecs", kLauncher, &any);
  first.fewest = first.at_once;
  later.fewest = later.at_once;
  if (job.min_available && *job.min_available > 0) {
    // The operator counts the launcher, even one that can't exist yet.
    first.fewest =
        job.launcher_waits ? std::min(*job.min_available, first.at_once) : *job.min_available;
  }
  for (AnyJob::Part* part : {&first, &later}) {
    if (!part->replicated_jobs.empty()) any.parts.push_back(std::move(*part));
  }
  return any;
}

AnyJob ToAnyJob(const RayCluster& cluster) {
  AnyJob any = Begin(kRayClusterKind, cluster.meta, cluster.error);
  any.suspended = cluster.suspend;
  AnyJob::Part part;
  part.name = cluster.meta.name;
  for (const RayGroup& group : cluster.groups) {
    int64_t pods = 0;
    AddProduct(group.replicas, group.hosts, &pods);
    AddProduct(pods, 1, &part.at_once);
    const bool head = any.pod_sets.empty();
    AddPodSet(group.name, pods, group.pod_template,
              head ? "/spec/headGroupSpec/template"
                   : fmt::format("/spec/workerGroupSpecs/{}/template", any.pod_sets.size() - 1),
              &any);
    part.schedulers.push_back({group.name, group.scheduler_name});
  }
  part.fewest = part.at_once;
  any.parts.push_back(std::move(part));
  return any;
}

AnyJob ToAnyJob(const RayJob& job) {
  AnyJob any = Begin(kRayJobKind, job.meta, job.error);
  any.suspended = job.suspend;
  any.finished = job.finished;
  any.failed = job.failed;
  if (!job.shuts_down) {
    any.no_suspend = "can't be suspended unless its spec.shutdownAfterJobFinishes is true";
  }
  return any;
}

std::string_view ReadVersionOf(const OwnerReference& owner) {
  const JobKind* known = FindKind(owner.kind);
  const bool same = known != nullptr && GroupOf(known->api_version) == GroupOf(owner.api_version);
  return same ? known->api_version : "";
}

bool MakesSinglePods(const OwnerReference& owner) {
  const std::string_view group = GroupOf(owner.api_version);
  if (group == "apps") return owner.kind == "ReplicaSet" || owner.kind == "DaemonSet";
  return group.empty() && (owner.kind == "ReplicationController" || owner.kind == "Node");
}

}  // namespace muster::kube
