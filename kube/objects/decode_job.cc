#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "kube/objects/decode.h"
#include "kube/objects/decode_parts.h"
#include "kube/objects/well_known.h"

namespace muster::kube {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

StringMap Only(const StringMap& all, std::initializer_list<std::string_view> prefixes) {
  StringMap kept;
  for (const auto& [key, value] : all) {
    for (std::string_view prefix : prefixes) {
      if (key.starts_with(prefix)) kept.emplace(key, value);
    }
  }
  kept.shrink_to_fit();
  return kept;
}

// Jobs carry much that says nothing about their gang.
ObjectMeta ReadJobMeta(const JsonValue& metadata) {
  ObjectMeta meta = ReadMeta(metadata);
  meta.labels = Only(meta.labels, {"kueue.x-k8s.io/", "jobset.sigs.k8s.io/replicatedjob-name"});
  meta.annotations = Only(meta.annotations, {"muster.dev/", "kueue.x-k8s.io/job-min-parallelism",
                                             "kueue.x-k8s.io/elastic-job"});
  meta.finalizers.clear();
  return meta;
}

// A count of pods. One that the API server accepted and that makes no sense is told by name.
std::optional<int64_t> ReadCount(const JsonValue& value, JsonReader& reader) {
  if (!value.present()) return std::nullopt;
  if (!value.IsInteger() || value.Int() < 0 || value.Int() > kMaxInt32) {
    reader.RejectObject(fmt::format("{} is {}, must be an integer from 0 to {}", value.Path(),
                                    value.Excerpt(), kMaxInt32));
    return std::nullopt;
  }
  return value.Int();
}

PodTemplate ReadTemplate(const JsonValue& pod_template) {
  const JsonValue annotations = pod_template.Get("metadata").Get("annotations");
  return {pod_template.Json(), annotations.Get(kWorkloadAnnotation).present()};
}

std::string SchedulerNameOf(const JsonValue& pod_template) {
  return pod_template.Get("spec").Get("schedulerName").String();
}

JobSpec ReadJobSpec(const JsonValue& value, JsonReader& reader) {
  JobSpec spec;
  spec.parallelism = ReadCount(value.Get("parallelism"), reader).value_or(1);
  spec.completions = ReadCount(value.Get("completions"), reader);
  // Both left out mean one pod (k8s.io/kubernetes pkg/apis/batch/v1/defaults.go v1.34). A template
  // is stored without that default.
  if (!value.Get("parallelism").present() && !spec.completions) spec.completions = 1;
  spec.suspend = value.Get("suspend").Bool();
  spec.scheduler_name = SchedulerNameOf(value.Get("template"));
  spec.pod_template = ReadTemplate(value.Get("template"));
  return spec;
}

ReplicatedJob ReadReplicatedJob(const JsonValue& value, JsonReader& reader) {
  ReplicatedJob job;
  job.name = value.Get("name").String();
  job.replicas = ReadCount(value.Get("replicas"), reader).value_or(1);
  job.spec = ReadJobSpec(value.Get("template").Get("spec"), reader);
  value.Get("dependsOn").ForEach([&job](const JsonValue& dependency) {
    job.depends_on.push_back(
        fmt::format("{}/{}", dependency.Get("name").View(), dependency.Get("status").View()));
  });
  return job;
}

std::vector<ReplicaType> ReadReplicaTypes(const JsonValue& specs, JsonReader& reader) {
  std::vector<ReplicaType> types;
  specs.ForEachField([&](std::string_view name, const JsonValue& value) {
    types.push_back({std::string(name), ReadCount(value.Get("replicas"), reader).value_or(1),
                     SchedulerNameOf(value.Get("template")), ReadTemplate(value.Get("template"))});
  });
  return types;
}

// How many KubeRay makes of a group (ray-operator/controllers/ray/utils/util.go
// GetWorkerGroupDesiredReplicas).
RayGroup ReadRayGroup(const JsonValue& value, JsonReader& reader) {
  RayGroup group;
  group.name = value.Get("groupName").String();
  const int64_t least = ReadCount(value.Get("minReplicas"), reader).value_or(0);
  const int64_t most = ReadCount(value.Get("maxReplicas"), reader).value_or(kMaxInt32);
  const int64_t asked = ReadCount(value.Get("replicas"), reader).value_or(least);
  group.replicas = value.Get("suspend").Bool() ? 0 : std::max(least, std::min(asked, most));
  group.hosts = ReadCount(value.Get("numOfHosts"), reader).value_or(1);
  group.scheduler_name = SchedulerNameOf(value.Get("template"));
  group.pod_template = ReadTemplate(value.Get("template"));
  return group;
}

// batch/v1 Complete, Failed, and what is set before them, SuccessCriteriaMet, FailureTarget; of a
// JobSet Completed, Failed; of a PyTorchJob and an MPIJob Succeeded, Failed; of a TrainJob
// Complete, Failed.
template <typename T>
void ReadEnd(const JsonValue& root, T* job) {
  static constexpr std::string_view kSuccesses[] = {"Complete", "Completed", "Succeeded",
                                                    "SuccessCriteriaMet"};
  root.Get("status").Get("conditions").ForEach([&](const JsonValue& condition) {
    if (condition.Get("status").View() != "True") return;
    const std::string_view type = condition.Get("type").View();
    job->failed |= type == "Failed" || type == "FailureTarget";
    job->finished |= job->failed || std::ranges::count(kSuccesses, type) > 0;
  });
}

// An object whose owner, name and UID can be read is kept, whatever else is wrong with it.
template <typename T>
absl::StatusOr<T> Finish(const JsonReader& reader, T object) {
  if (object.meta.name.empty() || object.meta.uid.empty()) {
    return reader.status().ok()
               ? absl::InvalidArgumentError("metadata.name and metadata.uid must be set")
               : reader.status();
  }
  object.error = reader.status().ok() ? reader.unusable() : std::string(reader.status().message());
  return object;
}

}  // namespace

