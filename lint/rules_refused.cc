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
#include "lint/launch_command.h"
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

// Where a name is read, or stands.
enum Level : unsigned { kNowhere = 0, kOnJob = 1, kOnJobTemplate = 2, kOnPods = 4 };

struct ReadName {
  std::string_view name;
  bool label;       // else an annotation
  unsigned levels;  // Levels; kNowhere: read by nobody any more
  std::string_view fix = "";
};

constexpr unsigned kAnywhere = kOnJob | kOnJobTemplate | kOnPods;
constexpr ReadName kReadNames[] = {
    {kQueueName, true, kAnywhere},
    {"kueue.x-k8s.io/priority-class", true, kAnywhere},
    {kube::kMaxSecondsLabel, true, kAnywhere},
    {kube::kKueueGroupLabel, true, kOnPods},
    {kTotalCount, false, kOnPods},
    {"kueue.x-k8s.io/retriable-in-group", false, kOnPods},
    {"kueue.x-k8s.io/pod-group-fast-admission", false, kOnPods},
    {kube::kPodGroupLabel, true, kOnPods},
    {kube::kRequiredTopology, false, kOnPods},
    {kube::kPreferredTopology, false, kOnPods},
    {"kueue.x-k8s.io/podset-unconstrained-topology", false, kOnPods},
    {"kueue.x-k8s.io/podset-group-name", false, kOnPods},
    {"kueue.x-k8s.io/job-min-parallelism", false, kOnJob},
    {"kueue.x-k8s.io/elastic-job", false, kOnJob},
    {kube::kDoNotDisruptAnnotation, false, kOnPods,
     "write it as an annotation of the pod template, or leave it out: Muster sets it by itself"},
    {"cluster-autoscaler.kubernetes.io/safe-to-evict", false, kOnPods},
    {"controller.kubernetes.io/pod-deletion-cost", false, kOnPods},
    {"k8s.v1.cni.cncf.io/networks", false, kOnPods},
    {"trainer.kubeflow.org/trainjob-ancestor-step", true, kOnJobTemplate},
    {"alpha.jobset.sigs.k8s.io/exclusive-topology", false, kAnywhere},
    {"alpha.jobset.sigs.k8s.io/node-selector", false, kOnJob | kOnJobTemplate},
    // Of the time before PodGroups, and of other schedulers.
    {"pod-group.scheduling.sigs.k8s.io", true, kNowhere,
     "name the PodGroup by label scheduling.x-k8s.io/pod-group of the pod template"},
    {"pod-group.scheduling.sigs.k8s.io/name", true, kNowhere,
     "make a PodGroup, and name it by label scheduling.x-k8s.io/pod-group of the pod template"},
    {"pod-group.scheduling.sigs.k8s.io/min-available", true, kNowhere,
     "write it as spec.minMember of a PodGroup (scheduling.x-k8s.io/v1alpha1)"},
    {"scheduling.k8s.io/group-name", false, kNowhere,
     "make a PodGroup of scheduling.x-k8s.io/v1alpha1, and name it by label "
     "scheduling.x-k8s.io/pod-group of the pod template"},
};

struct NamesAt {
  Level level;
  YamlValue metadata;
  const std::string* file;
};

std::string_view TextOf(unsigned levels) {
  return (levels & kOnJob) != 0           ? "the job"
         : (levels & kOnJobTemplate) != 0 ? "the Job's template (replicatedJobs[].template)"
                                          : "the pod template";
}

