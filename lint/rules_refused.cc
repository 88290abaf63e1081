// What the API server, or the job's own operator, refuses or doesn't read: nothing of it gets as
// far as the scheduler, so that it can't be asked.
#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "cluster/pool_types.h"
#include "fmt/format.h"
#include "kube/objects/max_seconds.h"
#include "kube/objects/topology_asked.h"
#include "kube/objects/well_known.h"
#include "lint/rules.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

using yaml::YamlField;
using yaml::YamlValue;

constexpr std::string_view kRefused = "api-refused";
constexpr std::string_view kQueueName = "kueue.x-k8s.io/queue-name";
constexpr std::string_view kTotalCount = "kueue.x-k8s.io/pod-group-total-count";

// --- names that stand where nobody reads them ---

enum class Stands { kLabel, kAnnotation };

struct Misplaced {
  std::string_view name;
  Stands where;
  bool on_job;   // where it is wrong: on the job itself
  bool on_pods;  // or on its pods
  std::string_view fix;
};

constexpr Misplaced kMisplaced[] = {
    {kQueueName, Stands::kAnnotation, true, true,
     "write kueue.x-k8s.io/queue-name as a label of the job (metadata.labels)"},
    {"kueue.x-k8s.io/priority-class", Stands::kAnnotation, true, true,
     "write kueue.x-k8s.io/priority-class as a label of the job (metadata.labels)"},
    {kube::kMaxSecondsLabel, Stands::kAnnotation, true, true,
     "write kueue.x-k8s.io/max-exec-time-seconds as a label of the job (metadata.labels)"},
    {kube::kKueueGroupLabel, Stands::kAnnotation, false, true,
     "write kueue.x-k8s.io/pod-group-name as a label of the pods"},
    {kTotalCount, Stands::kLabel, true, true,
     "write kueue.x-k8s.io/pod-group-total-count as an annotation of the pods"},
    {kube::kPodGroupLabel, Stands::kAnnotation, true, true,
     "write scheduling.x-k8s.io/pod-group as a label of the pod template"},
    {kube::kPodGroupLabel, Stands::kLabel, true, false,
     "write label scheduling.x-k8s.io/pod-group in the pod template's metadata"},
    {kube::kRequiredTopology, Stands::kLabel, true, true,
     "write it as an annotation of the pod template"},
    {kube::kPreferredTopology, Stands::kLabel, true, true,
     "write it as an annotation of the pod template"},
    {kube::kRequiredTopology, Stands::kAnnotation, true, false,
     "write it in the pod template's metadata"},
    {kube::kPreferredTopology, Stands::kAnnotation, true, false,
     "write it in the pod template's metadata"},
    {kube::kDoNotDisruptAnnotation, Stands::kLabel, true, true,
     "leave it out: Muster sets that annotation by itself"},
    // Of the time before PodGroups, and of other schedulers.
    {"pod-group.scheduling.sigs.k8s.io", Stands::kLabel, true, true,
     "name the PodGroup by label scheduling.x-k8s.io/pod-group of the pod template"},
    {"pod-group.scheduling.sigs.k8s.io/name", Stands::kLabel, true, true,
     "make a PodGroup, and name it by label scheduling.x-k8s.io/pod-group of the pod template"},
    {"pod-group.scheduling.sigs.k8s.io/min-available", Stands::kLabel, true, true,
     "write it as spec.minMember of a PodGroup (scheduling.x-k8s.io/v1alpha1)"},
    {"scheduling.k8s.io/group-name", Stands::kAnnotation, true, true,
     "make a PodGroup of scheduling.x-k8s.io/v1alpha1, and name it by label "
     "scheduling.x-k8s.io/pod-group of the pod template"},
};

void CheckNames(const YamlValue& metadata, bool of_job, const std::string& what,
                const std::string& file, Findings* findings) {
  for (const Misplaced& each : kMisplaced) {
    if (of_job ? !each.on_job : !each.on_pods) continue;
    const bool label = each.where == Stands::kLabel;
    const YamlValue found = metadata.Get(label ? "labels" : "annotations").Get(each.name);
    if (!found.present()) continue;
    findings->Add("name-not-read", file, found.line(),
                  fmt::format("{}: nobody reads {} {} of {}", what, label ? "label" : "annotation",
                              each.name, of_job ? "the job" : "the pods"),
                  each.fix);
  }
}