// How many indexes a text such as "0,3-7" names.
int64_t CountIndexes(const std::string& text) {
  int64_t count = 0;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(part, '-');
    int64_t first = 0;
    int64_t last = 0;
    if (!absl::SimpleAtoi(ends.first, &first)) continue;
    if (ends.second.empty() || !absl::SimpleAtoi(ends.second, &last)) last = first;
    if (first >= 0 && first <= last && last <= kMaxInt32) count += last - first + 1;
  }
  return count;
}

template <>
absl::StatusOr<Job> Decode<Job>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  Job job;
  job.meta = ReadJobMeta(root.Get("metadata"));
  job.spec = ReadJobSpec(root.Get("spec"), reader);
  const JsonValue status = root.Get("status");
  job.over = root.Get("spec").Get("completionMode").View() == "Indexed"
                 ? CountIndexes(status.Get("completedIndexes").String()) +
                       CountIndexes(status.Get("failedIndexes").String())
                 : status.Get("succeeded").Int();
  job.has_start_time = root.Get("status").Get("startTime").present();
  ReadEnd(root, &job);
  return Finish(reader, std::move(job));
}

template <>
absl::StatusOr<StatefulSet> Decode<StatefulSet>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  const JsonValue spec = root.Get("spec");
  StatefulSet set;
  set.meta = ReadJobMeta(root.Get("metadata"));
  set.replicas = ReadCount(spec.Get("replicas"), reader).value_or(1);
  set.parallel = spec.Get("podManagementPolicy").View() == "Parallel";
  set.scheduler_name = SchedulerNameOf(spec.Get("template"));
  return Finish(reader, std::move(set));
}

template <>
absl::StatusOr<JobSet> Decode<JobSet>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  const JsonValue spec = root.Get("spec");
  JobSet set;
  set.meta = ReadJobMeta(root.Get("metadata"));
  spec.Get("replicatedJobs").ForEach([&](const JsonValue& value) {
    set.replicated_jobs.push_back(ReadReplicatedJob(value, reader));
  });
  root.Get("status").Get("replicatedJobsStatus").ForEach([&](const JsonValue& value) {
    const auto job =
        std::ranges::find(set.replicated_jobs, value.Get("name").String(), &ReplicatedJob::name);
    if (job != set.replicated_jobs.end()) job->succeeded = value.Get("succeeded").Int();
  });
  set.in_order = spec.Get("startupPolicy").Get("startupPolicyOrder").View() == "InOrder";
  set.suspend = spec.Get("suspend").Bool();
  ReadEnd(root, &set);
  return Finish(reader, std::move(set));
}

