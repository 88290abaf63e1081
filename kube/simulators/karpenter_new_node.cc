// The part of KarpenterLifecycle between launch and initialization
// (pkg/controllers/nodeclaim/lifecycle registration.go and initialization.go), and what the new
// node's kubelet and device plugins do meanwhile.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/objects/time_text.h"
#include "kube/objects/well_known.h"
#include "kube/simulators/claim_conditions.h"
#include "kube/simulators/karpenter_lifecycle.h"

namespace muster::kube::simulators {
namespace {

using Json = nlohmann::json;

constexpr const char* kKubeletVersion = "v1.34.2";

// Devices have a domain in their name: nvidia.com/gpu, vpc.amazonaws.com/efa.
bool IsDevice(const std::string& resource) { return resource.find('/') != std::string::npos; }

// What of the instance's amounts the kubelet reports before the device plugins have registered.
ResourceList WithoutDevices(const ResourceList& amounts, const LaunchBehavior& behavior) {
  ResourceList result = amounts;
  for (const auto& [name, amount] : amounts.entries()) {
    if (behavior.devices_before.Has(name)) {
      result.Set(name, behavior.devices_before.Get(name));
    } else if (behavior.devices_before.empty() && IsDevice(name)) {
      result.Set(name, 0);
    }
  }
  return result;
}

// Taints of the node's stored JSON, as its typed view has no place for what it doesn't know.
Json TaintsOf(const Json& node) {
  auto spec = node.find("spec");
  if (spec == node.end() || !spec->contains("taints")) return Json::array();
  return spec->at("taints");
}

void MergeTaints(const Json& spec, const char* field, Json* taints) {
  auto more = spec.find(field);
  if (more == spec.end() || !more->is_array()) return;
  for (const Json& taint : *more) {
    bool there = std::any_of(taints->begin(), taints->end(), [&](const Json& one) {
      return one["key"] == taint["key"] && one["effect"] == taint["effect"];
    });
    if (!there) taints->push_back(taint);
  }
}

void RemoveTaint(std::string_view key, Json* taints) {
  std::erase_if(taints->get_ref<Json::array_t&>(),
                [&](const Json& taint) { return taint["key"] == key; });
}

Json ReadyCondition(bool ready, absl::Time now) {
  return {{"type", "Ready"},
          {"status", ready ? "True" : "False"},
          {"reason", ready ? "KubeletReady" : "KubeletNotReady"},
          {"message", ready ? "kubelet is posting ready status"
                            : "container runtime network not ready: NetworkReady=false"},
          {"lastHeartbeatTime", TimeText(now)},
          {"lastTransitionTime", TimeText(now)}};
}

// Why the claim isn't initialized yet: a reason and a message, or two empty strings.
std::pair<std::string, std::string> WhyNotInitialized(const NodeClaim& claim, const Node* node) {
  if (node == nullptr) return {"NodeNotFound", "Node not registered with cluster"};
  if (!node->ready) return {"NodeNotReady", "Node status is NotReady"};
  for (const Taint& taint : claim.startup_taints) {
    if (std::find(node->taints.begin(), node->taints.end(), taint) != node->taints.end()) {
      return {"StartupTaintsExist",
              fmt::format("StartupTaint \"{}\" still exists", taint.ToString())};
    }
  }
  for (const Taint& taint : node->taints) {
    if (!IsEphemeralTaint(taint)) continue;
    return {"KnownEphemeralTaintsExist",
            fmt::format("KnownEphemeralTaint \"{}\" still exists", taint.ToString())};
  }
  for (const auto& [name, amount] : claim.requests.entries()) {
    if (amount == 0 || node->allocatable.Get(name) != 0) continue;
    return {"ResourceNotRegistered",
            fmt::format("Resource \"{}\" was requested but not registered", name)};
  }
  return {};
}

}  // namespace

absl::Status KarpenterLifecycle::CreateNode(const NodeClaim& claim, const Launch& launch) {
  const SimulatedCloud::Instance& instance = *launch.instance;
  Json labels = Json::object();
  for (const auto& [key, value] : SimulatedCloud::LabelsOf(instance)) labels[key] = value;
  labels[std::string(kHostnameLabel)] = instance.node_name;
  labels[std::string(kNodePoolLabel)] = claim.node_pool;
  absl::Time now = client_->server()->now();
  Json node = {
      {"apiVersion", "v1"},
      {"kind", "Node"},
      {"metadata", {{"name", instance.node_name}, {"labels", labels}}},
      {"spec",
       {{"providerID", instance.provider_id},
        {"taints", Json::array({{{"key", kUnregisteredTaint}, {"effect", "NoExecute"}},
                                {{"key", kNotReadyTaint}, {"effect", "NoSchedule"}}})}}},
      {"status",
       {{"capacity", AmountsJson(WithoutDevices(instance.type->capacity, launch.behavior))},
        {"allocatable", AmountsJson(WithoutDevices(instance.type->Allocatable(), launch.behavior))},
        {"conditions", Json::array({ReadyCondition(false, now)})},
        {"addresses", Json::array({{{"type", "InternalIP"}, {"address", instance.address}},
                                   {{"type", "Hostname"}, {"address", instance.node_name}}})},
        {"nodeInfo",
         {{"kubeletVersion", kKubeletVersion},
          {"architecture", labels["kubernetes.io/arch"]},
          {"operatingSystem", "linux"}}}}}};
  absl::Status created = client_->Create("/api/v1/nodes", node).status();
  return absl::IsAlreadyExists(created) ? absl::OkStatus() : created;
}

absl::Status KarpenterLifecycle::Register(const ClaimEntry& entry,
                                          const KarpenterState::NodeEntry& node, absl::Time now) {
  const NodeClaim& claim = entry.object;
  const Json& stored = node.stored->value();
  const Json& claim_json = entry.stored->value();
  if (!LabelIsTrue(node.object.meta, kRegisteredLabel)) {
    Json taints = TaintsOf(stored);
    MergeTaints(claim_json.at("spec"), "taints", &taints);
    MergeTaints(claim_json.at("spec"), "startupTaints", &taints);
    RemoveTaint(kUnregisteredTaint, &taints);
    Json labels = claim.meta.labels;
    labels[std::string(kRegisteredLabel)] = "true";
    Json metadata = {{"resourceVersion", node.object.meta.resource_version},
                     {"finalizers", {kTerminationFinalizer}},
                     {"labels", labels},
                     {"ownerReferences", Json::array({{{"apiVersion", "karpenter.sh/v1"},
                                                       {"kind", "NodeClaim"},
                                                       {"name", claim.meta.name},
                                                       {"uid", claim.meta.uid},
                                                       {"blockOwnerDeletion", true}}})}};
    if (!claim.meta.annotations.empty()) metadata["annotations"] = claim.meta.annotations;
    absl::Status synced = client_->Patch(NodePath(node.object.meta.name),
                                         {{"metadata", metadata}, {"spec", {{"taints", taints}}}});
    if (!synced.ok()) return synced;
  }
  Launch& launch = launches_[claim.meta.name];
  if (launch.instance && launch.ready_at == absl::InfiniteFuture()) {
    launch.ready_at = now + launch.behavior.initialization;
    launch.devices_at = launch.ready_at + launch.behavior.devices;
  }
  Json changed = claim_json;
  changed["status"]["nodeName"] = node.object.meta.name;
  ClaimConditions(&changed, now).SetTrue("Registered");
  return PatchClaimStatus(entry, changed);
}

absl::Status KarpenterLifecycle::RunKubelet(const NodeClaim& claim,
                                            const KarpenterState::NodeEntry& node, Launch* launch,
                                            absl::Time now) {
  const std::string path = NodePath(node.object.meta.name);
  bool becomes_ready = !launch->is_ready && now >= launch->ready_at;
  bool gets_devices = !launch->has_devices && now >= launch->devices_at;
  if (!launch->is_ready && !becomes_ready) {
    timers_.SetIfEarlier(claim.meta.name, launch->ready_at);
  } else if (!launch->has_devices && !gets_devices) {
    timers_.SetIfEarlier(claim.meta.name, launch->devices_at);
  }
  if (becomes_ready || gets_devices) {
    Json status = Json::object();
    if (becomes_ready) status["conditions"] = Json::array({ReadyCondition(true, now)});
    if (gets_devices) {
      status["capacity"] = AmountsJson(launch->instance->type->capacity);
      status["allocatable"] = AmountsJson(launch->instance->type->Allocatable());
    }
    absl::Status patched =
        client_->Patch(path + "/status", {{"status", status}}, kStrategicMergePatch);
    if (!patched.ok()) return patched;
    launch->is_ready |= becomes_ready;
    launch->has_devices |= gets_devices;
    return absl::OkStatus();
  }
  // As the node lifecycle controller keeps the taint.
  bool tainted = HasTaint(node.object, kNotReadyTaint);
  if (tainted == !node.object.ready) return absl::OkStatus();
  Json taints = TaintsOf(node.stored->value());
  if (tainted) {
    RemoveTaint(kNotReadyTaint, &taints);
  } else {
    taints.push_back({{"key", kNotReadyTaint}, {"effect", "NoSchedule"}});
  }
  return client_->Patch(path,
                        {{"metadata", {{"resourceVersion", node.object.meta.resource_version}}},
                         {"spec", {{"taints", taints}}}});
}

absl::Status KarpenterLifecycle::Initialize(const ClaimEntry& entry,
                                            const KarpenterState::NodeEntry* node, absl::Time now) {
  auto [reason, message] =
      WhyNotInitialized(entry.object, node == nullptr ? nullptr : &node->object);
  Json changed = entry.stored->value();
  if (!reason.empty()) {
    ClaimConditions(&changed, now).SetUnknown("Initialized", reason, message);
    return PatchClaimStatus(entry, changed);
  }
  if (!LabelIsTrue(node->object.meta, kInitializedLabel)) {
    absl::Status labelled =
        client_->Patch(NodePath(node->object.meta.name),
                       {{"metadata", {{"labels", {{kInitializedLabel, "true"}}}}}});
    if (!labelled.ok()) return labelled;
  }
  ClaimConditions(&changed, now).SetTrue("Initialized");
  return PatchClaimStatus(entry, changed);
}

}  // namespace muster::kube::simulators
