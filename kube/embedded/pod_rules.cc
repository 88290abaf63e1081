#include "kube/embedded/pod_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "kube/embedded/container_rules.h"
#include "kube/embedded/json_fields.h"
#include "kube/embedded/metadata_rules.h"
#include "kube/objects/names.h"
#include "kube/objects/time_text.h"

namespace muster::kube::embedded {
namespace {

using Json = nlohmann::json;

constexpr const char* kUpdatableFields =
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

template <typename Value>
void Default(Json& object, const char* field, Value value) {
  if (!object.contains(field)) object[field] = std::move(value);
}

// Every pod tolerates the short absences of its node (plugin DefaultTolerationSeconds).
void DefaultTolerations(Json& spec) {
  for (const char* key : {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}) {
    const Json& tolerations = ListAt(spec, {"tolerations"});
    bool there = std::any_of(tolerations.begin(), tolerations.end(), [&](const Json& toleration) {
      const std::string& its_key = StringAt(toleration, {"key"});
      const std::string& effect = StringAt(toleration, {"effect"});
      return (its_key == key || its_key.empty()) && (effect == "NoExecute" || effect.empty());
    });
    if (there) continue;
    spec["tolerations"].push_back({{"key", key},
                                   {"operator", "Exists"},
                                   {"effect", "NoExecute"},
                                   {"tolerationSeconds", 300}});
  }
}

void ValidateTolerations(const Json& spec, FieldErrors* errors) {
  const Json& tolerations = ListAt(spec, {"tolerations"});
  for (size_t i = 0; i < tolerations.size(); ++i) {
    std::string path = fmt::format("spec.tolerations[{}]", i);
    const std::string& key = StringAt(tolerations[i], {"key"});
    const std::string& op = StringAt(tolerations[i], {"operator"});
    const std::string& effect = StringAt(tolerations[i], {"effect"});
    if (!key.empty() && !IsQualifiedName(key)) {
      errors->Invalid(path + ".key", Quoted(key), "must be a qualified name");
    }
    if (key.empty() && op != "Exists") {
      errors->Invalid(path + ".operator", Quoted(op),
                      "operator must be Exists when `key` is empty, which means \"match all values "
                      "and all keys\"");
    }
    if (!op.empty() && op != "Exists" && op != "Equal") {
      errors->NotSupported(path + ".operator", Quoted(op), {"Equal", "Exists"});
    }
    if (op == "Exists" && !StringAt(tolerations[i], {"value"}).empty()) {
      errors->Invalid(path + ".operator", Quoted(op),
                      "value must be empty when `operator` is 'Exists'");
    }
    if (!effect.empty() && effect != "NoSchedule" && effect != "PreferNoSchedule" &&
        effect != "NoExecute") {
      errors->NotSupported(path + ".effect", Quoted(effect),
                           {"NoSchedule", "PreferNoSchedule", "NoExecute"});
    }
  }
}

void ValidateGates(const Json& spec, FieldErrors* errors) {
  const Json& gates = ListAt(spec, {"schedulingGates"});
  std::set<std::string> seen;
  for (size_t i = 0; i < gates.size(); ++i) {
    std::string path = fmt::format("spec.schedulingGates[{}]", i);
    const std::string& name = StringAt(gates[i], {"name"});
    if (!IsQualifiedName(name)) {
      errors->Invalid(path, Quoted(name), "must be a qualified name");
    }
    if (!seen.insert(name).second) errors->Duplicate(path, Quoted(name));
  }
  if (!gates.empty() && !StringAt(spec, {"nodeName"}).empty()) {
    errors->Forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared");
  }
}

void ValidateNodeSelector(const Json& spec, FieldErrors* errors) {
  for (const auto& [key, value] : MapAt(spec, {"nodeSelector"}).items()) {
    if (!IsQualifiedName(key)) {
      errors->Invalid("spec.nodeSelector", Quoted(key), "must be a qualified name");
    }
    if (value.is_string() && !IsLabelValue(value.get_ref<const std::string&>())) {
      errors->Invalid("spec.nodeSelector", Quoted(value), "must be a label value");
    }
  }
}

void ValidateTopologySpread(const Json& spec, FieldErrors* errors) {
  const Json& constraints = ListAt(spec, {"topologySpreadConstraints"});
  for (size_t i = 0; i < constraints.size(); ++i) {
    std::string path = fmt::format("spec.topologySpreadConstraints[{}]", i);
    int64_t skew = IntAt(constraints[i], {"maxSkew"}).value_or(0);
    if (skew <= 0) {
      errors->Invalid(path + ".maxSkew", std::to_string(skew), "must be greater than zero");
    }
    if (StringAt(constraints[i], {"topologyKey"}).empty()) {
      errors->Required(path + ".topologyKey", "can not be empty");
    }
    const std::string& when = StringAt(constraints[i], {"whenUnsatisfiable"});
    if (when != "DoNotSchedule" && when != "ScheduleAnyway") {
      errors->NotSupported(path + ".whenUnsatisfiable", Quoted(when),
                           {"DoNotSchedule", "ScheduleAnyway"});
    }
  }
}

// Same containers but for their images.
bool SameButImages(const Json& before, const Json& after) {
  if (before.size() != after.size()) return false;
  for (size_t i = 0; i < before.size(); ++i) {
    Json copy = after[i];
    if (before[i].contains("image")) copy["image"] = before[i]["image"];
    if (copy != before[i]) return false;
  }
  return true;
}

void ValidateGateRemoval(const Json& before, const Json& after, FieldErrors* errors) {
  const Json& old_gates = ListAt(before, {"schedulingGates"});
  const Json& gates = ListAt(after, {"schedulingGates"});
  for (size_t i = 0; i < gates.size(); ++i) {
    if (std::find(old_gates.begin(), old_gates.end(), gates[i]) == old_gates.end()) {
      errors->Forbidden(fmt::format("spec.schedulingGates[{}].name", i),
                        fmt::format("only deletion is allowed, but found new scheduling gate '{}'",
                                    StringAt(gates[i], {"name"})));
    }
  }
}

void ValidateNodeAffinity(const Json& spec, FieldErrors* errors) {
  const char* const required = "requiredDuringSchedulingIgnoredDuringExecution";
  const Json& terms = ListAt(spec, {"affinity", "nodeAffinity", required, "nodeSelectorTerms"});
  for (size_t i = 0; i < terms.size(); ++i) {
    const Json& expressions = ListAt(terms[i], {"matchExpressions"});
    for (size_t j = 0; j < expressions.size(); ++j) {
      const std::string& op = StringAt(expressions[j], {"operator"});
      if (op == "In" || op == "NotIn" || op == "Exists" || op == "DoesNotExist" || op == "Gt" ||
          op == "Lt") {
        continue;
      }
      errors->Invalid(fmt::format("spec.affinity.nodeAffinity.{}.nodeSelectorTerms[{}]."
                                  "matchExpressions[{}].operator",
                                  required, i, j),
                      Quoted(op), "not a valid selector operator");
    }
  }
}

void ValidateTolerationAdditions(const Json& before, const Json& after, FieldErrors* errors) {
  const Json& tolerations = ListAt(after, {"tolerations"});
  auto kept = [&](const Json& old) {
    return std::any_of(tolerations.begin(), tolerations.end(), [&](Json toleration) {
      if (old.contains("tolerationSeconds") && toleration.contains("tolerationSeconds")) {
        toleration["tolerationSeconds"] = old["tolerationSeconds"];
      }
      return toleration == old;
    });
  };
  for (const Json& old : ListAt(before, {"tolerations"})) {
    if (kept(old)) continue;
    errors->Forbidden("spec.tolerations",
                      "existing toleration can not be modified except its tolerationSeconds");
    return;
  }
}

// Each old term is still there, with nothing but requirements added at its end.
bool OnlyAddsToTerms(const Json& before, const Json& after) {
  if (before.empty()) return true;
  if (before.size() != after.size()) return false;
  for (size_t i = 0; i < before.size(); ++i) {
    bool was_empty = ListAt(before[i], {"matchExpressions"}).empty() &&
                     ListAt(before[i], {"matchFields"}).empty();
    for (const char* field : {"matchExpressions", "matchFields"}) {
      const Json& old = ListAt(before[i], {field});
      const Json& now = ListAt(after[i], {field});
      if (was_empty && !now.empty()) return false;
      if (now.size() < old.size() || !std::equal(old.begin(), old.end(), now.begin())) return false;
    }
  }
  return true;
}

void ValidateGatedChanges(const Json& before, const Json& after, FieldErrors* errors) {
  const Json& selector = MapAt(after, {"nodeSelector"});
  for (const auto& [key, value] : MapAt(before, {"nodeSelector"}).items()) {
    auto it = selector.find(key);
    if (it != selector.end() && *it == value) continue;
    errors->Invalid("spec.nodeSelector", selector.dump(),
                    "only additions to spec.nodeSelector are allowed (no mutations or deletions)");
    break;
  }
  constexpr const char* kRequired = "requiredDuringSchedulingIgnoredDuringExecution";
  if (!OnlyAddsToTerms(
          ListAt(before, {"affinity", "nodeAffinity", kRequired, "nodeSelectorTerms"}),
          ListAt(after, {"affinity", "nodeAffinity", kRequired, "nodeSelectorTerms"}))) {
    errors->Invalid(fmt::format("spec.affinity.nodeAffinity.{}.nodeSelectorTerms", kRequired),
                    MapAt(after, {"affinity", "nodeAffinity", kRequired}).dump(),
                    "only additions are allowed (no mutations or deletions)");
  }
}

// A copy of `spec` in which everything that may change is as in `like`.
Json WithMutableFieldsOf(const Json& like, Json spec) {
  auto take = [&](const char* field) {
    auto it = like.find(field);
    if (it != like.end()) {
      spec[field] = *it;
    } else {
      spec.erase(field);
    }
  };
  for (const char* field : {"containers", "initContainers", "activeDeadlineSeconds", "tolerations",
                            "schedulingGates"}) {
    take(field);
  }
  if (IntAt(like, {"terminationGracePeriodSeconds"}).value_or(0) < 0 &&
      IntAt(spec, {"terminationGracePeriodSeconds"}) == 1) {
    take("terminationGracePeriodSeconds");
  }
  if (ListAt(like, {"schedulingGates"}).empty()) return spec;
  take("nodeSelector");
  if (spec.contains("affinity")) {
    spec["affinity"].erase("nodeAffinity");
    if (const Json* node_affinity = FieldAt(like, {"affinity", "nodeAffinity"})) {
      spec["affinity"]["nodeAffinity"] = *node_affinity;
    }
    if (spec["affinity"].empty() && !like.contains("affinity")) spec.erase("affinity");
  } else if (const Json* node_affinity = FieldAt(like, {"affinity", "nodeAffinity"})) {
    spec["affinity"]["nodeAffinity"] = *node_affinity;
  }
  return spec;
}

}  // namespace

void DefaultPod(Json* pod) {
  Json& spec = (*pod)["spec"];
  if (!spec.is_object()) spec = Json::object();
  Default(spec, "restartPolicy", "Always");
  Default(spec, "dnsPolicy", "ClusterFirst");
  Default(spec, "schedulerName", "default-scheduler");
  Default(spec, "terminationGracePeriodSeconds", 30);
  Default(spec, "enableServiceLinks", true);
  Default(spec, "securityContext", Json::object());
  Default(
      spec, "serviceAccountName",
      StringAt(spec, {"serviceAccount"}).empty() ? "default" : StringAt(spec, {"serviceAccount"}));
  Default(spec, "serviceAccount", StringAt(spec, {"serviceAccountName"}));
  for (const char* field : {"containers", "initContainers"}) {
    auto list = spec.find(field);
    if (list == spec.end() || !list->is_array()) continue;
    for (Json& container : *list) {
      if (container.is_object()) DefaultContainer(&container);
    }
  }
  DefaultTolerations(spec);
}

void InitPodStatus(absl::Time now, Json* pod) {
  (*pod)["status"] = {{"phase", "Pending"}, {"qosClass", QosClass((*pod)["spec"])}};
  if (ListAt(*pod, {"spec", "schedulingGates"}).empty()) return;
  SetPodCondition(now, "PodScheduled", "False", "SchedulingGated",
                  "Scheduling is blocked due to non-empty scheduling gates", pod);
}

void ValidatePod(const Json& pod, FieldErrors* errors) {
  const Json& spec = MapAt(pod, {"spec"});
  ValidateContainers(spec, errors);
  const std::string& restart = StringAt(spec, {"restartPolicy"});
  if (restart != "Always" && restart != "OnFailure" && restart != "Never") {
    errors->NotSupported("spec.restartPolicy", Quoted(restart), {"Always", "OnFailure", "Never"});
  }
  if (!StringAt(spec, {"nodeName"}).empty() && !IsDnsSubdomain(StringAt(spec, {"nodeName"}))) {
    errors->Invalid("spec.nodeName", Quoted(StringAt(spec, {"nodeName"})), "must be a node's name");
  }
  if (!IsQualifiedName(StringAt(spec, {"schedulerName"}))) {
    errors->Invalid("spec.schedulerName", Quoted(StringAt(spec, {"schedulerName"})),
                    "must be a qualified name");
  }
  ValidateTolerations(spec, errors);
  ValidateGates(spec, errors);
  ValidateNodeSelector(spec, errors);
  ValidateNodeAffinity(spec, errors);
  ValidateTopologySpread(spec, errors);
}

void ValidatePodUpdate(const Json& before, const Json& after, FieldErrors* errors) {
  const Json& old_spec = MapAt(before, {"spec"});
  const Json& spec = MapAt(after, {"spec"});
  if (old_spec == spec) return;
  ValidatePod(after, errors);
  ValidateTolerationAdditions(old_spec, spec, errors);
  ValidateGateRemoval(old_spec, spec, errors);
  std::optional<int64_t> old_deadline = IntAt(old_spec, {"activeDeadlineSeconds"});
  std::optional<int64_t> deadline = IntAt(spec, {"activeDeadlineSeconds"});
  if (old_deadline && (!deadline || *deadline > *old_deadline)) {
    errors->Invalid("spec.activeDeadlineSeconds", deadline ? std::to_string(*deadline) : "null",
                    "must be less than or equal to previous value");
  }
  if (!ListAt(old_spec, {"schedulingGates"}).empty()) ValidateGatedChanges(old_spec, spec, errors);
  bool same_containers =
      SameButImages(ListAt(old_spec, {"containers"}), ListAt(spec, {"containers"})) &&
      SameButImages(ListAt(old_spec, {"initContainers"}), ListAt(spec, {"initContainers"}));
  if (!same_containers || WithMutableFieldsOf(old_spec, spec) != old_spec) {
    Json fields = Json::array();
    Json changed = WithMutableFieldsOf(old_spec, spec);
    for (const Json& step : Json::diff(old_spec, changed)) fields.push_back(step["path"]);
    if (!same_containers) fields.push_back("/containers");
    errors->Forbidden("spec", fmt::format("pod updates may not change fields other than {}\n"
                                          "changed: {}",
                                          kUpdatableFields, fields.dump()));
  }
}

void ValidatePodStatusUpdate(const Json& before, const Json& after, FieldErrors* errors) {
  const std::string& qos = StringAt(after, {"status", "qosClass"});
  if (qos != StringAt(before, {"status", "qosClass"})) {
    errors->Invalid("status.qosClass", Quoted(qos), "field is immutable");
  }
  const std::string& nominated = StringAt(after, {"status", "nominatedNodeName"});
  if (!nominated.empty() && !IsDnsSubdomain(nominated)) {
    errors->Invalid("status.nominatedNodeName", Quoted(nominated), "must be a node's name");
  }
  const std::string& phase = StringAt(after, {"status", "phase"});
  const std::vector<std::string> phases = {"Pending", "Running", "Succeeded", "Failed", "Unknown"};
  if (!phase.empty() && std::find(phases.begin(), phases.end(), phase) == phases.end()) {
    errors->NotSupported("status.phase", Quoted(phase), phases);
  }
}

void SetPodCondition(absl::Time now, const std::string& type, const std::string& status,
                     const std::string& reason, const std::string& message, Json* pod) {
  Json condition = {{"type", type}, {"status", status}, {"lastTransitionTime", TimeText(now)}};
  if (!reason.empty()) condition["reason"] = reason;
  if (!message.empty()) condition["message"] = message;
  Json& conditions = (*pod)["status"]["conditions"];
  if (!conditions.is_array()) conditions = Json::array();
  for (Json& old : conditions) {
    if (StringAt(old, {"type"}) != type) continue;
    if (StringAt(old, {"status"}) == status && old.contains("lastTransitionTime")) {
      condition["lastTransitionTime"] = old["lastTransitionTime"];
    }
    old = std::move(condition);
    return;
  }
  conditions.push_back(std::move(condition));
}

}  // namespace muster::kube::embedded
