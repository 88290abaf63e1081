#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "kube/objects/decode.h"
#include "kube/objects/decode_parts.h"
#include "kube/objects/time_text.h"
#include "kube/objects/well_known.h"

namespace muster::kube {
namespace {

void ReadReadiness(const JsonValue& conditions, Node& node) {
  const JsonValue ready = FindCondition(conditions, "Ready");
  node.ready = ready.Get("status").View() == "True";
  node.ready_changed = ready.Get("lastTransitionTime").Time();
  if (node.ready) return;
  const std::string_view message = ready.Get("message").View();
  const std::string_view reason = ready.Get("reason").View();
  if (!ready.present()) {
    node.ready_message = "the kubelet has not reported the Ready condition";
  } else if (!message.empty()) {
    node.ready_message = message;
  } else {
    node.ready_message = reason.empty() ? fmt::format("Ready is {}", ready.Get("status").View())
                                        : std::string(reason);
  }
}

// What eks-node-monitoring-agent v1.7 writes, and nobody but node agents may: Unknown, and a
// condition that isn't there, say nothing.
std::string ReadIllness(const JsonValue& conditions) {
  static constexpr std::array<std::string_view, 5> kTypes = {
      "AcceleratedHardwareReady", "NetworkingReady", "StorageReady", "KernelReady",
      "ContainerRuntimeReady"};
  for (std::string_view type : kTypes) {
    const JsonValue condition = FindCondition(conditions, type);
    if (condition.Get("status").View() != "False") continue;
    const std::string_view reason = condition.Get("reason").View();
    const std::string_view message = condition.Get("message").View();
    return fmt::format("{} is False{}{}{}{}", type, reason.empty() ? "" : ": ", reason,
                       message.empty() ? "" : ": ", message);
  }
  return "";
}

}  // namespace

template <>
absl::StatusOr<Node> Decode<Node>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  Node node;
  node.meta = ReadMeta(root.Get("metadata"));
  const JsonValue spec = root.Get("spec");
  node.provider_id = spec.Get("providerID").String();
  node.unschedulable = spec.Get("unschedulable").Bool();
  node.taints = ReadTaints(spec.Get("taints"));
  const JsonValue status = root.Get("status");
  node.capacity = ReadResourceList(status.Get("capacity"));
  const JsonValue allocatable = status.Get("allocatable");
  node.allocatable = allocatable.present() ? ReadResourceList(allocatable) : node.capacity;
  status.Get("declaredFeatures").ForEach([&node](const JsonValue& feature) {
    node.declared_features.push_back(feature.String());
  });
  std::ranges::sort(node.declared_features);
  ReadReadiness(status.Get("conditions"), node);
  node.ill = ReadIllness(status.Get("conditions"));
  if (!reader.status().ok()) return reader.status();
  node.error = reader.unusable();
  return node;
}

template <>
absl::StatusOr<ResourceSlice> Decode<ResourceSlice>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  const JsonValue spec = root.Get("spec");
  ResourceSlice slice;
  slice.meta = ReadMeta(root.Get("metadata"));
  slice.node_name = spec.Get("nodeName").String();
  slice.driver = spec.Get("driver").String();
  spec.Get("devices").ForEach([&slice](const JsonValue&) { ++slice.devices; });
  if (!reader.status().ok()) return reader.status();
  return slice;
}

template <>
absl::StatusOr<NodeClaim> Decode<NodeClaim>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  NodeClaim claim;
  claim.meta = ReadMeta(root.Get("metadata"));
  if (const std::string* pool = claim.meta.Label(kNodePoolLabel)) claim.node_pool = *pool;
  const JsonValue spec = root.Get("spec");
  claim.requirements = ReadRequirements(spec.Get("requirements"), RequirementKind::kNodeSelector);
  claim.taints = ReadTaints(spec.Get("taints"));
  claim.startup_taints = ReadTaints(spec.Get("startupTaints"));
  claim.requests = ReadResourceList(spec.Get("resources").Get("requests"));
  const JsonValue status = root.Get("status");
  claim.node_name = status.Get("nodeName").String();
  claim.provider_id = status.Get("providerID").String();
  claim.capacity = ReadResourceList(status.Get("capacity"));
  claim.allocatable = ReadResourceList(status.Get("allocatable"));
  status.Get("conditions").ForEach([&](const JsonValue& condition) {
    claim.conditions.emplace(condition.Get("type").String(), ReadCondition(condition));
  });
  if (!reader.status().ok()) return reader.status();
  claim.error = reader.unusable();
  return claim;
}

template <>
absl::StatusOr<NodeClass> Decode<NodeClass>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  NodeClass node_class;
  node_class.meta = ReadMeta(root.Get("metadata"));
  const JsonValue status = root.Get("status");
  std::set<std::string> zones;
  status.Get("subnets").ForEach([&](const JsonValue& subnet) {
    if (std::string zone = subnet.Get("zone").String(); !zone.empty()) zones.insert(zone);
  });
  node_class.zones.assign(zones.begin(), zones.end());
  status.Get("capacityReservations").ForEach([&](const JsonValue& each) {
    node_class.reservations.push_back({each.Get("id").String(), each.Get("instanceType").String(),
                                       each.Get("availabilityZone").String(),
                                       each.Get("reservationType").View() == "capacity-block",
                                       each.Get("state").View() == "expiring",
                                       ReadTimeText(each.Get("endTime").View())});
  });
  status.Get("conditions").ForEach([&](const JsonValue& condition) {
    if (condition.Get("status").View() != "False") return;
    // Ready sums up the others.
    if (!node_class.not_ready.empty() && condition.Get("type").View() == "Ready") return;
    node_class.not_ready =
        fmt::format("{}: {}", condition.Get("type").View(), condition.Get("message").View());
  });
  if (!reader.status().ok()) return reader.status();
  return node_class;
}

template <>
absl::StatusOr<NodePool> Decode<NodePool>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  NodePool pool;
  pool.meta = ReadMeta(root.Get("metadata"));
  const JsonValue spec = root.Get("spec");
  const JsonValue node = spec.Get("template");
  pool.labels = ReadStringMap(node.Get("metadata").Get("labels"));
  const JsonValue node_spec = node.Get("spec");
  pool.requirements =
      ReadRequirements(node_spec.Get("requirements"), RequirementKind::kNodeSelector);
  pool.taints = ReadTaints(node_spec.Get("taints"));
  pool.startup_taints = ReadTaints(node_spec.Get("startupTaints"));
  pool.node_class_group = node_spec.Get("nodeClassRef").Get("group").String();
  pool.node_class_name = node_spec.Get("nodeClassRef").Get("name").String();
  const JsonValue limits = spec.Get("limits");
  if (limits.present()) pool.limits = ReadResourceList(limits);
  pool.weight = spec.Get("weight").Int32();
  pool.is_static = spec.Get("replicas").present();
  pool.consolidation_policy = spec.Get("disruption").Get("consolidationPolicy").String();
  pool.consolidate_after = spec.Get("disruption").Get("consolidateAfter").String();
  const JsonValue status = root.Get("status");
  pool.usage = ReadResourceList(status.Get("resources"));
  const JsonValue ready = FindCondition(status.Get("conditions"), "Ready");
  pool.ready = !ready.present() || ready.Get("status").View() == "True";
  if (!reader.status().ok()) return reader.status();
  pool.error = reader.unusable();
  return pool;
}

}  // namespace muster::kube