void CheckNames(const std::vector<NamesAt>& all, const std::string& what, Findings* findings) {
  for (const ReadName& each : kReadNames) {
    const auto find = [&](const NamesAt& at, bool label) {
      return at.metadata.Get(label ? "labels" : "annotations").Get(each.name);
    };
    const bool right = std::ranges::any_of(all, [&](const NamesAt& at) {
      return (each.levels & at.level) != 0 && find(at, each.label).present();
    });
    for (const NamesAt& at : all) {
      for (const bool label : {true, false}) {
        const YamlValue found = find(at, label);
        const bool of_kind = label == each.label;
        const bool wrong = of_kind ? (each.levels & at.level) == 0 : each.levels != kNowhere;
        if (!found.present() || !wrong || right) continue;
        const std::string text =
            fmt::format("{}: nobody reads {} {} of {}", what, label ? "label" : "annotation",
                        each.name, at.level == kOnPods ? "the pods" : TextOf(at.level));
        const std::string fix =
            each.fix.empty()
                ? fmt::format("write {} as {} of {} (metadata.{})", each.name,
                              each.label ? "a label" : "an annotation", TextOf(each.levels),
                              each.label ? "labels" : "annotations")
                : std::string(each.fix);
        // Muster sets by itself what it would keep.
        if (each.name == kube::kDoNotDisruptAnnotation && of_kind) {
          findings->AddWarning("name-not-read", *at.file, found.line(), text, fix);
        } else {
          findings->Add("name-not-read", *at.file, found.line(), text, fix);
        }
      }
    }
  }
}

// Of a runtime, which TrainJobs share.
void CheckRuntimeNames(const Written& object, const std::string& what, Findings* findings) {
  std::vector<NamesAt> all = {{kOnJob, object.yaml.Get("metadata"), &object.file},
                              {kOnJob, object.yaml.At("spec.template.metadata"), &object.file}};
  for (const YamlValue& job : object.yaml.At("spec.template.spec.replicatedJobs").Items()) {
    all.push_back({kOnJobTemplate, job.At("template.metadata"), &object.file});
    all.push_back({kOnPods, job.At("template.spec.template.metadata"), &object.file});
  }
  CheckNames(all, what, findings);
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
      for (const MpirunCall& call : FindMpirun(container)) {
        if (pods.role != "Launcher") continue;
        if (call.processes.value > all) {
          findings->Add(
              "nproc-per-node-mismatch", workload.file, call.processes.line,
              fmt::format("{} starts {} processes, but its {} with {} each have room for {}", what,
                          call.processes.value, Counted(workers, "worker"), Counted(count, "slot"),
                          all),
              Concat("start ", all, ", or make more workers or slots"));
        } else if (call.per_node.value > count) {
          findings->Add(
              "nproc-per-node-mismatch", workload.file, call.per_node.line,
              fmt::format("{} starts {} processes per node, but its workers have {} each", what,
                          call.per_node.value, Counted(count, "slot")),
              fmt::format("start {}, or set slotsPerWorker to {}", count, call.per_node.value));
        } else if (call.host_slots.present() && call.host_slots.value < call.processes.value) {
          findings->Add("nproc-per-node-mismatch", workload.file, call.processes.line,
                        fmt::format("{} starts {} processes on hosts with {} in all", what,
                                    call.processes.value, Counted(call.host_slots.value, "slot")),
                        fmt::format("start {}, or name more hosts or slots in line {}",
                                    call.host_slots.value, call.host_slots.line));
        }
      }
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
  std::vector<NamesAt> names;
  if (!is_pod) names.push_back({kOnJob, workload.yaml.Get("metadata"), &workload.file});
  for (const YamlValue& job : workload.yaml.At("spec.replicatedJobs").Items()) {
    names.push_back({kOnJobTemplate, job.At("template.metadata"), &workload.file});
  }
  for (const PodTemplate& pods : workload.templates) {
    if (pods.incomplete || pods.told_at > 0 || pods.layers.size() != 1) continue;
    names.push_back({kOnPods, pods.metadata, &pods.file});
    CheckPod(pods, workload, what, findings);
  }
  CheckNames(names, what, findings);
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
  if (kind.ends_with("TrainingRuntime")) {
    CheckRuntimeNames(object, Concat(kind, " ", name), findings);
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