// --- pods ---

// Devices and the like, which can't be shared.
bool IsExtended(std::string_view resource) {
  return resource.find('/') != std::string_view::npos &&
         resource.find("kubernetes.io/") == std::string_view::npos;
}

bool IsWhole(std::string_view quantity) {
  return quantity.find('.') == std::string_view::npos && !quantity.ends_with('m') &&
         !quantity.ends_with('u') && !quantity.ends_with('n');
}

void CheckResources(const YamlValue& resources, const std::string& what, const std::string& file,
                    Findings* findings) {
  const YamlValue requests = resources.Get("requests");
  const YamlValue limits = resources.Get("limits");
  for (const YamlValue& all : {requests, limits}) {
    for (const YamlField& field : all.Fields()) {
      const std::string& name = field.key;
      const std::string& text = field.value->text;
      if (IsExtended(name) && !IsWhole(text)) {
        findings->Add(kRefused, file, field.line,
                      fmt::format("{} asks for {} of {}: the API server takes whole numbers only",
                                  what, text, name),
                      Concat("ask for a whole number of ", name));
      }
    }
  }
  for (const YamlField& field : requests.Fields()) {
    if (!IsExtended(field.key) && !field.key.starts_with("hugepages-")) continue;
    const YamlValue limit = limits.Get(field.key);
    if (limit.present() && limit.Text() == field.value->text) continue;
    findings->Add(
        kRefused, file, field.line,
        limit.present()
            ? fmt::format("{} requests {} of {}, with a limit of {}: the API server wants them to "
                          "be the same",
                          what, field.value->text, field.key, limit.Text())
            : fmt::format("{} requests {} without a limit, which the API server refuses", what,
                          field.key),
        Concat("write ", field.key, " under limits; the request follows from it"),
        Concat("limits:\n  ", field.key, ": \"", field.value->text, "\"\n"));
  }
  const auto has = [&](std::string_view name) {
    return requests.Get(name).present() || limits.Get(name).present();
  };
  for (const YamlField& field : limits.Fields()) {
    if (!field.key.starts_with("hugepages-") || has("cpu") || has("memory")) continue;
    findings->Add(kRefused, file, field.line,
                  fmt::format("{} asks for {} and for neither memory nor cpu, which the API server "
                              "refuses",
                              what, field.key),
                  "ask for memory, or cpu, beside it", "limits:\n  memory: 32000Mi\n");
  }
}

void CheckPod(const PodTemplate& pods, const Workload& workload, const std::string& what,
              Findings* findings) {
  const YamlValue& spec = pods.layers.front();
  std::set<std::string> volumes;
  for (const YamlValue& volume : spec.Get("volumes").Items()) {
    volumes.insert(volume.Get("name").Text());
  }
  for (const YamlValue& claim : workload.yaml.At("spec.volumeClaimTemplates").Items()) {
    volumes.insert(claim.At("metadata.name").Text());
  }
  for (const YamlValue& policy : workload.yaml.At("spec.volumeClaimPolicies").Items()) {
    for (const YamlValue& claim : policy.Get("templates").Items()) {
      volumes.insert(claim.At("metadata.name").Text());
    }
  }
  std::string names;
  for (const std::string& name : volumes) Append(&names, names.empty() ? "" : ", ", name);
  for (const char* list : {"initContainers", "containers"}) {
    for (const YamlValue& container : spec.Get(list).Items()) {
      CheckResources(container.Get("resources"), what, pods.file, findings);
      for (const YamlValue& mount : container.Get("volumeMounts").Items()) {
        const YamlValue name = mount.Get("name");
        // KubeRay adds volumes of its own.
        if (!name.present() || volumes.contains(name.Text()) || workload.kind.starts_with("Ray")) {
          continue;
        }
        findings->Add(
            kRefused, pods.file, name.line(),
            fmt::format("{} mounts volume {}, which the API server refuses: its pods have "
                        "{}",
                        what, name.Text(), names.empty() ? "none" : names),
            "name a volume that the pods have");
      }
    }
  }
  const YamlValue completions = workload.yaml.At("spec.completions");
  const YamlValue mode = workload.yaml.At("spec.completionMode");
  if (workload.kind == "Job" && mode.Text() == "Indexed" && !completions.present()) {
    findings->Add(kRefused, pods.file, mode.line(),
                  fmt::format("{} is Indexed and doesn't say completions, which the API server "
                              "refuses",
                              what),
                  "as many completions as parallelism", Concat("completions: ", pods.pods, "\n"));
  }
  const YamlValue policy = spec.Get("restartPolicy");
  // JobSet's own webhook fills it in.
  const bool of_job = workload.kind == "Job" || (workload.kind == "JobSet" && policy.present());
  if (of_job && policy.Text() != "Never" && policy.Text() != "OnFailure") {
    findings->Add(kRefused, pods.file, policy.present() ? policy.line() : pods.spec_line,
                  fmt::format("{}: restartPolicy is Always{}, which the API server refuses of a "
                              "Job's pods",
                              what, policy.present() ? "" : " if nothing is said"),
                  "set restartPolicy to Never or OnFailure", "restartPolicy: Never\n");
  }
}

