// Jobs as rules see them. Which pods exist at once follows coscheduling/job_gangs.h.
#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "extender/lint/field_reader.h"
#include "extender/lint/text.h"

namespace muster::lint {
namespace {

constexpr const char* kGangAnnotation = "muster.dev/gang";
constexpr const char* kQueueLabel = "kueue.x-k8s.io/queue-name";
constexpr const char* kAncestorLabel = "trainer.kubeflow.org/trainjob-ancestor-step";

int64_t Or(const LocatedCount& count, int64_t fallback) {
  return count.present() ? count.value : fallback;
}

Workload Envelope(const YamlValue& object, FieldReader* reader) {
  Workload workload;
  workload.kind = object.Get("kind").Text();
  workload.file = reader->file();
  workload.line = object.line();
  workload.name_space = NamespaceOf(object);
  workload.name = object.At("metadata.name").Text();
  const YamlValue labels = object.At("metadata.labels");
  workload.queue = reader->Text(labels.Get(kQueueLabel));
  workload.is_gang = object.At("metadata.annotations").Get(kGangAnnotation).Text() != "false";
  return workload;
}

void ReadPyTorchJob(const YamlValue& job, FieldReader* reader, Workload* out) {
  const YamlValue spec = job.Get("spec");
  const YamlValue policy = spec.At("runPolicy.schedulingPolicy");
  out->min_available = reader->Count(policy.Get("minAvailable"), "minAvailable");
  out->timeout_seconds =
      reader->Count(policy.Get("scheduleTimeoutSeconds"), "scheduleTimeoutSeconds");
  if (policy.Get("queue").present() && !out->queue.present()) {
    out->queue = LocatedText();  // Volcano's queue, not Kueue's
  }
  const YamlValue elastic = spec.Get("elasticPolicy");
  out->elastic = elastic.present();
  const LocatedCount least = reader->Count(elastic.Get("minReplicas"), "elasticPolicy.minReplicas");
  for (const YamlField& type : spec.Get("pytorchReplicaSpecs").Fields()) {
    const YamlValue replica(type.value, type.line);
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

// The pods of a Job's spec, as many as run at once.
void ReadJobSpec(const YamlValue& spec, FieldReader* reader, PodTemplate* pods) {
  const LocatedCount parallelism = reader->Count(spec.Get("parallelism"), "parallelism");
  const LocatedCount completions = reader->Count(spec.Get("completions"), "completions");
  pods->pods = Or(parallelism, 1);
  if (completions.present()) pods->pods = std::min(pods->pods, completions.value);
  pods->pods_line = parallelism.present() ? parallelism.line : spec.line();
  pods->pods_per_job = pods->pods;
  ReadPodTemplate(spec.Get("template"), reader, pods);
}

void ReadJob(const YamlValue& job, FieldReader* reader, Workload* out) {
  PodTemplate& pods = out->templates.emplace_back();
  pods.labels = {{"batch.kubernetes.io/job-name", out->name}, {"job-name", out->name}};
  ReadJobSpec(job.Get("spec"), reader, &pods);
}

void ReadJobSetSpec(const YamlValue& spec, FieldReader* reader, Workload* out) {
  const bool in_order = spec.At("startupPolicy.startupPolicyOrder").Text() == "InOrder";
  std::vector<std::set<std::string>> waits_for;  // of each part
  for (const YamlValue& replicated : spec.Get("replicatedJobs").Items()) {
    PodTemplate& pods = out->templates.emplace_back();
    pods.role = replicated.Get("name").Text();
    pods.line = replicated.line();
    std::set<std::string> conditions;
    for (const YamlValue& other : replicated.Get("dependsOn").Items()) {
      conditions.insert(Concat(other.Get("name").Text(), "/", other.Get("status").Text()));
    }
    if (in_order) conditions.insert("before " + pods.role);
    const auto part = std::ranges::find(waits_for, conditions);
    pods.part = static_cast<int>(part - waits_for.begin());
    if (part == waits_for.end()) waits_for.push_back(std::move(conditions));
    pods.labels = {{"jobset.sigs.k8s.io/jobset-name", out->name},
                   {"jobset.sigs.k8s.io/replicatedjob-name", pods.role}};
    const YamlValue job = replicated.Get("template");
    ReadJobSpec(job.Get("spec"), reader, &pods);
    const LocatedCount replicas = reader->Count(replicated.Get("replicas"), "replicas");
    if (replicas.present()) {
      pods.pods *= replicas.value;  // both below 2^31
      if (pods.pods_per_job == 1) pods.pods_line = replicas.line;
    }
  }
}

// What the TrainJob says of its trainer's pods.
void OverrideTrainer(const YamlValue& spec, FieldReader* reader, PodTemplate* pods) {
  const YamlValue trainer = spec.Get("trainer");
  const LocatedCount nodes = reader->Count(trainer.Get("numNodes"), "trainer.numNodes");
  if (nodes.present()) {
    pods->pods = pods->pods_per_job = nodes.value;
    pods->pods_line = nodes.line;
  }
  if (trainer.Get("numProcPerNode").present()) {
    pods->processes = reader->Text(trainer.Get("numProcPerNode"));
  }
  if (pods->containers.empty()) pods->containers.emplace_back().line = trainer.line();
  Container& container = pods->containers.front();
  const YamlValue resources = trainer.Get("resourcesPerNode");
  if (resources.present()) {
    container.resources_line = resources.line();
    container.requests = reader->Amounts(resources.Get("requests"));
    container.limits = reader->Amounts(resources.Get("limits"));
  }
  if (trainer.Get("command").present() || trainer.Get("args").present()) {
    container.words.clear();
    for (const char* field : {"command", "args"}) {
      for (const YamlValue& word : trainer.Get(field).Items()) container.words.push_back(word);
    }
  }
}

void ReadTrainJob(const YamlValue& job, const Runtimes& runtimes, FieldReader* reader,
                  Workload* out) {
  const YamlValue spec = job.Get("spec");
  const YamlValue reference = spec.Get("runtimeRef");
  const bool namespaced = reference.Get("kind").Text() == "TrainingRuntime";
  const auto runtime =
      runtimes.find(Concat(namespaced ? out->name_space : "", "/", reference.Get("name").Text()));
  size_t trainer = 0;
  if (runtime != runtimes.end()) {
    // Its mistakes are told where the runtime is read as a file of its own.
    const YamlValue runtime_spec = runtime->second.Get("spec");
    ReadJobSetSpec(runtime_spec.At("template.spec"), reader, out);
    for (size_t i = 0; i < out->templates.size(); ++i) {
      const YamlValue step = runtime_spec.At("template.spec.replicatedJobs")
                                 .Items()[i]
                                 .At("template.metadata.labels")
                                 .Get(kAncestorLabel);
      if (step.Text() == "trainer" || (!step.present() && out->templates[i].role == "node")) {
        trainer = i;
      }
    }
  }
  if (out->templates.empty()) {
    PodTemplate& pods = out->templates.emplace_back();
    pods.incomplete = true;
    pods.file = reader->file();
    pods.labels = {{"jobset.sigs.k8s.io/jobset-name", out->name}};
  }
  PodTemplate& pods = out->templates[trainer];
  if (runtime != runtimes.end()) {
    const YamlValue policy = runtime->second.At("spec.mlPolicy");
    const LocatedCount nodes = reader->Count(policy.Get("numNodes"), "mlPolicy.numNodes");
    if (nodes.present()) pods.pods = pods.pods_per_job = nodes.value;
    pods.processes = reader->Text(policy.At("torch.numProcPerNode"));
  }
  for (PodTemplate& each : out->templates) {
    each.launcher_is_told = true;
    // A finding points at the job: the runtime may be another file's.
    each.line = each.metadata_line = each.spec_line = spec.Get("trainer").line();
    each.pods_line = each.incomplete ? 0 : each.line;
  }
  OverrideTrainer(spec, reader, &pods);
  for (const char* field : {"podSpecOverrides", "podTemplateOverrides"}) {
    for (const YamlValue& override : spec.Get(field).Items()) {
      if (override.Get("metadata").present()) {
        ReadPodTemplate(override, reader, &pods);
      } else {
        const bool nested = override.Get("spec").present();
        ReadPodSpec(nested ? override.Get("spec") : override, reader, &pods);
      }
    }
  }
}

void ReadStatefulSet(const YamlValue& set, FieldReader* reader, Workload* out) {
  const YamlValue spec = set.Get("spec");
  out->is_gang = set.At("metadata.annotations").Get(kGangAnnotation).Text() == "true";
  PodTemplate& pods = out->templates.emplace_back();
  const LocatedCount replicas = reader->Count(spec.Get("replicas"), "replicas");
  pods.pods = pods.pods_per_job = Or(replicas, 1);
  pods.pods_line = replicas.present() ? replicas.line : spec.line();
  ReadPodTemplate(spec.Get("template"), reader, &pods);
  const YamlValue policy = spec.Get("podManagementPolicy");
  if (policy.Text() != "Parallel") {
    out->one_by_one = {policy.present() ? policy.Text() : "OrderedReady", policy.line()};
  }
}

// Pods of one group come together later.
void ReadPod(const YamlValue& pod, FieldReader* reader, Workload* out) {
  PodTemplate& pods = out->templates.emplace_back();
  pods.pods_line = pod.line();
  ReadPodTemplate(pod, reader, &pods);
  pods.line = pod.line();
}

}  // namespace

std::string Workload::ToString() const { return Concat(kind, " ", name_space, "/", name); }

bool IsKind(const YamlValue& object, std::string_view group, std::string_view kind) {
  if (object.Get("kind").Text() != kind) return false;
  const std::string_view version = object.Get("apiVersion").Text();
  const size_t slash = version.find('/');
  return (slash == std::string_view::npos ? "" : version.substr(0, slash)) == group;
}

std::string NamespaceOf(const YamlValue& object) {
  const std::string& name_space = object.At("metadata.namespace").Text();
  return name_space.empty() ? "default" : name_space;
}

bool ReadWorkload(const YamlValue& object, const Runtimes& runtimes, FieldReader* reader,
                  std::vector<Workload>* out) {
  Workload workload = Envelope(object, reader);
  if (IsKind(object, "kubeflow.org", "PyTorchJob")) {
    ReadPyTorchJob(object, reader, &workload);
  } else if (IsKind(object, "batch", "Job")) {
    ReadJob(object, reader, &workload);
  } else if (IsKind(object, "jobset.x-k8s.io", "JobSet")) {
    ReadJobSetSpec(object.Get("spec"), reader, &workload);
  } else if (IsKind(object, "trainer.kubeflow.org", "TrainJob")) {
    ReadTrainJob(object, runtimes, reader, &workload);
  } else if (IsKind(object, "apps", "StatefulSet")) {
    ReadStatefulSet(object, reader, &workload);
  } else if (IsKind(object, "", "Pod")) {
    ReadPod(object, reader, &workload);
  } else {
    return false;
  }
  out->push_back(std::move(workload));
  return true;
}

}  // namespace muster::lint
