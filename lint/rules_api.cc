// What the API server itself would say of an object: the fields that it doesn't have, and values
// that it refuses, by the schemas and rules of the one in kube/embedded.
#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kube/embedded/compact_schema.h"
#include "kube/embedded/custom_types.h"
#include "kube/embedded/pod_rules.h"
#include "kube/embedded/schema.h"
#include "lint/json_tree.h"
#include "lint/rules.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

using kube::embedded::CompactSchemas;
using kube::embedded::Schema;
using yaml::YamlValue;

constexpr std::string_view kRefused = "api-refused";

// The jobs of other projects, in the notation of core_schema.cc; templates of pods are looked at by
// themselves. JobSet v0.10 to v0.12, training operator v1.8, Trainer v2.0 to v2.2, MPI operator
// v0.6: the
// fields of all of them. Its older MPIJob of kubeflow.org/v1 has others.
constexpr std::string_view kJobs = R"(
JobSet apiVersion:s kind:s metadata:? spec:JobSetSpec status:?
JobSetSpec coordinator:? failurePolicy:FailurePolicy managedBy:s network:Network
  replicatedJobs:*ReplicatedJob startupPolicy:StartupPolicy successPolicy:SuccessPolicy suspend:b
  ttlSecondsAfterFinished:i volumeClaimPolicies:*?
ReplicatedJob dependsOn:*DependsOn groupName:s name:s replicas:i template:JobTemplate
DependsOn name:s status:s
Network enableDNSHostnames:b publishNotReadyAddresses:b subdomain:s
SuccessPolicy operator:s targetReplicatedJobs:*s
FailurePolicy maxRestarts:i restartStrategy:s rules:*FailurePolicyRule
FailurePolicyRule action:s name:s onJobFailureMessagePatterns:*s onJobFailureReasons:*s
  targetReplicatedJobs:*s
StartupPolicy startupPolicyOrder:s
JobTemplate metadata:? spec:JobSpec
JobSpec activeDeadlineSeconds:l backoffLimit:i backoffLimitPerIndex:i completionMode:s
  completions:i managedBy:s manualSelector:b maxFailedIndexes:i parallelism:i podFailurePolicy:?
  podReplacementPolicy:s selector:? successPolicy:? suspend:b template:? ttlSecondsAfterFinished:i
PyTorchJob apiVersion:s kind:s metadata:? spec:PyTorchJobSpec status:?
PyTorchJobSpec elasticPolicy:ElasticPolicy nprocPerNode:s pytorchReplicaSpecs:%ReplicaSpec
  runPolicy:RunPolicy
ElasticPolicy maxReplicas:i maxRestarts:i metrics:*? minReplicas:i nProcPerNode:i rdzvBackend:s
  rdzvConf:*? rdzvHost:s rdzvId:s rdzvPort:i standalone:b
ReplicaSpec replicas:i restartPolicy:s template:?
RunPolicy activeDeadlineSeconds:l backoffLimit:i cleanPodPolicy:s managedBy:s
  schedulingPolicy:SchedulingPolicy suspend:b ttlSecondsAfterFinished:i
SchedulingPolicy minAvailable:i minResources:%q priorityClass:s queue:s scheduleTimeoutSeconds:i
MPIJob apiVersion:s kind:s metadata:? spec:MPIJobSpec status:?
MPIJobSpec launcherCreationPolicy:s mpiImplementation:s mpiReplicaSpecs:%ReplicaSpec
  runLauncherAsWorker:b runPolicy:RunPolicy slotsPerWorker:i sshAuthMountPath:s
TrainJob apiVersion:s kind:s metadata:? spec:TrainJobSpec status:?
TrainJobSpec activeDeadlineSeconds:l annotations:%s initializer:? labels:%s managedBy:s
  podSpecOverrides:*? podTemplateOverrides:*? runtimePatches:*? runtimeRef:RuntimeRef suspend:b
  trainer:Trainer
RuntimeRef apiGroup:s kind:s name:s
Trainer args:*s command:*s env:*? image:s numNodes:i numProcPerNode:x resourcesPerNode:Resources
Resources claims:*? limits:%q requests:%q
)";

struct CustomSchema {
  std::string group;
  std::shared_ptr<const Schema> schema;
};
using Schemas = std::map<std::string, CustomSchema, std::less<>>;

