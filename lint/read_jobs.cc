// Jobs as rules see them. Which pods exist at once follows coscheduling/gangs/job_gangs.h.
#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "coscheduling/labels.h"
#include "kube/objects/max_seconds.h"
#include "kube/objects/not_honoured.h"
#include "kube/objects/well_known.h"
#include "lint/field_reader.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

constexpr const char* kTrainerJob = "node";
constexpr const char* kAncestorLabel = "trainer.kubeflow.org/trainjob-ancestor-step";

int64_t Or(const LocatedCount& count, int64_t fallback) {
  return count.present() ? count.value : fallback;
}

Workload Envelope(const yaml::YamlValue& object, FieldReader* reader) {
  Workload workload;
  workload.kind = object.Get("kind").Text();
  workload.file = reader->file();
  workload.line = object.line();
  workload.yaml = object;
  workload.name_space = NamespaceOf(object);
  workload.name = object.At("metadata.name").Text();
  const yaml::YamlValue labels = object.At("metadata.labels");
  workload.queue = reader->Text(labels.Get(kube::kQueueLabel));
  workload.max_seconds = reader->Text(labels.Get(kube::kMaxSecondsLabel));
  for (const kube::NotHonoured& each : kube::AllNotHonoured()) {
    const yaml::YamlValue asked = object.At("metadata.annotations").Get(each.annotation);
    if (each.of_job && asked.present()) {
      workload.not_honoured.emplace(each.annotation, reader->Text(asked));
    }
  }
  workload.is_gang =
      object.At("metadata.annotations").Get(coscheduling::kGangAnnotation).Text() != "false";
  return workload;
}

void ReadPyTorchJob(const yaml::YamlValue& job, FieldReader* reader, Workload* out) {
  const yaml::YamlValue spec = job.Get("spec");
  const yaml::YamlValue policy = spec.At("runPolicy.schedulingPolicy");
  out->min_available = reader->Count(policy.Get("minAvailable"), "minAvailable");
  out->timeout_seconds =
      reader->Count(policy.Get("scheduleTimeoutSeconds"), "scheduleTimeoutSeconds");
  const yaml::YamlValue elastic = spec.Get("elasticPolicy");
  out->elastic = elastic.present();
  const LocatedCount least = reader->Count(elastic.Get("minReplicas"), "elasticPolicy.minReplicas");
  for (const yaml::YamlField& type : spec.Get("pytorchReplicaSpecs").Fields()) {
    const yaml::YamlValue replica(type.value, type.line);
    PodTemplate& pods = out->templates.emplace_back();
    pods.role = type.key;
    pods.line = type.line;
    const LocatedCount replicas = reader->Count(replica.Get("replicas"), type.key + ".replicas");
    pods.pods = pods.pods_per_job = Or(replicas, 1);
    pods.pods_line = replicas.present() ? replicas.line : type.line;
    pods.processes = reader->Text(spec.Get("nprocPerNode"));
    pods.launcher_is_told = true;
    std::string role = type.key;
    std::ranges::transform(role, role.begin(), [](unsigned char c) { return std::tolower(c); });
    pods.labels = {{"training.kubeflow.org/job-name", out->name},
                   {"training.kubeflow.org/operator-name", "pytorchjob-controller"},
                   {"training.kubeflow.org/replica-type", role}};
    if (role == "master") pods.labels["training.kubeflow.org/job-role"] = "master";
    ReadPodTemplate(replica.Get("template"), reader, &pods);
    out->elastic_least += role == "worker" ? std::min(pods.pods, Or(least, pods.pods)) : pods.pods;
  }
}