// --- jobs ---

// Of mpirun: "-np 16". 0: not said.
LocatedCount ProcessesOf(const Container& container) {
  LocatedCount count;
  for (size_t i = 0; i + 1 < container.words.size(); ++i) {
    const std::string& word = container.words[i].Text();
    int64_t value = 0;
    if (word != "-np" && word != "--np" && word != "-n") continue;
    if (ParseInt(container.words[i + 1].Text(), &value)) {
      count = {value, container.words[i + 1].line()};
    }
  }
  return container.words.empty() || container.words.front().Text() != "mpirun" ? LocatedCount()
                                                                               : count;
}

void CheckSlots(const Workload& workload, Findings* findings) {
  const std::string what = workload.ToString();
  const YamlValue slots = workload.yaml.Get("spec").Get("slotsPerWorker");
  int64_t count = 1;
  if (slots.present() && !ParseInt(slots.Text(), &count)) return;
  int64_t workers = 0;
  for (const PodTemplate& pods : workload.templates) {
    if (pods.role != "Worker") continue;
    workers = pods.pods;
    const int64_t gpus = pods.Asks(kGpu).value;
    const int64_t cores = (pods.Asks(kube::kCpu).value + 999) / 1000;
    const int64_t most = gpus > 0 ? gpus : cores;
    if (!slots.present() || most == 0 || count <= most) continue;
    findings->Add("nproc-per-node-mismatch", workload.file, slots.line(),
                  fmt::format("{} has {} slots per worker, but a worker has {}: ranks would share "
                              "{}",
                              what, count, Counted(most, gpus > 0 ? "GPU" : "core"),
                              gpus > 0 ? "a GPU" : "a core"),
                  gpus > 0 ? "as many slots as GPUs" : "as many slots as cores",
                  Concat("slotsPerWorker: ", most, "\n"));
  }
  int64_t all = 0;
  if (workload.yaml.At("spec.runLauncherAsWorker").Text() == "true" ||
      __builtin_mul_overflow(workers, count, &all)) {
    return;
  }
  for (const PodTemplate& pods : workload.templates) {
    for (const Container& container : pods.containers) {
      const LocatedCount processes = ProcessesOf(container);
      if (pods.role != "Launcher" || processes.value <= all) continue;
      findings->Add(
          "nproc-per-node-mismatch", workload.file, processes.line,
          fmt::format("{} starts {} processes, but its {} with {} each have room for {}", what,
                      processes.value, Counted(workers, "worker"), Counted(count, "slot"), all),
          Concat("start ", all, ", or make more workers or slots"));
    }
  }
}

