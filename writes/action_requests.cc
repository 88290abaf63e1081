#include "writes/action_requests.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "cluster/suspect_nodes.h"
#include "coscheduling/admission/record.h"
#include "coscheduling/labels.h"
#include "fmt/format.h"
#include "kube/objects/node_holds.h"
#include "kube/objects/quantity.h"
#include "kube/objects/time_text.h"
#include "kube/objects/well_known.h"

namespace muster::writes {
namespace {

using coscheduling::ObjectRef;
using nlohmann::json;

std::string PodPath(const ObjectRef& pod) {
  return fmt::format("/api/v1/namespaces/{}/pods/{}", pod.name_space, pod.name);
}

std::string PodGroupPath(const ObjectRef& group) {
  return fmt::format("/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups/{}",
                     group.name_space, group.name);
}

// Status is written in this one alone: what an apply of another version owns isn't taken away.
constexpr std::string_view kWorkloadVersion = "v1beta2";

// Messages quote what programs in containers have said: that need not be UTF-8.
std::string Text(const json& body) {
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

kube::Request Patch(std::string path, std::string_view type, const json& body) {
  kube::Request request;
  request.method = kube::Method::kPatch;
  request.path = std::move(path);
  request.content_type = type;
  request.body = Text(body);
  return request;
}

kube::Request Post(std::string path, const json& body) {
  kube::Request request;
  request.method = kube::Method::kPost;
  request.path = std::move(path);
  request.content_type = kube::kJson;
  request.body = Text(body);
  return request;
}

kube::Request Get(std::string path) {
  kube::Request request;
  request.path = std::move(path);
  return request;
}

ActionRequest OnPod(const ObjectRef& pod, kube::Request request, AnswerKind answer) {
  return {std::move(request), answer, Get(PodPath(pod)), AnswerKind::kPod};
}

// A uid in a patch's metadata is a precondition: 409 if the object has another
// (k8s.io/apiserver pkg/registry/rest/update.go v0.34). So is resourceVersion.
json Identity(const ObjectRef& object) { return {{"uid", object.uid}}; }
json Version(const ObjectRef& object) {
  return {{"uid", object.uid}, {"resourceVersion", object.resource_version}};
}

json Replace(std::string_view path, const std::string& value) {
  return {{"op", "replace"}, {"path", path}, {"value", value}};
}

// In a JSON patch. A `test` that fails is 422; these make it 409, as in every other patch here.
json Preconditions(const ObjectRef& object) {
  return json::array({Replace("/metadata/uid", object.uid),
                      Replace("/metadata/resourceVersion", object.resource_version)});
}

json Add(const std::string& path, json value) {
  return {{"op", "add"}, {"path", path}, {"value", std::move(value)}};
}

std::string EntryPath(const std::string& path, const std::string& key) {
  return fmt::format("{}/{}", path, absl::StrReplaceAll(key, {{"~", "~0"}, {"/", "~1"}}));
}

void AddEntries(const std::string& path, bool exists, const std::map<std::string, std::string>& map,
                json* operations) {
  if (map.empty()) return;
  if (!exists) operations->push_back(Add(path, json::object()));
  for (const auto& [key, value] : map) {
    operations->push_back(Add(EntryPath(path, key), value));
  }
}

const char* EffectName(kube::TaintEffect effect) {
  switch (effect) {
    case kube::TaintEffect::kNoSchedule:
      return "NoSchedule";
    case kube::TaintEffect::kPreferNoSchedule:
      return "PreferNoSchedule";
    case kube::TaintEffect::kNoExecute:
      return "NoExecute";
  }
  return "";
}

json TolerationJson(const quota::FlavorAdditions::Tolerate& added) {
  const kube::Toleration& toleration = added.toleration;
  json out = {{"operator", toleration.exists ? "Exists" : "Equal"}};
  if (!toleration.key.empty()) out["key"] = toleration.key;
  if (!toleration.exists) out["value"] = toleration.value;
  if (toleration.effect) out["effect"] = EffectName(*toleration.effect);
  if (added.seconds) out["tolerationSeconds"] = *added.seconds;
  return out;
}

// As Kueue writes amounts: cpu in milli, the rest whole.
std::string QuantityText(const std::string& resource, int64_t amount) {
  return resource == kube::kCpu ? fmt::format("{}m", amount) : fmt::format("{}", amount);
}

// A LocalQueue can't borrow: its usage has no such field.
json UsageJson(const std::vector<quota::FlavorUsage>& usage, bool local) {
  json flavors = json::array();
  for (const quota::FlavorUsage& item : usage) {
    if (flavors.empty() || flavors.back()["name"] != item.flavor) {
      flavors.push_back({{"name", item.flavor}, {"resources", json::array()}});
    }
    json entry = {{"name", item.resource}, {"total", QuantityText(item.resource, item.reserved)}};
    if (!local) entry["borrowed"] = QuantityText(item.resource, item.borrowed);
    flavors.back()["resources"].push_back(std::move(entry));
  }
  return flavors;
}

const char* OperatorName(kube::SelectorOperator op) {
  switch (op) {
    case kube::SelectorOperator::kIn:
      return "In";
    case kube::SelectorOperator::kNotIn:
      return "NotIn";
    case kube::SelectorOperator::kExists:
      return "Exists";
    case kube::SelectorOperator::kDoesNotExist:
      return "DoesNotExist";
    case kube::SelectorOperator::kGt:
      return "Gt";
    case kube::SelectorOperator::kLt:
      return "Lt";
  }
  return "";
}

json RequirementsJson(const std::vector<kube::Requirement>& requirements) {
  json out = json::array();
  for (const kube::Requirement& requirement : requirements) {
    json one = {{"key", requirement.key}, {"operator", OperatorName(requirement.op)}};
    if (!requirement.values.empty()) one["values"] = requirement.values;
    out.push_back(std::move(one));
  }
  return out;
}

json NodeTermsJson(const std::vector<kube::NodeSelectorTerm>& terms) {
  json out = json::array();
  for (const kube::NodeSelectorTerm& term : terms) {
    json one = json::object();
    if (!term.match_expressions.empty()) {
      one["matchExpressions"] = RequirementsJson(term.match_expressions);
    }
    if (!term.match_fields.empty()) one["matchFields"] = RequirementsJson(term.match_fields);
    out.push_back(std::move(one));
  }
  return out;
}

// What isn't there is made as a whole.
void SetNodeTerms(const quota::OtherChoice::Terms& set, json* operations) {
  const std::string affinity = fmt::format("/spec/podSets/{}/template/spec/affinity", set.pod_set);
  const std::string node = affinity + "/nodeAffinity";
  const std::string required = node + "/requiredDuringSchedulingIgnoredDuringExecution";
  if (!set.terms) {
    operations->push_back({{"op", "remove"}, {"path", required}});
    return;
  }
  if (!set.has_affinity) operations->push_back(Add(affinity, json::object()));
  if (!set.has_node_affinity) operations->push_back(Add(node, json::object()));
  operations->push_back(Add(required, {{"nodeSelectorTerms", NodeTermsJson(*set.terms)}}));
}

// What quota looks at, as the template of a pod set.
json TemplateJson(const kube::PodSpec& spec) {
  json requests = json::object();
  for (const auto& [resource, amount] : spec.requests.entries()) {
    if (resource == kube::kPods) continue;
    requests[resource] = kube::FormatQuantity(amount, kube::UnitOf(resource));
  }
  json pod = {
      {"restartPolicy", "Never"},
      {"containers",
       json::array({{{"name", "member"}, {"resources", {{"requests", std::move(requests)}}}}})}};
  if (!spec.node_selector.empty()) {
    for (const auto& [key, value] : spec.node_selector) pod["nodeSelector"][key] = value;
  }
  for (const kube::Toleration& toleration : spec.tolerations) {
    pod["tolerations"].push_back(TolerationJson({toleration, std::nullopt}));
  }
  if (spec.affinity.required_node_terms) {
    pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = {
        {"nodeSelectorTerms", NodeTermsJson(*spec.affinity.required_node_terms)}};
  }
  return {{"spec", std::move(pod)}};
}

bool IsNamed(const json& variable) {
  return variable.is_object() && variable.contains("name") && variable["name"].is_string();
}

// A job's own template, as Kueue copies it. Of environment variables of one name the last counts,
// and a Workload may have no others.
json TemplateAsWritten(const std::string& text) {
  json pod = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!pod.is_object() || !pod.contains("spec") || !pod["spec"].is_object()) return nullptr;
  for (const char* list : {"containers", "initContainers"}) {
    if (!pod["spec"].contains(list) || !pod["spec"][list].is_array()) continue;
    for (json& container : pod["spec"][list]) {
      if (!container.is_object() || !container.contains("env")) continue;
      if (!std::ranges::all_of(container["env"], IsNamed)) continue;
      std::map<std::string, json> last;
      std::vector<std::string> names;
      for (const json& variable : container["env"]) {
        const std::string name = variable["name"];
        if (!last.contains(name)) names.push_back(name);
        last[name] = variable;
      }
      container["env"] = json::array();
      for (const std::string& name : names) container["env"].push_back(std::move(last[name]));
    }
  }
  return pod;
}

// In one slice: what all its domains have in common is said once.
json TopologyJson(const kube::TopologyAssignment& standing) {
  json values_per_level = json::array();
  for (size_t level = 0; level < standing.levels.size(); ++level) {
    json roots = json::array();
    for (const auto& [values, pods] : standing.pods) roots.push_back(values[level]);
    const bool alike =
        std::ranges::all_of(roots, [&](const json& each) { return each == roots[0]; });
    json values = json::object();
    if (alike) {
      values["universal"] = roots[0];
    } else {
      values["individual"]["roots"] = std::move(roots);
    }
    values_per_level.push_back(std::move(values));
  }
  json counts = json::array();
  for (const auto& [values, pods] : standing.pods) counts.push_back(pods);
  const bool alike =
      std::ranges::all_of(counts, [&](const json& each) { return each == counts[0]; });
  json slice = {{"domainCount", standing.pods.size()},
                {"valuesPerLevel", std::move(values_per_level)}};
  slice["podCounts"][alike ? "universal" : "individual"] = alike ? counts[0] : std::move(counts);
  return {{"levels", standing.levels}, {"slices", json::array({std::move(slice)})}};
}

json AdmissionJson(const quota::Admission& admission) {
  json assignments = json::array();
  for (const quota::PodSetAssignment& given : admission.pod_sets) {
    json usage = json::object();
    for (const auto& [resource, amount] : given.usage.entries()) {
      usage[resource] = kube::FormatQuantity(amount, kube::UnitOf(resource));
    }
    assignments.push_back({{"name", given.name},
                           {"count", given.count},
                           {"flavors", given.flavors},
                           {"resourceUsage", std::move(usage)}});
    if (!given.topology.pods.empty()) {
      assignments.back()["topologyAssignment"] = TopologyJson(given.topology);
    }
  }
  return {{"clusterQueue", admission.cluster_queue}, {"podSetAssignments", std::move(assignments)}};
}

std::string WorkloadsPath(std::string_view version, const std::string& name_space) {
  return fmt::format("/apis/kueue.x-k8s.io/{}/namespaces/{}/workloads", version, name_space);
}

// Condition Active of a queue, in the words of sigs.k8s.io/kueue v0.19.2
// (pkg/cache/scheduler/clusterqueue.go, pkg/controller/core/localqueue_controller.go).
json ActiveJson(const quota::QueueStatus& queue, bool local) {
  std::string reason = queue.stopped.empty() ? "Ready" : queue.stopped;
  std::string message =
      local ? "Can submit new workloads to localQueue" : "Can admit new workloads";
  if (!queue.error.empty()) {
    if (queue.stopped.empty()) reason = "NotReady";
    message = queue.error;
  } else if (reason == "Stopped") {
    message = local ? "LocalQueue is stopped" : "Can't admit new workloads: is stopped.";
  } else if (reason == "Terminating") {
    message = "Can't admit new workloads; clusterQueue is terminating";
  } else if (!queue.stopped.empty()) {
    message = "Can't submit new workloads to clusterQueue";
  }
  return {{"type", "Active"},
          {"status", reason == "Ready" ? "True" : "False"},
          {"reason", std::move(reason)},
          {"message", std::move(message)}};
}

void Merge(const std::map<std::string, std::string>& added, json* to) {
  if (added.empty()) return;
  if (!to->is_object()) *to = json::object();
  for (const auto& [key, value] : added) (*to)[key] = value;
}

json At(const json& object, const char* key) {
  return object.is_object() && object.contains(key) ? object.at(key) : json();
}

// What of a template is changed, as whole fields: what it will be, null where it has none.
void ChangeTemplate(const quota::TemplateChange& change, json* operations) {
  const json now = json::parse(change.now, nullptr, /*allow_exceptions=*/false);
  const json had = json::parse(change.original, nullptr, /*allow_exceptions=*/false);
  const json spec = At(now, "spec");
  json metadata = At(now, "metadata");
  if (!metadata.is_object()) metadata = json::object();
  json selector = At(spec, "nodeSelector");
  json tolerations = At(spec, "tolerations");
  if (had.is_object()) {
    for (const char* field : {"labels", "annotations"}) {
      metadata.erase(field);
      if (!At(had, field).is_null()) metadata[field] = had[field];
    }
    // The API server's own, by which a Job finds its pods; Kueue leaves them out of Workloads.
    const json labels = At(At(now, "metadata"), "labels");
    for (const char* own : {kube::kControllerUidLabel, "batch.kubernetes.io/job-name",
                            "controller-uid", "job-name"}) {
      if (!At(labels, own).is_null()) metadata["labels"][own] = labels[own];
    }
    selector = At(had, "nodeSelector");
    tolerations = At(had, "tolerations");
  } else {
    Merge(change.added.labels, &metadata["labels"]);
    Merge(change.added.annotations, &metadata["annotations"]);
    Merge(change.added.node_selector, &selector);
    for (const quota::FlavorAdditions::Tolerate& each : change.added.tolerations) {
      tolerations.push_back(TolerationJson(each));
    }
  }
  const auto set = [&](const std::string& path, const json& before, json after) {
    if (before == after) return;
    if (after.is_null()) {
      operations->push_back({{"op", "remove"}, {"path", change.path + path}});
    } else {
      operations->push_back(Add(change.path + path, std::move(after)));
    }
  };
  set("/metadata", At(now, "metadata"), std::move(metadata));
  set("/spec/nodeSelector", At(spec, "nodeSelector"), std::move(selector));
  set("/spec/tolerations", At(spec, "tolerations"), std::move(tolerations));
}

bool SuspendsInRunPolicy(std::string_view kind) { return kind == "PyTorchJob" || kind == "MPIJob"; }

std::string JobPath(const std::string& api_version, const std::string& kind, const ObjectRef& job) {
  return fmt::format("/apis/{}/namespaces/{}/{}s/{}", api_version, job.name_space,
                     absl::AsciiStrToLower(kind), job.name);
}

AnswerKind JobAnswer(std::string_view kind) {
  if (kind == "JobSet") return AnswerKind::kJobSet;
  if (kind == "PyTorchJob") return AnswerKind::kPyTorchJob;
  if (kind == "TrainJob") return AnswerKind::kTrainJob;
  if (kind == "MPIJob") return AnswerKind::kMPIJob;
  if (kind == "RayCluster") return AnswerKind::kRayCluster;
  return kind == "RayJob" ? AnswerKind::kRayJob : AnswerKind::kJob;
}

struct RequestOf {
  absl::Time now;
  const QueueVersions& versions;