// The launcher runs mpirun, which says how many processes there are.
void ReadMPIJob(const yaml::YamlValue& job, FieldReader* reader, Workload* out) {
  const yaml::YamlValue spec = job.Get("spec");
  const bool launcher_waits = spec.Get("launcherCreationPolicy").Text() == "WaitForWorkersReady";
  const yaml::YamlValue policy = spec.At("runPolicy.schedulingPolicy");
  // The operator counts a launcher that can't exist yet, too.
  if (!launcher_waits)
    out->min_available = reader->Count(policy.Get("minAvailable"), "minAvailable");
  out->timeout_seconds =
      reader->Count(policy.Get("scheduleTimeoutSeconds"), "scheduleTimeoutSeconds");
  for (const yaml::YamlField& type : spec.Get("mpiReplicaSpecs").Fields()) {
    const yaml::YamlValue replica(type.value, type.line);
    PodTemplate& pods = out->templates.emplace_back();
    pods.role = type.key;
    pods.line = type.line;
    pods.part = launcher_waits && type.key == "Launcher" ? 1 : 0;
    const LocatedCount replicas = reader->Count(replica.Get("replicas"), type.key + ".replicas");
    pods.pods = pods.pods_per_job = Or(replicas, 1);
    pods.pods_line = replicas.present() ? replicas.line : type.line;
    pods.labels = {
        {"training.kubeflow.org/job-name", out->name},
        {"training.kubeflow.org/operator-name", "mpi-operator"},
        {"training.kubeflow.org/job-role", type.key == "Launcher" ? "launcher" : "worker"}};
    ReadPodTemplate(replica.Get("template"), reader, &pods);
  }
}

// Of a RayCluster, or of the one that a RayJob makes.
void ReadRayClusterSpec(const yaml::YamlValue& spec, FieldReader* reader, Workload* out) {
  const auto add = [&](const yaml::YamlValue& group, const std::string& role, const char* type) {
    PodTemplate& pods = out->templates.emplace_back();
    pods.role = role;
    pods.line = pods.pods_line = group.line();
    pods.labels = {{"ray.io/cluster", out->name},
                   {"ray.io/group", std::string(type) == "head" ? "headgroup" : role},
                   {"ray.io/node-type", type}};
    ReadPodTemplate(group.Get("template"), reader, &pods);
    return &pods;
  };
  add(spec.Get("headGroupSpec"), "head", "head");
  for (const yaml::YamlValue& group : spec.Get("workerGroupSpecs").Items()) {
    PodTemplate* pods = add(group, group.Get("groupName").Text(), "worker");
    const LocatedCount least = reader->Count(group.Get("minReplicas"), "minReplicas");
    const LocatedCount most = reader->Count(group.Get("maxReplicas"), "maxReplicas");
    const LocatedCount asked = reader->Count(group.Get("replicas"), "replicas");
    int64_t replicas = Or(asked, Or(least, 0));
    if (most.present()) replicas = std::min(replicas, most.value);
    replicas = std::max(replicas, Or(least, 0));
    if (group.Get("suspend").Text() == "true") replicas = 0;
    if (asked.present()) pods->pods_line = asked.line;
    const LocatedCount hosts = reader->Count(group.Get("numOfHosts"), "numOfHosts");
    pods->pods = pods->pods_per_job = replicas * Or(hosts, 1);  // both below 2^31
  }
}

// The pods of a Job's spec, as many as run at once.
void ReadJobSpec(const yaml::YamlValue& spec, FieldReader* reader, PodTemplate* pods) {
  const LocatedCount parallelism = reader->Count(spec.Get("parallelism"), "parallelism");
  const LocatedCount completions = reader->Count(spec.Get("completions"), "completions");
  pods->pods = Or(parallelism, 1);
  if (completions.present()) pods->pods = std::min(pods->pods, completions.value);
  pods->pods_line = parallelism.present() ? parallelism.line : spec.line();
  pods->pods_per_job = pods->pods;
  ReadPodTemplate(spec.Get("template"), reader, pods);
}

void ReadJob(const yaml::YamlValue& job, FieldReader* reader, Workload* out) {
  PodTemplate& pods = out->templates.emplace_back();
  pods.labels = {{"batch.kubernetes.io/job-name", out->name}, {"job-name", out->name}};
  ReadJobSpec(job.Get("spec"), reader, &pods);
}

