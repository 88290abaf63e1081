#include "kube/embedded/kind_rules.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "kube/embedded/container_rules.h"
#include "kube/embedded/json_fields.h"
#include "kube/embedded/metadata_rules.h"
#include "kube/embedded/pod_rules.h"
#include "kube/objects/names.h"

namespace muster::kube::embedded {
namespace {

using Json = nlohmann::json;

bool Is(const ResourceType& type, const char* kind) { return !type.custom && type.kind == kind; }

template <typename Value>
void Default(Json& object, const char* field, Value value) {
  if (!object.contains(field)) object[field] = std::move(value);
}

bool IsWebhookConfiguration(const ResourceType& type) {
  return Is(type, "MutatingWebhookConfiguration") || Is(type, "ValidatingWebhookConfiguration");
}

void DefaultWebhook(const ResourceType& type, Json& webhook) {
  Default(webhook, "failurePolicy", "Fail");
  Default(webhook, "matchPolicy", "Equivalent");
  Default(webhook, "timeoutSeconds", 10);
  if (Is(type, "MutatingWebhookConfiguration")) Default(webhook, "reinvocationPolicy", "Never");
  Default(webhook, "namespaceSelector", Json::object());
  Default(webhook, "objectSelector", Json::object());
  auto rules = webhook.find("rules");
  if (rules == webhook.end() || !rules->is_array()) return;
  for (Json& rule : *rules) Default(rule, "scope", "*");
}

void ValidateWebhook(const Json& webhook, const std::string& path, FieldErrors* errors) {
  const std::string& name = StringAt(webhook, {"name"});
  if (!IsDnsSubdomain(name) || std::count(name.begin(), name.end(), '.') < 2) {
    errors->Invalid(path + ".name", Quoted(name),
                    "should be a domain with at least three segments separated by dots");
  }
  bool url = !StringAt(webhook, {"clientConfig", "url"}).empty();
  bool service = FieldAt(webhook, {"clientConfig", "service"}) != nullptr;
  if (url == service) {
    errors->Required(path + ".clientConfig", "exactly one of url or service is required");
  }
  if (url && !StringAt(webhook, {"clientConfig", "url"}).starts_with("https://")) {
    errors->Invalid(path + ".clientConfig.url", Quoted(StringAt(webhook, {"clientConfig", "url"})),
                    "'https' is the only allowed URL scheme");
  }
  const std::string& side_effects = StringAt(webhook, {"sideEffects"});
  if (side_effects.empty()) {
    errors->Required(path + ".sideEffects", "must specify one of None, NoneOnDryRun");
  } else if (side_effects != "None" && side_effects != "NoneOnDryRun") {
    errors->NotSupported(path + ".sideEffects", Quoted(side_effects), {"None", "NoneOnDryRun"});
  }
  const std::string& policy = StringAt(webhook, {"failurePolicy"});
  if (policy != "Fail" && policy != "Ignore") {
    errors->NotSupported(path + ".failurePolicy", Quoted(policy), {"Fail", "Ignore"});
  }
  int64_t timeout = IntAt(webhook, {"timeoutSeconds"}).value_or(0);
  if (timeout < 1 || timeout > 30) {
    errors->Invalid(path + ".timeoutSeconds", std::to_string(timeout),
                    "the timeout value must be between 1 and 30 seconds");
  }
  const Json& versions = ListAt(webhook, {"admissionReviewVersions"});
  if (std::find(versions.begin(), versions.end(), "v1") == versions.end()) {
    errors->Invalid(path + ".admissionReviewVersions", versions.dump(), "must include v1");
  }
}

void ValidateWebhooks(const Json& configuration, FieldErrors* errors) {
  std::set<std::string> names;
  const Json& webhooks = ListAt(configuration, {"webhooks"});
  for (size_t i = 0; i < webhooks.size(); ++i) {
    std::string path = fmt::format("webhooks[{}]", i);
    ValidateWebhook(webhooks[i], path, errors);
    if (!names.insert(StringAt(webhooks[i], {"name"})).second) {
      errors->Duplicate(path + ".name", Quoted(StringAt(webhooks[i], {"name"})));
    }
  }
}

void ValidateNode(const Json& node, FieldErrors* errors) {
  std::set<std::pair<std::string, std::string>> seen;
  const Json& taints = ListAt(node, {"spec", "taints"});
  for (size_t i = 0; i < taints.size(); ++i) {
    std::string path = fmt::format("spec.taints[{}]", i);
    const std::string& key = StringAt(taints[i], {"key"});
    const std::string& effect = StringAt(taints[i], {"effect"});
    if (!IsQualifiedName(key)) {
      errors->Invalid(path + ".key", Quoted(key), "must be a qualified name");
    }
    if (!IsLabelValue(StringAt(taints[i], {"value"}))) {
      errors->Invalid(path + ".value", Quoted(StringAt(taints[i], {"value"})),
                      "must be a label value");
    }
    if (effect != "NoSchedule" && effect != "PreferNoSchedule" && effect != "NoExecute") {
      errors->NotSupported(path + ".effect", Quoted(effect),
                           {"NoSchedule", "PreferNoSchedule", "NoExecute"});
    }
    if (!seen.emplace(key, effect).second) errors->Duplicate(path, Quoted(key));
  }
  ValidateResourceMap(MapAt(node, {"status", "capacity"}), "status.capacity", errors);
  ValidateResourceMap(MapAt(node, {"status", "allocatable"}), "status.allocatable", errors);
}

void ValidateEvent(const Json& event, FieldErrors* errors) {
  const std::string& its = StringAt(event, {"metadata", "namespace"});
  const std::string& about = StringAt(event, {"involvedObject", "namespace"});
  if (its == about || (about.empty() && (its == "default" || its == "kube-system"))) return;
  errors->Invalid("involvedObject.namespace", Quoted(about), "does not match event.namespace");
}

void ValidateJob(const Json& job, FieldErrors* errors) {
  const Json* spec = FieldAt(job, {"spec", "template", "spec"});
  if (spec == nullptr) {
    errors->Required("spec.template.spec");
    return;
  }
  const std::string& restart = StringAt(*spec, {"restartPolicy"});
  if (restart.empty()) {
    errors->Required("spec.template.spec.restartPolicy", R"(valid values: "OnFailure", "Never")");
  } else if (restart != "OnFailure" && restart != "Never") {
    errors->NotSupported("spec.template.spec.restartPolicy", Quoted(restart),
                         {"OnFailure", "Never"});
  }
  for (const char* field : {"parallelism", "completions", "backoffLimit"}) {
    std::optional<int64_t> value = IntAt(job, {"spec", field});
    if (value && *value < 0) {
      errors->Invalid(fmt::format("spec.{}", field), std::to_string(*value),
                      "must be greater than or equal to 0");
    }
  }
}

// ValidateLeaseSpec of pkg/apis/coordination/validation v1.34.
void ValidateLease(const Json& lease, FieldErrors* errors) {
  const std::optional<int64_t> duration = IntAt(lease, {"spec", "leaseDurationSeconds"});
  if (duration && *duration <= 0) {
    errors->Invalid("spec.leaseDurationSeconds", std::to_string(*duration),
                    "must be greater than 0");
  }
  const std::optional<int64_t> transitions = IntAt(lease, {"spec", "leaseTransitions"});
  if (transitions && *transitions < 0) {
    errors->Invalid("spec.leaseTransitions", std::to_string(*transitions),
                    "must be greater than or equal to 0");
  }
}

// What can't be changed once it is there.
void ValidateFixed(const ResourceType& type, const Json& before, const Json& after,
                   FieldErrors* errors) {
  if (Is(type, "ConfigMap") && BoolAt(before, {"immutable"})) {
    const char* const fixed = "field is immutable when `immutable` is set";
    if (!BoolAt(after, {"immutable"})) errors->Forbidden("immutable", fixed);
    for (const char* field : {"data", "binaryData"}) {
      const Json* was = FieldAt(before, {field});
      const Json* is = FieldAt(after, {field});
      const bool same = was == nullptr || is == nullptr ? was == is : *was == *is;
      if (!same) errors->Forbidden(field, fixed);
    }
  }
  if (Is(type, "PriorityClass") && IntAt(before, {"value"}) != IntAt(after, {"value"})) {
    errors->Forbidden("value", "may not be changed in an update.");
  }
}

void ValidateCrd(const Json& crd, FieldErrors* errors) {
  const std::string& group = StringAt(crd, {"spec", "group"});
  const std::string& plural = StringAt(crd, {"spec", "names", "plural"});
  if (!IsDnsSubdomain(group)) errors->Invalid("spec.group", Quoted(group), "must be a DNS name");
  if (!IsDnsLabel(plural)) {
    errors->Invalid("spec.names.plural", Quoted(plural), "must be a DNS label");
  }
  if (StringAt(crd, {"spec", "names", "kind"}).empty()) errors->Required("spec.names.kind");
  if (StringAt(crd, {"metadata", "name"}) != plural + "." + group) {
    errors->Invalid("metadata.name", Quoted(StringAt(crd, {"metadata", "name"})),
                    "must be spec.names.plural+\".\"+spec.group");
  }
  const std::string& scope = StringAt(crd, {"spec", "scope"});
  if (scope != "Namespaced" && scope != "Cluster") {
    errors->NotSupported("spec.scope", Quoted(scope), {"Cluster", "Namespaced"});
  }
  int storage = 0;
  for (const Json& version : ListAt(crd, {"spec", "versions"})) {
    storage += BoolAt(version, {"storage"}) ? 1 : 0;
  }
  if (storage != 1) {
    errors->Invalid("spec.versions", std::to_string(storage),
                    "must have exactly one version marked as storage version");
  }
}

// pkg/apis/batch/v1/defaults.go v1.34: a Job with parallelism alone is a work queue, which has no
// number of completions.
void DefaultJob(Json& spec) {
  if (!spec.contains("parallelism")) Default(spec, "completions", 1);
  Default(spec, "parallelism", 1);
  Default(spec, "backoffLimit", 6);
  Default(spec, "completionMode", "NonIndexed");
  Default(spec, "suspend", false);
}

void DefaultCrd(Json& crd) {
  Json& names = crd["spec"]["names"];
  if (!names.is_object()) return;
  const std::string& kind = StringAt(names, {"kind"});
  std::string singular = kind;
  std::transform(singular.begin(), singular.end(), singular.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  Default(names, "singular", singular);
  Default(names, "listKind", kind + "List");
}

}  // namespace

void DefaultObject(const ResourceType& type, Json* object) {
  if (type.custom) return;
  if (Is(type, "Pod")) return DefaultPod(object);
  Json& it = *object;
  if (Is(type, "Namespace")) {
    Default(it["spec"], "finalizers", Json::array({"kubernetes"}));
    it["metadata"]["labels"]["kubernetes.io/metadata.name"] = StringAt(it, {"metadata", "name"});
  } else if (Is(type, "Node")) {
    if (!MapAt(it, {"status", "capacity"}).empty()) {
      Default(it["status"], "allocatable", it["status"]["capacity"]);
    }
  } else if (Is(type, "StorageClass")) {
    Default(it, "reclaimPolicy", "Delete");
    Default(it, "volumeBindingMode", "Immediate");
  } else if (Is(type, "Job")) {
    DefaultJob(it["spec"]);
  } else if (Is(type, "StatefulSet")) {
    Default(it["spec"], "replicas", 1);
    Default(it["spec"], "podManagementPolicy", "OrderedReady");
  } else if (Is(type, "Service")) {
    Default(it["spec"], "type", "ClusterIP");
    Default(it["spec"], "sessionAffinity", "None");
  } else if (Is(type, "PersistentVolumeClaim")) {
    Default(it["spec"], "volumeMode", "Filesystem");
  } else if (Is(type, "PersistentVolume")) {
    Default(it["spec"], "volumeMode", "Filesystem");
    Default(it["spec"], "persistentVolumeReclaimPolicy", "Retain");
  } else if (Is(type, "PriorityClass")) {
    Default(it, "preemptionPolicy", "PreemptLowerPriority");
  } else if (Is(type, "Event")) {
    Default(it, "type", "Normal");
  } else if (Is(type, "CustomResourceDefinition")) {
    DefaultCrd(it);
  } else if (IsWebhookConfiguration(type) && it.contains("webhooks")) {
    for (Json& webhook : it["webhooks"]) DefaultWebhook(type, webhook);
  }
}

void InitStatus(const ResourceType& type, absl::Time now, Json* object) {
  if (!type.status_subresource || type.keeps_status_on_create) return;
  if (Is(type, "Pod")) return InitPodStatus(now, object);
  object->erase("status");
  if (Is(type, "Namespace")) {
    (*object)["status"] = {{"phase", "Active"}};
  } else if (Is(type, "PersistentVolumeClaim") || Is(type, "PersistentVolume")) {
    (*object)["status"] = {{"phase", "Pending"}};
  } else if (Is(type, "Service")) {
    (*object)["status"] = {{"loadBalancer", Json::object()}};
  } else if (!type.custom) {
    (*object)["status"] = Json::object();
  }
}

void ValidateNew(const ResourceType& type, const Json& object, FieldErrors* errors) {
  ValidateMetadata(type, object, errors);
  if (Is(type, "Pod")) return ValidatePod(object, errors);
  if (Is(type, "Node")) return ValidateNode(object, errors);
  if (Is(type, "Event")) return ValidateEvent(object, errors);
  if (Is(type, "Job")) return ValidateJob(object, errors);
  if (Is(type, "Lease")) return ValidateLease(object, errors);
  if (IsWebhookConfiguration(type)) return ValidateWebhooks(object, errors);
  if (Is(type, "CustomResourceDefinition")) return ValidateCrd(object, errors);
  if (Is(type, "StorageClass") && StringAt(object, {"provisioner"}).empty()) {
    errors->Required("provisioner");
  }
  if ((Is(type, "DaemonSet") || Is(type, "StatefulSet")) &&
      FieldAt(object, {"spec", "template", "spec"}) == nullptr) {
    errors->Required("spec.template.spec");
  }
}

void ValidateChange(const ResourceType& type, const Json& before, const Json& after,
                    bool status_only, FieldErrors* errors) {
  ValidateMetadataUpdate(before, after, errors);
  ValidateFixed(type, before, after, errors);
  if (!Is(type, "Pod")) return ValidateNew(type, after, errors);
  ValidateMetadata(type, after, errors);
  if (status_only) return ValidatePodStatusUpdate(before, after, errors);
  ValidatePodUpdate(before, after, errors);
}

bool SpecDiffers(const Json& before, const Json& after) {
  auto is_spec = [](const std::string& field) { return field != "metadata" && field != "status"; };
  for (const auto& [field, value] : after.items()) {
    if (!is_spec(field)) continue;
    auto it = before.find(field);
    if (it == before.end() || *it != value) return true;
  }
  for (const auto& [field, value] : before.items()) {
    if (is_spec(field) && !after.contains(field)) return true;
  }
  return false;
}

}  // namespace muster::kube::embedded