template <>
absl::StatusOr<PyTorchJob> Decode<PyTorchJob>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  const JsonValue spec = root.Get("spec");
  PyTorchJob job;
  job.meta = ReadJobMeta(root.Get("metadata"));
  job.replica_types = ReadReplicaTypes(spec.Get("pytorchReplicaSpecs"), reader);
  const JsonValue run_policy = spec.Get("runPolicy");
  job.suspend = run_policy.Get("suspend").Bool();
  ReadEnd(root, &job);
  const JsonValue scheduling = run_policy.Get("schedulingPolicy");
  job.min_available = ReadCount(scheduling.Get("minAvailable"), reader);
  job.schedule_timeout_seconds = ReadCount(scheduling.Get("scheduleTimeoutSeconds"), reader);
  job.priority_class = scheduling.Get("priorityClass").String();
  const JsonValue elastic = spec.Get("elasticPolicy");
  job.elastic_min_replicas = ReadCount(elastic.Get("minReplicas"), reader);
  if (!job.elastic_min_replicas) {
    job.elastic_min_replicas = ReadCount(elastic.Get("maxReplicas"), reader);
  }
  return Finish(reader, std::move(job));
}

template <>
absl::StatusOr<TrainJob> Decode<TrainJob>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  TrainJob job;
  job.meta = ReadJobMeta(root.Get("metadata"));
  job.suspend = root.Get("spec").Get("suspend").Bool();
  ReadEnd(root, &job);
  return Finish(reader, std::move(job));
}

template <>
absl::StatusOr<MPIJob> Decode<MPIJob>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  const JsonValue spec = root.Get("spec");
  MPIJob job;
  job.meta = ReadJobMeta(root.Get("metadata"));
  job.replica_types = ReadReplicaTypes(spec.Get("mpiReplicaSpecs"), reader);
  job.launcher_waits = spec.Get("launcherCreationPolicy").View() == "WaitForWorkersReady";
  const JsonValue run_policy = spec.Get("runPolicy");
  job.suspend = run_policy.Get("suspend").Bool();
  const JsonValue scheduling = run_policy.Get("schedulingPolicy");
  job.min_available = ReadCount(scheduling.Get("minAvailable"), reader);
  job.schedule_timeout_seconds = ReadCount(scheduling.Get("scheduleTimeoutSeconds"), reader);
  job.priority_class = scheduling.Get("priorityClass").String();
  ReadEnd(root, &job);
  return Finish(reader, std::move(job));
}

template <>
absl::StatusOr<RayCluster> Decode<RayCluster>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  const JsonValue spec = root.Get("spec");
  RayCluster cluster;
  cluster.meta = ReadJobMeta(root.Get("metadata"));
  const JsonValue head = spec.Get("headGroupSpec").Get("template");
  cluster.groups.push_back({"head", 1, 1, SchedulerNameOf(head), ReadTemplate(head)});
  spec.Get("workerGroupSpecs").ForEach([&](const JsonValue& group) {
    cluster.groups.push_back(ReadRayGroup(group, reader));
  });
  cluster.suspend = spec.Get("suspend").Bool();
  return Finish(reader, std::move(cluster));
}

template <>
absl::StatusOr<RayJob> Decode<RayJob>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  const JsonValue spec = root.Get("spec");
  RayJob job;
  job.meta = ReadJobMeta(root.Get("metadata"));
  job.suspend = spec.Get("suspend").Bool();
  job.shuts_down = spec.Get("shutdownAfterJobFinishes").Bool();
  const std::string_view status = root.Get("status").Get("jobDeploymentStatus").View();
  job.failed = status == "Failed";
  job.finished = job.failed || status == "Complete";
  return Finish(reader, std::move(job));
}

}  // namespace muster::kube