void ReadJobSetSpec(const yaml::YamlValue& spec, FieldReader* reader, Workload* out) {
  const bool in_order = spec.At("startupPolicy.startupPolicyOrder").Text() == "InOrder";
  std::vector<std::set<std::string>> waits_for;  // of each part
  for (const yaml::YamlValue& replicated : spec.Get("replicatedJobs").Items()) {
    PodTemplate& pods = out->templates.emplace_back();
    pods.role = replicated.Get("name").Text();
    pods.line = replicated.line();
    std::set<std::string> conditions;
    for (const yaml::YamlValue& other : replicated.Get("dependsOn").Items()) {
      conditions.insert(Concat(other.Get("name").Text(), "/", other.Get("status").Text()));
    }
    if (in_order) conditions.insert("before " + pods.role);
    const auto part = std::ranges::find(waits_for, conditions);
    pods.part = static_cast<int>(part - waits_for.begin());
    if (part == waits_for.end()) waits_for.push_back(std::move(conditions));
    pods.labels = {{"jobset.sigs.k8s.io/jobset-name", out->name},
                   {"jobset.sigs.k8s.io/replicatedjob-name", pods.role}};
    const yaml::YamlValue job = replicated.Get("template");
    ReadJobSpec(job.Get("spec"), reader, &pods);
    const LocatedCount replicas = reader->Count(replicated.Get("replicas"), "replicas");
    if (replicas.present()) {
      pods.pods *= replicas.value;  // both below 2^31
      if (pods.pods_per_job == 1) pods.pods_line = replicas.line;
    }
  }
}

// Everything that a runtime says of the pods is told at this line of the job that uses it.
void MoveTo(int line, PodTemplate* pods) {
  const auto move = [&](int* at) { *at = *at > 0 ? line : 0; };
  pods->told_at = line;
  for (int* at : {&pods->line, &pods->pods_line, &pods->metadata_line, &pods->spec_line,
                  &pods->group.line, &pods->scheduler_name.line, &pods->processes.line}) {
    move(at);
  }
  for (auto& [key, annotation] : pods->annotations) move(&annotation.line);
  for (Requirement& requirement : pods->node_selector) move(&requirement.line);
  for (std::vector<Requirement>& term : pods->node_affinity) {
    for (Requirement& requirement : term) move(&requirement.line);
  }
  move(&pods->pod_affinity_line);
  for (Container& container : pods->containers) {
    move(&container.line);
    container.words_line = line;
    for (auto* amounts : {&container.requests, &container.limits}) {
      for (auto& [resource, amount] : *amounts) move(&amount.line);
    }
    for (auto& [name, value] : container.env) move(&value.line);
  }
}

// Index of the replicated job that trains.
size_t TrainerOf(const yaml::YamlValue& replicated_jobs) {
  const std::vector<yaml::YamlValue> jobs = replicated_jobs.Items();
  for (size_t i = 0; i < jobs.size(); ++i) {
    const yaml::YamlValue labels = jobs[i].At("template.metadata.labels");
    if (labels.Get(kAncestorLabel).Text() == "trainer") return i;
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].Get("name").Text() == kTrainerJob) return i;
  }
  return 0;
}

// The templates that the runtime makes; returns the one that trains.
size_t ReadRuntime(const ManifestObject& runtime, int line, const FieldReader& reader,
                   Workload* out) {
  FieldReader runtime_reader = reader.Other(runtime.file);
  const yaml::YamlValue spec = runtime.yaml.Get("spec");
  out->job_set = spec.At("template.spec");
  ReadJobSetSpec(spec.At("template.spec"), &runtime_reader, out);
  if (out->templates.empty()) return 0;
  const size_t trainer = TrainerOf(spec.At("template.spec.replicatedJobs"));
  const yaml::YamlValue policy = spec.Get("mlPolicy");
  PodTemplate& pods = out->templates[trainer];
  const LocatedCount nodes = runtime_reader.Count(policy.Get("numNodes"), "mlPolicy.numNodes");
  if (nodes.present()) pods.pods = pods.pods_per_job = nodes.value;
  pods.processes = runtime_reader.Text(policy.At("torch.numProcPerNode"));
  for (PodTemplate& each : out->templates) {
    each.file = reader.file();
    MoveTo(line, &each);
  }
  return trainer;
}