// By kind: those of the jobs, of Kueue's objects, PodGroup and NodePool.
const Schemas& CustomSchemas() {
  static const auto* const kAll = [] {
    static const CompactSchemas* const kCompact = new CompactSchemas(kJobs);
    auto* all = new Schemas();
    for (const auto& [group, kind] : {std::pair{"jobset.x-k8s.io/", "JobSet"},
                                      {"kubeflow.org/v1", "PyTorchJob"},
                                      {"kubeflow.org/v2beta1", "MPIJob"},
                                      {"trainer.kubeflow.org/", "TrainJob"}}) {
      (*all)[kind] = {group, kCompact->Find(kind)};
    }
    for (const std::string& text : kube::embedded::BuiltInCrds()) {
      const nlohmann::json crd = nlohmann::json::parse(text);
      const nlohmann::json& spec = crd["spec"];
      const std::string kind = spec["names"]["kind"];
      if (all->contains(kind)) continue;
      nlohmann::json shape = spec["versions"][0]["schema"]["openAPIV3Schema"];
      for (const char* field : {"apiVersion", "kind"})
        shape["properties"][field]["type"] = "string";
      auto schema = kube::embedded::SchemaFromOpenApi(shape);
      if (!schema.ok()) continue;
      auto whole = std::make_shared<Schema>(**schema);
      whole->fields["metadata"] = std::make_shared<Schema>();
      (*all)[kind] = {spec["group"].get<std::string>() + "/", std::move(whole)};
    }
    return all;
  }();
  return *kAll;
}

// --- where ---

// What a path leads to: "spec.containers[0].resources.limits[nvidia.com/gpu]"; `line` gets that of
// the last step that is there.
YamlValue Walk(YamlValue value, std::string_view path, int* line) {
  size_t at = 0;
  while (at < path.size()) {
    if (path[at] == '.') ++at;
    if (at < path.size() && path[at] == '[') {
      const size_t end = path.find(']', at);
      if (end == std::string_view::npos) return {};
      const std::string_view step = path.substr(at + 1, end - at - 1);
      int64_t index = 0;
      const std::vector<YamlValue> items = value.Items();
      if (value.is_sequence() && ParseInt(step, &index) && index >= 0 &&
          index < static_cast<int64_t>(items.size())) {
        value = items[static_cast<size_t>(index)];
      } else {
        value = value.Get(step);
      }
      at = end + 1;
    } else {
      // A key may have dots: the longest that is there.
      YamlValue next;
      size_t best = 0;
      for (const yaml::YamlField& field : value.Fields()) {
        const bool ends =
            path.size() == at + field.key.size() ||
            (path.size() > at + field.key.size() &&
             (path[at + field.key.size()] == '.' || path[at + field.key.size()] == '['));
        if (!ends || !path.substr(at).starts_with(field.key) || field.key.size() < best) continue;
        best = field.key.size();
        next = YamlValue(field.value, field.line);
      }
      value = next;
      at += best > 0 ? best : path.size();
    }
    if (value.node() == nullptr) return value;
    *line = value.line();
  }
  return value;
}

// --- what was meant ---

// So few letters are added, left out or changed in between that one is taken for the other.
bool IsNear(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (a.size() >= 5 && b.starts_with(a)) return true;
  const size_t most = b.size() < 6 ? 1 : 2;
  if (b.size() - a.size() > most) return false;
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t before = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = std::tolower(static_cast<unsigned char>(a[i - 1])) ==
                        std::tolower(static_cast<unsigned char>(b[j - 1]));
      const size_t changed = before + (same ? 0 : 1);
      before = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()] <= most;
}

// The schema of the object that a path leads to.
const Schema* SchemaAt(const Schema* schema, std::string_view path) {
  for (std::string_view step : SplitWords(path, ".")) {
    const size_t items = step.find('[');
    schema = schema == nullptr ? nullptr : schema->Field(step.substr(0, items));
    if (items != std::string_view::npos && schema != nullptr) schema = schema->element.get();
  }
  return schema;
}

// The nearest path below which there is a field of this name; empty: nowhere.
std::string PathOf(std::string_view name, const Schema* root, const std::string& prefix) {
  std::vector<std::pair<const Schema*, std::string>> open = {{root, prefix}};
  std::set<const Schema*> seen;
  for (size_t i = 0; i < open.size(); ++i) {
    const auto [schema, path] = open[i];
    if (schema == nullptr || !seen.insert(schema).second) continue;
    if (schema->fields.contains(name)) return Concat(path, path.empty() ? "" : ".", name);
    for (const auto& [key, field] : schema->fields) {
      if (i == 0 && (key == "status" || key == "metadata")) continue;
      const bool list = field != nullptr && field->type == Schema::Type::kList;
      open.emplace_back(list ? field->element.get() : field.get(),
                        Concat(path, path.empty() ? "" : ".", key, list ? "[]" : ""));
    }
    if (schema->type == Schema::Type::kMap) open.emplace_back(schema->element.get(), path);
  }
  return "";
}

class Look {
 public:
  Look(std::string what, std::string file, YamlValue object, const Schema& schema,
       Findings* findings)
      : what_(std::move(what)),
        file_(std::move(file)),
        object_(std::move(object)),
        schema_(schema),
        findings_(findings),
        json_(JsonOf(object_)) {}