  std::optional<ActionRequest> operator()(const coscheduling::WriteRecord& write) const {
    const std::string path = PodGroupPath(write.group);
    json annotations;
    annotations[std::string(coscheduling::kRecordAnnotation)] =
        write.record.empty() ? json(nullptr) : json(write.record);
    json metadata = Version(write.group);
    metadata["annotations"] = std::move(annotations);
    const json body = {{"metadata", std::move(metadata)}};
    return ActionRequest{Patch(path, kube::kMergePatch, body), AnswerKind::kPodGroup, Get(path),
                         AnswerKind::kPodGroup};
  }

  std::optional<ActionRequest> operator()(const coscheduling::SignalPod& signal) const {
    json condition = {{"type", "PodScheduled"},
                      {"status", "False"},
                      {"reason", signal.reason},
                      {"message", signal.message},
                      {"lastTransitionTime", kube::TimeText(now)}};
    json body = {{"metadata", Identity(signal.pod)},
                 {"status", {{"conditions", json::array({condition})}}}};
    return OnPod(signal.pod,
                 Patch(PodPath(signal.pod) + "/status", kube::kStrategicMergePatch, body),
                 AnswerKind::kPod);
  }

  // Gates are merged by name, so this removes ours whatever else is there.
  std::optional<ActionRequest> operator()(const coscheduling::LiftGate& lift) const {
    json gate = {{"$patch", "delete"}, {"name", coscheduling::kGate}};
    json body = {{"metadata", Identity(lift.pod)},
                 {"spec", {{"schedulingGates", json::array({gate})}}}};
    return OnPod(lift.pod, Patch(PodPath(lift.pod), kube::kStrategicMergePatch, body),
                 AnswerKind::kPod);
  }