void CheckOperator(const Workload& workload, Findings* findings) {
  const YamlValue spec = workload.yaml.Get("spec");
  const std::string what = workload.ToString();
  if (workload.kind == "PyTorchJob") {
    for (const PodTemplate& pods : workload.templates) {
      if (pods.role == "Master" && pods.pods > 1) {
        findings->Add(
            "operator-refused", pods.file, pods.pods_line,
            fmt::format("{} has {} Masters: the training operator takes one", what, pods.pods),
            "make it one Master, and the rest Workers", "replicas: 1\n");
      }
      const bool named = std::ranges::any_of(
          pods.containers, [](const Container& each) { return each.name == "pytorch"; });
      if (named || pods.containers.empty()) continue;
      const Container& first = pods.containers.front();
      findings->Add("operator-refused", pods.file, first.line,
                    fmt::format("{}: no container of {} is called pytorch, and the training "
                                "operator looks for that one",
                                what, pods.role),
                    Concat("call container ", first.name, " pytorch"), "name: pytorch\n");
    }
  }
  if (workload.kind == "MPIJob") CheckSlots(workload, findings);
  if (workload.kind == "JobSet") {
    const YamlValue jobs = spec.Get("replicatedJobs");
    if (jobs.Items().empty()) {
      findings->Add("operator-refused", workload.file, std::max(jobs.line(), workload.line),
                    fmt::format("{} has no replicatedJobs, and JobSet refuses that", what),
                    "write one of replicatedJobs at least");
    }
    const YamlValue order = spec.At("startupPolicy.startupPolicyOrder");
    const bool depends = std::ranges::any_of(
        jobs.Items(), [](const YamlValue& job) { return job.Get("dependsOn").present(); });
    if (order.Text() == "InOrder" && depends) {
      findings->Add("operator-refused", workload.file, order.line(),
                    fmt::format("{} has a startupPolicy InOrder beside dependsOn: JobSet takes "
                                "one of them",
                                what),
                    "leave startupPolicy out, and let each job say dependsOn");
    }
  }
  const bool has_worker = std::ranges::any_of(
      workload.templates, [](const PodTemplate& pods) { return pods.role == "Worker"; });
  if (workload.kind == "PyTorchJob" && spec.Get("elasticPolicy").present() && !has_worker) {
    findings->Add("operator-refused", workload.file, spec.Get("elasticPolicy").line(),
                  fmt::format("{} has an elasticPolicy, which is of its Workers, and none of "
                              "these",
                              what),
                  "make the replicas Workers, or leave elasticPolicy out");
  }
  const YamlValue nodes = spec.At("trainer.numNodes");
  if (workload.kind == "TrainJob" && nodes.Text() == "0") {
    findings->Add("operator-refused", workload.file, nodes.line(),
                  fmt::format("{} has numNodes 0: the trainer takes 1 at least", what),
                  "give numNodes, or leave it out", "numNodes: 1\n");
  }
  for (const char* field : {"podSpecOverrides", "podTemplateOverrides"}) {
    for (const YamlValue& override : spec.Get(field).Items()) {
      for (const YamlValue& target : override.Get("targetJobs").Items()) {
        std::string roles;
        bool there = false;
        for (const PodTemplate& pods : workload.templates) {
          there |= pods.incomplete || pods.role == target.Get("name").Text();
          Append(&roles, roles.empty() ? "" : ", ", pods.role);
        }
        if (there) continue;
        findings->Add("operator-refused", workload.file, target.Get("name").line(),
                      fmt::format("{} overrides job {}, which its runtime doesn't have", what,
                                  target.Get("name").Text()),
                      Concat("name one that it has: ", roles));
      }
    }
  }
  std::set<std::string> before;
  std::string names;
  for (const YamlValue& job : spec.Get("replicatedJobs").Items()) {
    for (const YamlValue& other : job.Get("dependsOn").Items()) {
      const YamlValue name = other.Get("name");
      if (before.contains(name.Text())) continue;
      findings->Add("operator-refused", workload.file, name.line(),
                    fmt::format("{}: {} depends on {}, which no replicated job before it is called",
                                what, job.Get("name").Text(), name.Text()),
                    names.empty() ? "name one that comes before it"
                                  : Concat("name one that comes before it: ", names));
    }
    before.insert(job.Get("name").Text());
    Append(&names, names.empty() ? "" : ", ", job.Get("name").Text());
  }
}

}  // namespace