  // False if the types of its values aren't right, so that nothing more can be asked.
  bool At(const char* only_below) {
    const auto found = kube::embedded::ApplySchema(schema_, /*keep_unknown=*/true, &json_);
    for (const std::string& path : found.unknown_fields) {
      if (only_below == nullptr || path.starts_with(only_below)) Unknown(path);
    }
    if (only_below != nullptr) return found.type_errors.empty();
    for (const std::string& text : found.type_errors) WrongType(text);
    for (const auto& cause : found.constraints.causes()) Refused(cause);
    return found.type_errors.empty() && json_.is_object();
  }

  void AsPods() {
    if (!At(nullptr) || !json_.contains("spec")) return;
    kube::embedded::DefaultPod(&json_);
    kube::embedded::FieldErrors errors;
    kube::embedded::ValidatePod(json_, &errors);
    for (const auto& cause : errors.causes()) Refused(cause);
  }

 private:
  // Only what was likely meant otherwise: newer versions have more fields than are known.
  void Unknown(const std::string& path) {
    const size_t dot = path.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : path.substr(0, dot);
    const std::string name = dot == std::string::npos ? path : path.substr(dot + 1);
    std::string fix;
    if (const Schema* at = SchemaAt(&schema_, parent)) {
      for (const auto& [field, type] : at->fields) {
        if (IsNear(name, field)) fix = Concat("call it ", field);
      }
    }
    if (fix.empty()) {
      const std::string elsewhere = PathOf(name, &schema_, "");
      if (!elsewhere.empty()) fix = Concat("it belongs to ", elsewhere);
    }
    if (fix.empty()) return;
    Tell(path, Concat("there is no field ", path, ": the API server refuses or drops it"), fix);
  }

  void WrongType(const std::string& text) {
    const std::string path = text.substr(0, text.find(": "));
    int line = 0;
    const YamlValue value = Walk(object_, path, &line);
    const bool unquoted = text.find("want a string") != std::string::npos && value.is_scalar();
    Tell(
        path, Concat("the API server refuses ", text),
        unquoted ? Concat("write it in quotes: \"", value.Text(), "\"") : Concat("correct ", path));
  }

  void Refused(const kube::embedded::ErrorCause& cause) {
    Tell(cause.field, Concat("the API server refuses ", cause.field, ": ", cause.message),
         cause.reason == "FieldValueRequired" ? Concat("say ", cause.field)
                                              : Concat("correct ", cause.field));
  }

  void Tell(const std::string& path, const std::string& message, const std::string& fix) {
    int line = object_.line();
    Walk(object_, path, &line);
    if (findings_->HasErrorAt(file_, line)) return;
    findings_->Add(kRefused, file_, line, Concat(what_, ": ", message), fix);
  }

  const std::string what_;
  const std::string file_;
  const YamlValue object_;
  const Schema& schema_;
  Findings* const findings_;
  nlohmann::json json_;
};

}  // namespace

void CheckByApi(const Workload& workload, Findings* findings) {
  if (workload.unreadable) return;
  const std::string what = workload.ToString();
  const std::string& version = workload.yaml.Get("apiVersion").Text();
  if (const auto known = CustomSchemas().find(workload.kind); known != CustomSchemas().end()) {
    if (version.starts_with(known->second.group)) {
      Look(what, workload.file, workload.yaml, *known->second.schema, findings).At(nullptr);
    }
  } else if (workload.kind == "Job" || workload.kind == "StatefulSet") {
    Look(what, workload.file, workload.yaml, *kube::embedded::CoreSchema(workload.kind), findings)
        .At(nullptr);
  }
  for (const PodTemplate& pods : workload.templates) {
    if (pods.incomplete || pods.told_at > 0 || !pods.whole.present()) continue;
    const bool alone = pods.whole.Get("kind").present();
    const auto schema = kube::embedded::CoreSchema(alone ? "Pod" : "PodTemplateSpec");
    Look(what, pods.file, pods.whole, *schema, findings).AsPods();
  }
}

void CheckByApi(const Written& object, Findings* findings) {
  const std::string& kind = object.yaml.Get("kind").Text();
  const auto known = CustomSchemas().find(kind);
  if (known == CustomSchemas().end() ||
      !object.yaml.Get("apiVersion").Text().starts_with(known->second.group)) {
    return;
  }
  const std::string what = Concat(kind, " ", object.yaml.At("metadata.name").Text());
  // What else is wrong with a ClusterQueue is what its judge says (judge.h).
  Look(what, object.file, object.yaml, *known->second.schema, findings)
      .At(kind == "ClusterQueue" ? "spec" : nullptr);
}

}  // namespace muster::lint