  std::optional<ActionRequest> operator()(const coscheduling::NominatePod& nominate) const {
    json node = nominate.node.empty() ? json(nullptr) : json(nominate.node);
    json body = {{"metadata", Identity(nominate.pod)},
                 {"status", {{"nominatedNodeName", std::move(node)}}}};
    return OnPod(nominate.pod, Patch(PodPath(nominate.pod) + "/status", kube::kMergePatch, body),
                 AnswerKind::kPod);
  }

  // The API server checks uid and resourceVersion of the Binding and copies its annotations in the
  // same write (k8s.io/kubernetes pkg/registry/core/pod/storage/storage.go v1.34).
  std::optional<ActionRequest> operator()(const coscheduling::BindPod& bind) const {
    json body = {{"apiVersion", "v1"},
                 {"kind", "Binding"},
                 {"metadata",
                  {{"name", bind.pod.name},
                   {"namespace", bind.pod.name_space},
                   {"uid", bind.pod.uid},
                   {"resourceVersion", bind.pod.resource_version},
                   {"annotations", {{std::string(kube::kDoNotDisruptAnnotation), "true"}}}}},
                 {"target", {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", bind.node}}}};
    return OnPod(bind.pod, Post(PodPath(bind.pod) + "/binding", body), AnswerKind::kNone);
  }

  std::optional<ActionRequest> operator()(const coscheduling::AnnotateNode& annotate) const {
    const std::string path = "/api/v1/nodes/" + annotate.node;
    json annotations = json::object();
    for (const auto& [key, value] : annotate.annotations) {
      annotations[key] = value ? json(*value) : json(nullptr);
    }
    json body = {{"metadata",
                  {{"resourceVersion", annotate.resource_version}, {"annotations", annotations}}}};
    return ActionRequest{Patch(path, kube::kMergePatch, body), AnswerKind::kNode, Get(path),
                         AnswerKind::kNode};
  }

  std::optional<ActionRequest> operator()(const coscheduling::TaintNode& taint) const {
    json operations = json::array({Replace("/metadata/resourceVersion", taint.resource_version)});
    if (taint.remove) {
      const std::string path = fmt::format("/spec/taints/{}", *taint.remove);
      operations.push_back({{"op", "test"}, {"path", path + "/key"}, {"value", taint.key}});
      operations.push_back({{"op", "remove"}, {"path", path}});
    }
    if (taint.add) {
      if (taint.none_there) operations.push_back(Add("/spec/taints", json::array()));
      operations.push_back(Add("/spec/taints/-", {{"key", taint.add->key},
                                                  {"value", taint.add->value},
                                                  {"effect", EffectName(taint.add->effect)}}));
    }
    const std::string path = "/api/v1/nodes/" + taint.node;
    return ActionRequest{Patch(path, kube::kJsonPatch, operations), AnswerKind::kNode, Get(path),
                         AnswerKind::kNode};
  }

  std::optional<ActionRequest> operator()(const coscheduling::DeleteNodeClaim& remove) const {
    const std::string path = "/apis/karpenter.sh/v1/nodeclaims/" + remove.claim.name;
    kube::Request request;
    request.method = kube::Method::kDelete;
    request.path = path;
    request.content_type = kube::kJson;
    request.body = Text({{"apiVersion", "v1"},
                         {"kind", "DeleteOptions"},
                         {"preconditions", Version(remove.claim)}});
    return ActionRequest{std::move(request), AnswerKind::kNone, Get(path), AnswerKind::kNone};
  }

  std::optional<ActionRequest> operator()(const coscheduling::AnnotatePod& annotate) const {
    json metadata = Identity(annotate.pod);
    metadata["annotations"] = annotate.annotations;
    return OnPod(annotate.pod,
                 Patch(PodPath(annotate.pod), kube::kMergePatch, {{"metadata", metadata}}),
                 AnswerKind::kPod);
  }

  // As kube-scheduler's binder does; the PersistentVolume controller goes on from there.
  static ActionRequest KeepVolume(const coscheduling::SelectNode& select) {
    const std::string path = "/api/v1/persistentvolumes/" + select.volume->name;
    json metadata = Version(*select.volume);
    if (!select.was_kept) {
      metadata["annotations"] = {{"pv.kubernetes.io/bound-by-controller", "yes"}};
    }
    const json claim = {{"apiVersion", "v1"},
                        {"kind", "PersistentVolumeClaim"},
                        {"namespace", select.claim.name_space},
                        {"name", select.claim.name},
                        {"uid", select.claim.uid},
                        {"resourceVersion", select.claim.resource_version}};
    return ActionRequest{
        Patch(path, kube::kMergePatch, {{"metadata", metadata}, {"spec", {{"claimRef", claim}}}}),
        AnswerKind::kVolume, Get(path), AnswerKind::kVolume};
  }

  std::optional<ActionRequest> operator()(const coscheduling::SelectNode& select) const {
    if (select.volume) return KeepVolume(select);
    const std::string path = fmt::format("/api/v1/namespaces/{}/persistentvolumeclaims/{}",
                                         select.claim.name_space, select.claim.name);
    json metadata = Version(select.claim);
    metadata["annotations"] = {{kube::kSelectedNodeAnnotation, select.node}};
    return ActionRequest{Patch(path, kube::kMergePatch, {{"metadata", metadata}}),
                         AnswerKind::kVolumeClaim, Get(path), AnswerKind::kVolumeClaim};
  }

  std::optional<ActionRequest> operator()(const coscheduling::AssignFlavors& assign) const {
    json operations = Preconditions(assign.pod);
    AddEntries("/spec/nodeSelector", assign.has_node_selector, assign.added.node_selector,
               &operations);
    if (!assign.has_tolerations && !assign.added.tolerations.empty()) {
      operations.push_back(Add("/spec/tolerations", json::array()));
    }
    for (const quota::FlavorAdditions::Tolerate& added : assign.added.tolerations) {
      operations.push_back(Add("/spec/tolerations/-", TolerationJson(added)));
    }
    AddEntries("/metadata/annotations", assign.has_annotations, assign.added.annotations,
               &operations);
    return OnPod(assign.pod, Patch(PodPath(assign.pod), kube::kJsonPatch, operations),
                 AnswerKind::kPod);
  }

  std::optional<ActionRequest> operator()(const coscheduling::UpdateQueueStatus& update) const {
    const quota::QueueStatus& have = update.status;
    json share;
    if (have.fair_share) share = {{"weightedShare", *have.fair_share}};
    if (update.of_cohort) {
      const std::string path =
          fmt::format("/apis/kueue.x-k8s.io/{}/cohorts/{}", versions.cohorts, update.name);
      return ActionRequest{
          Patch(path + "/status", kube::kMergePatch, {{"status", {{"fairSharing", share}}}}),
          AnswerKind::kNone, Get(path), AnswerKind::kNone};
    }
    const bool local = !update.name_space.empty();
    json condition = ActiveJson(have, local);
    condition["lastTransitionTime"] = kube::TimeText(update.since);
    const std::string& version = local ? versions.local_queues : versions.cluster_queues;
    // v1beta1 has another name for it.
    const bool singular = local && version == "v1beta1";
    const json usage = UsageJson(have.usage, local);
    json status = {{"pendingWorkloads", have.pending},
                   {"reservingWorkloads", have.admitted},
                   {"admittedWorkloads", have.admitted},
                   {"flavorsReservation", usage},
                   {singular ? "flavorUsage" : "flavorsUsage", usage},
                   {"conditions", json::array({condition})}};
    if (!local) status["fairSharing"] = share;  // null: there is none
    const std::string path = fmt::format(
        "/apis/kueue.x-k8s.io/{}/{}", version,
        local ? fmt::format("namespaces/{}/localqueues/{}", update.name_space, update.name)
              : "clusterqueues/" + update.name);
    return ActionRequest{
        Patch(path + "/status", kube::kMergePatch, {{"status", std::move(status)}}),
        AnswerKind::kNone, Get(path), AnswerKind::kNone};
  }

  std::optional<ActionRequest> operator()(const coscheduling::SetFinalizers& set) const {
    json operations = Preconditions(set.object);
    operations.push_back(Add("/metadata/finalizers", set.finalizers));
    const std::string path = fmt::format("/apis/kueue.x-k8s.io/{}/{}/{}", versions.cluster_queues,
                                         set.plural, set.object.name);
    return ActionRequest{Patch(path, kube::kJsonPatch, operations), AnswerKind::kNone, Get(path),
                         AnswerKind::kNone};
  }

  std::optional<ActionRequest> operator()(const coscheduling::EvictPod& evict) const {
    json body = {{"apiVersion", "policy/v1"},
                 {"kind", "Eviction"},
                 {"metadata", {{"name", evict.pod.name}, {"namespace", evict.pod.name_space}}},
                 {"deleteOptions", {{"preconditions", {{"uid", evict.pod.uid}}}}}};
    return OnPod(evict.pod, Post(PodPath(evict.pod) + "/eviction", body), AnswerKind::kNone);
  }

  std::optional<ActionRequest> operator()(const coscheduling::UpdatePodGroupStatus& update) const {
    json condition = {{"type", "Admitted"},
                      {"status", update.admitted ? "True" : "False"},
                      {"reason", update.reason},
                      {"message", update.message},
                      {"lastTransitionTime", kube::TimeText(update.since)}};
    json status = {{"phase", update.phase},     {"scheduled", update.scheduled},
                   {"running", update.running}, {"succeeded", update.succeeded},
                   {"failed", update.failed},   {"conditions", json::array({condition})}};
    if (!update.occupied_by.empty()) status["occupiedBy"] = update.occupied_by;
    if (update.schedule_start_time) {
      status["scheduleStartTime"] = kube::TimeText(*update.schedule_start_time);
    }
    const std::string path = PodGroupPath(update.group);
    json body = {{"metadata", Identity(update.group)}, {"status", status}};
    return ActionRequest{Patch(path + "/status", kube::kMergePatch, body), AnswerKind::kPodGroup,
                         Get(path), AnswerKind::kPodGroup};
  }

  std::optional<ActionRequest> operator()(const coscheduling::CreatePodGroup& create) const {
    json owners = json::array();
    for (const kube::OwnerReference& owner : create.owners) {
      json reference = {{"apiVersion", owner.api_version},
                        {"kind", owner.kind},
                        {"name", owner.name},
                        {"uid", owner.uid}};
      if (owner.controller) reference["controller"] = true;
      owners.push_back(std::move(reference));
    }
    json spec = {{"minMember", create.min_member}};
    if (create.schedule_timeout_seconds) {
      spec["scheduleTimeoutSeconds"] = *create.schedule_timeout_seconds;
    }
    json body = {{"apiVersion", "scheduling.x-k8s.io/v1alpha1"},
                 {"kind", "PodGroup"},
                 {"metadata",
                  {{"name", create.name},
                   {"namespace", create.name_space},
                   {"labels", {{coscheduling::kDerivedLabel, "true"}}},
                   {"ownerReferences", owners}}},
                 {"spec", spec}};
    const std::string path = PodGroupPath({create.name_space, create.name, "", ""});
    return ActionRequest{Post(path.substr(0, path.rfind('/')), body), AnswerKind::kPodGroup,
                         Get(path), AnswerKind::kPodGroup};
  }

  std::optional<ActionRequest> operator()(const coscheduling::UpdateMinMember& update) const {
    const std::string path = PodGroupPath(update.group);
    json body = {{"metadata", Version(update.group)}, {"spec", {{"minMember", update.min_member}}}};
    return ActionRequest{Patch(path, kube::kMergePatch, body), AnswerKind::kPodGroup, Get(path),
                         AnswerKind::kPodGroup};
  }

  std::optional<ActionRequest> operator()(const coscheduling::SuspendJob& job) const {
    json metadata = Version(job.job);
    for (const auto& [key, value] : job.annotations) {
      metadata["annotations"][key] = value ? json(*value) : json(nullptr);
    }
    json body = {{"metadata", std::move(metadata)}};
    if (job.suspend) {
      json suspend = {{"suspend", *job.suspend}};
      body["spec"] = SuspendsInRunPolicy(job.kind) ? json{{"runPolicy", suspend}} : suspend;
    }
    const std::string path = JobPath(job.api_version, job.kind, job.job);
    const AnswerKind answer = JobAnswer(job.kind);
    return ActionRequest{Patch(path, kube::kMergePatch, body), answer, Get(path), answer};
  }

  std::optional<ActionRequest> operator()(const coscheduling::ChangeTemplates& change) const {
    json operations = Preconditions(change.job);
    for (const quota::TemplateChange& each : change.templates) ChangeTemplate(each, &operations);
    if (change.resume) {
      const bool in_policy = SuspendsInRunPolicy(change.kind);
      operations.push_back(Add(in_policy ? "/spec/runPolicy/suspend" : "/spec/suspend", false));
    }
    const std::string path = JobPath(change.api_version, change.kind, change.job);
    const AnswerKind answer = JobAnswer(change.kind);
    return ActionRequest{Patch(path, kube::kJsonPatch, operations), answer, Get(path), answer};
  }

  std::optional<ActionRequest> operator()(const coscheduling::ResetStartTime& reset) const {
    const std::string path = JobPath("batch/v1", "Job", reset.job);
    const json body = {{"metadata", Version(reset.job)}, {"status", {{"startTime", nullptr}}}};
    return ActionRequest{Patch(path + "/status", kube::kMergePatch, body), AnswerKind::kJob,
                         Get(path), AnswerKind::kJob};
  }

  std::optional<ActionRequest> operator()(const coscheduling::PatchWorkload& patch) const {
    json operations = Preconditions(patch.workload);
    std::map<std::string, std::string> added;
    for (const auto& [key, value] : patch.annotations) {
      if (value) {
        added.emplace(key, *value);
      } else {
        operations.push_back({{"op", "remove"}, {"path", EntryPath("/metadata/annotations", key)}});
      }
    }
    AddEntries("/metadata/annotations", patch.has_annotations, added, &operations);
    if (patch.active) operations.push_back(Add("/spec/active", *patch.active));
    for (const auto& set : patch.pod_sets) SetNodeTerms(set, &operations);
    if (patch.finalizers) operations.push_back(Add("/metadata/finalizers", *patch.finalizers));
    const std::string path =
        WorkloadsPath(versions.workloads, patch.workload.name_space) + "/" + patch.workload.name;
    return ActionRequest{Patch(path, kube::kJsonPatch, operations), AnswerKind::kWorkload,
                         Get(path), AnswerKind::kWorkload};
  }

  // A controller's reference is what Kueue finds the owner by
  // (sigs.k8s.io/kueue v0.19.2 pkg/controller/jobframework/reconciler.go).
  std::optional<ActionRequest> operator()(const coscheduling::WriteWorkload& write) const {
    json pod_sets = json::array();
    for (size_t i = 0; i < write.pod_sets.size(); ++i) {
      const quota::PodSet& set = write.pod_sets[i];
      json pod_template =
          write.pod_templates.empty() ? json() : TemplateAsWritten(write.pod_templates[i]);
      if (!pod_template.is_object()) pod_template = TemplateJson(*set.spec);
      pod_sets.push_back(
          {{"name", set.name}, {"count", set.count}, {"template", std::move(pod_template)}});
    }
    json spec = {
        {"queueName", write.queue}, {"priority", write.priority}, {"podSets", std::move(pod_sets)}};
    if (!write.priority_class.empty()) {
      spec["priorityClassRef"] = {{"group", "kueue.x-k8s.io"},
                                  {"kind", "WorkloadPriorityClass"},
                                  {"name", write.priority_class}};
    }
    // null takes one away that isn't wanted any more.
    if (write.max_seconds || !write.workload.uid.empty()) {
      spec["maximumExecutionTimeSeconds"] = write.max_seconds ? json(*write.max_seconds) : json();
    }
    json annotations = {{std::string(quota::kLeaderAnnotation), write.leader}};
    const std::string all = WorkloadsPath(kWorkloadVersion, write.workload.name_space);
    const std::string path = all + "/" + write.workload.name;
    if (!write.workload.uid.empty()) {
      json metadata = Version(write.workload);
      metadata["annotations"] = std::move(annotations);
      metadata["finalizers"] = json::array({kube::kInUseFinalizer});
      return ActionRequest{Patch(path, kube::kMergePatch,
                                 {{"metadata", std::move(metadata)}, {"spec", std::move(spec)}}),
                           AnswerKind::kWorkload, Get(path), AnswerKind::kWorkload};
    }
    spec["active"] = true;
    annotations[quota::kOwnerAnnotation] = fmt::format("{}/{}", write.owner.kind, write.owner.name);
    const json body = {{"apiVersion", fmt::format("kueue.x-k8s.io/{}", kWorkloadVersion)},
                       {"kind", "Workload"},
                       {"metadata",
                        {{"name", write.workload.name},
                         {"namespace", write.workload.name_space},
                         {"labels", {{quota::kJobUidLabel, write.owner.uid}}},
                         {"annotations", std::move(annotations)},
                         {"finalizers", json::array({kube::kInUseFinalizer})},
                         {"ownerReferences", json::array({{{"apiVersion", write.owner.api_version},
                                                           {"kind", write.owner.kind},
                                                           {"name", write.owner.name},
                                                           {"uid", write.owner.uid},
                                                           {"controller", true}}})}}},
                       {"spec", std::move(spec)}};
    return ActionRequest{Post(all, body), AnswerKind::kWorkload, Get(path), AnswerKind::kWorkload};
  }

  // All of what the manager says of a Workload's status, as Kueue's own second writer
  // (sigs.k8s.io/kueue v0.19.2 cmd/importer/pod/import.go).
  static ActionRequest Apply(const coscheduling::ObjectRef& workload, json status,
                             const char* manager) {
    json metadata = Version(workload);
    metadata["name"] = workload.name;
    metadata["namespace"] = workload.name_space;
    const json body = {{"apiVersion", fmt::format("kueue.x-k8s.io/{}", kWorkloadVersion)},
                       {"kind", "Workload"},
                       {"metadata", std::move(metadata)},
                       {"status", std::move(status)}};
    const std::string path =
        WorkloadsPath(kWorkloadVersion, workload.name_space) + "/" + workload.name;
    kube::Request request = Patch(path + "/status", kube::kApplyPatch, body);
    request.query = {{"fieldManager", manager}, {"force", "true"}};
    return {std::move(request), AnswerKind::kWorkload, Get(path), AnswerKind::kWorkload};
  }

  std::optional<ActionRequest> operator()(const coscheduling::ApplyReclaimablePods& apply) const {
    json status = json::object();
    for (const auto& [name, count] : apply.pods) {
      status["reclaimablePods"].push_back({{"name", name}, {"count", count}});
    }
    return Apply(apply.workload, std::move(status), "kueue-reclaimable-pods");
  }

  std::optional<ActionRequest> operator()(const coscheduling::ApplyWorkloadStatus& apply) const {
    json conditions = json::array();
    for (const auto& [type, condition] : apply.conditions) {
      conditions.push_back(
          {{"type", type},
           {"status", condition.status},
           {"reason", condition.reason},
           {"message", condition.message},
           {"lastTransitionTime", kube::MilliTimeText(condition.last_transition)}});
    }
    json status = {{"conditions", std::move(conditions)}};
    if (apply.admission) status["admission"] = AdmissionJson(*apply.admission);
    if (apply.past_seconds) status["accumulatedPastExecutionTimeSeconds"] = *apply.past_seconds;
    return Apply(apply.workload, std::move(status), "kueue-admission");
  }

  std::optional<ActionRequest> operator()(const coscheduling::EmitEvent&) const {
    return std::nullopt;
  }
  std::optional<ActionRequest> operator()(const coscheduling::AnswerBind&) const {
    return std::nullopt;
  }
};

struct Kind {
  std::string_view operator()(const coscheduling::WriteRecord&) const { return "record"; }
  std::string_view operator()(const coscheduling::SignalPod&) const { return "signal"; }
  std::string_view operator()(const coscheduling::LiftGate&) const { return "gate-lift"; }
  std::string_view operator()(const coscheduling::NominatePod&) const { return "nomination"; }
  std::string_view operator()(const coscheduling::BindPod&) const { return "binding"; }
  std::string_view operator()(const coscheduling::AnnotateNode& annotate) const {
    return annotate.annotations.contains(std::string(cluster::kSuspectAnnotation)) ? "suspect"
                                                                                   : "hold";
  }
  std::string_view operator()(const coscheduling::TaintNode&) const { return "suspect"; }
  std::string_view operator()(const coscheduling::DeleteNodeClaim&) const { return "node-claim"; }
  std::string_view operator()(const coscheduling::AnnotatePod&) const { return "wake"; }
  std::string_view operator()(const coscheduling::SelectNode&) const { return "volume-node"; }
  std::string_view operator()(const coscheduling::AssignFlavors&) const { return "flavors"; }
  std::string_view operator()(const coscheduling::UpdateQueueStatus&) const {
    return "queue-status";
  }
  std::string_view operator()(const coscheduling::SetFinalizers&) const { return "finalizer"; }
  std::string_view operator()(const coscheduling::EvictPod&) const { return "evict"; }
  std::string_view operator()(const coscheduling::UpdatePodGroupStatus&) const { return "status"; }
  std::string_view operator()(const coscheduling::CreatePodGroup&) const { return "pod-group"; }
  std::string_view operator()(const coscheduling::UpdateMinMember&) const { return "min-member"; }
  std::string_view operator()(const coscheduling::SuspendJob& job) const {
    if (!job.suspend) return "restart-over";
    return *job.suspend ? "suspend" : "resume";
  }
  std::string_view operator()(const coscheduling::ChangeTemplates& change) const {
    return change.resume ? "resume" : "restore";
  }
  std::string_view operator()(const coscheduling::ResetStartTime&) const { return "start-time"; }
  std::string_view operator()(const coscheduling::PatchWorkload& patch) const {
    if (patch.finalizers) return "workload-end";
    if (!patch.active) return "give-back-over";
    return *patch.active ? "requeue" : "give-back";
  }
  std::string_view operator()(const coscheduling::WriteWorkload&) const { return "workload"; }
  std::string_view operator()(const coscheduling::ApplyWorkloadStatus& apply) const {
    return apply.takes_over ? "workload-touch" : "workload-status";
  }
  std::string_view operator()(const coscheduling::ApplyReclaimablePods&) const {
    return "workload-reclaim";
  }
  std::string_view operator()(const coscheduling::EmitEvent&) const { return "event"; }
  std::string_view operator()(const coscheduling::AnswerBind&) const { return "bind-answer"; }
};

}  // namespace

std::optional<ActionRequest> ToRequest(const coscheduling::Action& action, absl::Time now,
                                       const QueueVersions& versions) {
  return std::visit(RequestOf{now, versions}, action);
}

std::string_view KindOf(const coscheduling::Action& action) { return std::visit(Kind{}, action); }

}  // namespace muster::writes