// What the TrainJob says of its trainer's pods.
void OverrideTrainer(const yaml::YamlValue& spec, FieldReader* reader, PodTemplate* pods) {
  const yaml::YamlValue trainer = spec.Get("trainer");
  const LocatedCount nodes = reader->Count(trainer.Get("numNodes"), "trainer.numNodes");
  if (nodes.present()) {
    pods->pods = pods->pods_per_job = nodes.value;
    pods->pods_line = nodes.line;
  }
  if (trainer.Get("numProcPerNode").present()) {
    pods->processes = reader->Text(trainer.Get("numProcPerNode"));
  }
  if (pods->containers.empty()) {
    pods->containers.emplace_back().name = kTrainerJob;
    pods->containers.back().line = trainer.line();
  }
  Container& container = pods->containers.front();
  const yaml::YamlValue resources = trainer.Get("resourcesPerNode");
  if (resources.present()) {
    pods->resources = resources;
    container.requests = reader->Amounts(resources.Get("requests"));
    container.limits = reader->Amounts(resources.Get("limits"));
  }
  if (trainer.Get("command").present() || trainer.Get("args").present()) {
    container.words.clear();
    container.words_line = 0;
    for (const char* field : {"command", "args"}) {
      for (const yaml::YamlValue& word : trainer.Get(field).Items())
        container.words.push_back(word);
    }
  }
}

// podTemplateOverrides, and podSpecOverrides as they were called first.
void OverridePods(const yaml::YamlValue& override, FieldReader* reader, Workload* out) {
  std::set<std::string> targets;
  for (const yaml::YamlValue& job : override.Get("targetJobs").Items()) {
    targets.insert(job.Get("name").Text());
  }
  for (PodTemplate& pods : out->templates) {
    const std::string role = pods.incomplete ? kTrainerJob : pods.role;
    if (!targets.empty() && !targets.contains(role)) continue;
    const yaml::YamlValue spec = override.Get("spec");
    if (override.Get("metadata").present()) {
      const int line = pods.metadata_line;
      ReadPodTemplate(override, reader, &pods);
      pods.metadata_line = line;
    } else {
      ReadPodSpec(spec.present() ? spec : override, reader, &pods);
    }
  }
}

// runtimePatches, which took the overrides' place: each lays parts of the runtime over it.
void PatchPods(const yaml::YamlValue& patch, FieldReader* reader, Workload* out) {
  for (const yaml::YamlValue& job :
       patch.At("trainingRuntimeSpec.template.spec.replicatedJobs").Items()) {
    for (PodTemplate& pods : out->templates) {
      const std::string role = pods.incomplete ? kTrainerJob : pods.role;
      if (job.Get("name").Text() != role) continue;
      const int line = pods.metadata_line;
      ReadPodTemplate(job.At("template.spec.template"), reader, &pods);
      pods.metadata_line = line;
    }
  }
}

void ReadTrainJob(const yaml::YamlValue& job, const Runtimes& runtimes, FieldReader* reader,
                  Workload* out) {
  const yaml::YamlValue spec = job.Get("spec");
  const yaml::YamlValue reference = spec.Get("runtimeRef");
  const bool namespaced = reference.Get("kind").Text() == "TrainingRuntime";
  const auto runtime =
      runtimes.find(Concat(namespaced ? out->name_space : "", "/", reference.Get("name").Text()));
  size_t trainer = 0;
  if (runtime != runtimes.end()) {
    trainer = ReadRuntime(runtime->second, reference.line(), *reader, out);
  }
  if (out->templates.empty()) {
    PodTemplate& pods = out->templates.emplace_back();
    pods.incomplete = true;
    pods.file = reader->file();
    pods.line = pods.metadata_line = pods.spec_line = spec.Get("trainer").line();
    pods.labels = {{"jobset.sigs.k8s.io/jobset-name", out->name}};
  }
  for (PodTemplate& pods : out->templates) pods.launcher_is_told = true;
  OverrideTrainer(spec, reader, &out->templates[trainer]);
  for (const char* field : {"podSpecOverrides", "podTemplateOverrides"}) {
    for (const yaml::YamlValue& override : spec.Get(field).Items())
      OverridePods(override, reader, out);
  }
  for (const yaml::YamlValue& patch : spec.Get("runtimePatches").Items()) {
    PatchPods(patch, reader, out);
  }
}