void CheckRefused(const Workload& workload, Findings* findings) {
  const std::string what = workload.ToString();
  const bool is_pod = workload.kind == "Pod" || workload.kind == "Pods of group";
  if (!is_pod) CheckNames(workload.yaml.Get("metadata"), true, what, workload.file, findings);
  for (const PodTemplate& pods : workload.templates) {
    if (pods.incomplete || pods.told_at > 0 || pods.layers.size() != 1) continue;
    CheckNames(pods.metadata, false, what, pods.file, findings);
    CheckPod(pods, workload, what, findings);
  }
  CheckOperator(workload, findings);
}

// Of another API group, or with a field of another version.
void CheckRefused(const Written& object, const Manifests& manifests, Findings* findings) {
  const YamlValue version = object.yaml.Get("apiVersion");
  const std::string& kind = object.yaml.Get("kind").Text();
  const std::string& name = object.yaml.At("metadata.name").Text();
  if (kind == "PodGroup" && !version.Text().starts_with("scheduling.x-k8s.io/") &&
      !version.Text().starts_with("scheduling.k8s.io/")) {
    for (const Workload& workload : manifests.workloads) {
      const bool meant = std::ranges::any_of(
          workload.templates, [&](const PodTemplate& pods) { return pods.group.value == name; });
      if (!meant) continue;
      findings->Add("name-not-read", object.file, version.line(),
                    fmt::format("{} names PodGroup {}, which is of {}: nobody reads it there",
                                workload.ToString(), name, version.Text()),
                    "make it one of scheduling.x-k8s.io/v1alpha1",
                    "apiVersion: scheduling.x-k8s.io/v1alpha1\n");
      break;
    }
  }
  if (kind == "ClusterQueue") {
    const bool newer = version.Text() == "kueue.x-k8s.io/v1beta2";
    const YamlValue cohort = object.yaml.Get("spec").Get(newer ? "cohort" : "cohortName");
    if (!cohort.present()) return;
    const char* right = newer ? "cohortName" : "cohort";
    findings->Add(kRefused, object.file, cohort.line(),
                  fmt::format("ClusterQueue {}: {} calls its cohort {}; what is written here is "
                              "dropped, and it borrows from nobody",
                              name, version.Text(), right),
                  Concat("call it ", right), Concat(right, ": ", cohort.Text(), "\n"));
  }
}

void CheckRefused(const NodePool& pool, const Surroundings& around, Findings* findings) {
  const YamlValue node = pool.yaml.At("spec.template.spec");
  std::vector<kube::Requirement> all;
  for (const Given& given : around.manifests.given) {
    const auto* typed = std::get_if<kube::NodePool>(given.object.get());
    if (typed != nullptr && typed->meta.name == pool.name) all = typed->requirements;
  }
  if (all.empty() || !cluster::TypesOf(all, pool.ec2, around.types).empty()) return;
  // Which of them rules out what the others leave.
  std::string texts;
  int line = node.Get("requirements").line();
  for (const YamlValue& requirement : node.Get("requirements").Items()) {
    const YamlValue key = requirement.Get("key");
    if (!cluster::IsInstanceTypeLabel(key.Text())) continue;
    line = requirement.Get("values").line();
  }
  for (const kube::Requirement& each : all) {
    if (!cluster::IsInstanceTypeLabel(each.key)) continue;
    Append(&texts, texts.empty() ? "" : ", ", each.ToString());
  }
  std::set<std::string> accelerators;
  std::vector<kube::Requirement> others;
  std::ranges::copy_if(all, std::back_inserter(others),
                       [](const kube::Requirement& each) { return !each.key.ends_with("-name"); });
  for (const cluster::InstanceType* type : cluster::TypesOf(others, pool.ec2, around.types).known) {
    accelerators.insert(type->accelerator.empty() ? type->name : type->accelerator);
  }
  std::string has;
  for (const std::string& each : accelerators) Append(&has, has.empty() ? "" : ", ", each);
  findings->Add(
      "node-pool-unusable", pool.file, line,
      fmt::format("NodePool {} makes no nodes: no instance type meets {}", pool.name, texts),
      has.empty() || has.size() > 100
          ? "leave one of the requirements out, or correct it"
          : Concat("leave one of the requirements out, or correct it; the others leave ", has));
}

}  // namespace muster::lint