void ReadStatefulSet(const yaml::YamlValue& set, FieldReader* reader, Workload* out) {
  const yaml::YamlValue spec = set.Get("spec");
  out->is_gang = set.At("metadata.annotations").Get(coscheduling::kGangAnnotation).Text() == "true";
  PodTemplate& pods = out->templates.emplace_back();
  const LocatedCount replicas = reader->Count(spec.Get("replicas"), "replicas");
  pods.pods = pods.pods_per_job = Or(replicas, 1);
  pods.pods_line = replicas.present() ? replicas.line : spec.line();
  ReadPodTemplate(spec.Get("template"), reader, &pods);
  const yaml::YamlValue policy = spec.Get("podManagementPolicy");
  if (policy.Text() != "Parallel") {
    out->one_by_one = {policy.present() ? policy.Text() : "OrderedReady", policy.line()};
  }
}

// Pods of one group come together later.
void ReadPod(const yaml::YamlValue& pod, FieldReader* reader, Workload* out) {
  PodTemplate& pods = out->templates.emplace_back();
  pods.pods_line = pod.line();
  ReadPodTemplate(pod, reader, &pods);
  pods.line = pod.line();
  pods.name = out->name;
}

}  // namespace

std::string Workload::ToString() const { return Concat(kind, " ", name_space, "/", name); }

bool IsKind(const yaml::YamlValue& object, std::string_view group, std::string_view kind) {
  if (object.Get("kind").Text() != kind) return false;
  const std::string_view version = object.Get("apiVersion").Text();
  const size_t slash = version.find('/');
  return (slash == std::string_view::npos ? "" : version.substr(0, slash)) == group;
}

std::string NamespaceOf(const yaml::YamlValue& object) {
  const std::string& name_space = object.At("metadata.namespace").Text();
  return name_space.empty() ? "default" : name_space;
}

bool ReadWorkload(const yaml::YamlValue& object, const Runtimes& runtimes, FieldReader* reader,
                  std::vector<Workload>* out) {
  const size_t failures = reader->failures();
  Workload workload = Envelope(object, reader);
  if (IsKind(object, "kubeflow.org", "PyTorchJob")) {
    ReadPyTorchJob(object, reader, &workload);
  } else if (IsKind(object, "batch", "Job")) {
    ReadJob(object, reader, &workload);
  } else if (IsKind(object, "jobset.x-k8s.io", "JobSet")) {
    ReadJobSetSpec(object.Get("spec"), reader, &workload);
  } else if (IsKind(object, "trainer.kubeflow.org", "TrainJob")) {
    ReadTrainJob(object, runtimes, reader, &workload);
  } else if (IsKind(object, "kubeflow.org", "MPIJob")) {
    ReadMPIJob(object, reader, &workload);
  } else if (IsKind(object, "ray.io", "RayCluster")) {
    ReadRayClusterSpec(object.Get("spec"), reader, &workload);
  } else if (IsKind(object, "ray.io", "RayJob")) {
    ReadRayClusterSpec(object.At("spec.rayClusterSpec"), reader, &workload);
  } else if (IsKind(object, "apps", "StatefulSet")) {
    ReadStatefulSet(object, reader, &workload);
  } else if (IsKind(object, "", "Pod")) {
    ReadPod(object, reader, &workload);
  } else {
    return false;
  }
  workload.unreadable = reader->failures() > failures;
  out->push_back(std::move(workload));
  return true;
}

}  // namespace muster::lint
