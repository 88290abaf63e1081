#include "cluster/node_stage.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "cluster/snapshot.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

// The taint that Karpenter puts on what it is about to remove, and cluster-autoscaler's.
constexpr std::array<std::string_view, 2> kGoingTaints = {"karpenter.sh/disrupted",
                                                          "ToBeDeletedByClusterAutoscaler"};
// The kubelet's default; a claim's requests always count pods, other provisioners may not.
constexpr int64_t kDefaultPods = 110;

bool LabelIsTrue(const kube::Node& node, std::string_view key) {
  const std::string* value = node.meta.Label(key);
  return value != nullptr && *value == "true";
}

const kube::Taint* FindTaint(const kube::Node& node, std::string_view key) {
  auto it = std::find_if(node.taints.begin(), node.taints.end(),
                         [key](const kube::Taint& taint) { return taint.key == key; });
  return it == node.taints.end() ? nullptr : &*it;
}

// As corev1.Taint.MatchTaint: key and effect, whatever the value.
bool IsStartupTaint(const kube::Taint& taint, const kube::NodeClaim* claim) {
  return claim != nullptr && std::any_of(claim->startup_taints.begin(), claim->startup_taints.end(),
                                         [&](const kube::Taint& startup) {
                                           return startup.key == taint.key &&
                                                  startup.effect == taint.effect;
                                         });
}

bool LeavesDuringBringUp(const kube::Taint& taint, const kube::NodeClaim* claim) {
  return taint.key == kube::kUnregisteredTaint || IsLifecycleTaint(taint) ||
         IsStartupTaint(taint, claim);
}

void Want(kube::ResourceList& wanted, const std::string& resource, int64_t amount) {
  if (amount > wanted.Get(resource)) wanted.Set(resource, amount);
}

// How many of each device the node has when it is whole.
kube::ResourceList WantedDevices(const kube::Node& node, const kube::NodeClaim* claim) {
  kube::ResourceList wanted;
  for (const auto& [resource, amount] : node.capacity.entries()) {
    if (IsDevice(resource)) Want(wanted, resource, amount);
  }
  if (claim == nullptr) return wanted;
  for (const auto& [resource, amount] : claim->requests.entries()) {
    if (!IsDevice(resource) || amount <= 0) continue;
    Want(wanted, resource, amount);
    Want(wanted, resource, claim->capacity.Get(resource));
    Want(wanted, resource, claim->allocatable.Get(resource));
  }
  return wanted;
}

std::vector<DeviceShortage> FindShortages(const kube::Node& node, const kube::NodeClaim* claim) {
  std::vector<DeviceShortage> shortages;
  const kube::ResourceList wanted = WantedDevices(node, claim);
  for (const auto& [resource, want] : wanted.entries()) {
    int64_t have = node.allocatable.Get(resource);
    if (have < want) shortages.push_back({resource, have, want});
  }
  return shortages;
}

std::string Describe(const std::vector<DeviceShortage>& shortages) {
  std::string text;
  for (const DeviceShortage& shortage : shortages) {
    if (!text.empty()) text += "; ";
    text +=
        fmt::format("{}: {} of {} allocatable", shortage.resource, shortage.have, shortage.want);
  }
  return text;
}

// Why the node is going away, or "".
std::string ReasonForGoing(const kube::Node* node, const kube::NodeClaim* claim) {
  if (node != nullptr && node->meta.deletion_time) return "the Node is being deleted";
  if (claim != nullptr && claim->meta.deletion_time) return "the NodeClaim is being deleted";
  if (node == nullptr) {
    return claim->IsTrue("Initialized") ? "the NodeClaim was initialized, but its Node is gone"
                                        : "";
  }
  for (std::string_view key : kGoingTaints) {
    if (const kube::Taint* taint = FindTaint(*node, key)) {
      return fmt::format("taint {}", taint->ToString());
    }
  }
  return "";
}

NodeReadiness WithoutNode(const kube::NodeClaim& claim) {
  if (claim.IsTrue("Launched")) {
    return {NodeStage::kLaunched, {}, "launched, its Node hasn't appeared"};
  }
  auto launched = claim.conditions.find("Launched");
  if (launched != claim.conditions.end() && !launched->second.message.empty()) {
    return {NodeStage::kRequested,
            {},
            fmt::format("requested, not launched: {}", launched->second.message)};
  }
  return {NodeStage::kRequested, {}, "requested, not launched"};
}

std::string NotReady(const kube::Node& node) {
  if (node.ready_message.empty()) return "the Node isn't Ready";
  return fmt::format("the Node isn't Ready: {}", node.ready_message);
}

// The first taint that keeps a brought-up node from counting, or nullptr.
const kube::Taint* BlockingTaint(const kube::Node& node, const kube::NodeClaim* claim) {
  auto it = std::find_if(node.taints.begin(), node.taints.end(),
                         [claim](const auto& taint) { return LeavesDuringBringUp(taint, claim); });
  return it == node.taints.end() ? nullptr : &*it;
}

// What a registered node still lacks for its label karpenter.sh/initialized.
std::string WhyNotInitialized(const kube::Node& node, const kube::NodeClaim* claim,
                              const std::vector<DeviceShortage>& shortages) {
  if (!node.ready) return NotReady(node);
  if (!node.ill.empty()) return node.ill;
  if (const kube::Taint* taint = BlockingTaint(node, claim)) {
    return fmt::format("taint {}", taint->ToString());
  }
  if (!shortages.empty()) return Describe(shortages);
  return "registered, not initialized";
}

}  // namespace

bool IsDevice(std::string_view resource) {
  return resource.find('/') != std::string_view::npos &&
         resource.find("kubernetes.io/") == std::string_view::npos;
}

std::string SlicesNote(std::string_view in_slices) {
  if (in_slices.empty()) return "";
  return fmt::format("; its devices are in ResourceSlices only ({}), which count for claims alone",
                     in_slices);
}

std::string SlicesNote(std::string_view resource, const NodeInfo& info) {
  const bool has = info.object == nullptr || info.object->allocatable.Get(resource) > 0;
  return has || !IsDevice(resource) ? "" : SlicesNote(info.in_slices);
}

bool IsLifecycleTaint(const kube::Taint& taint) {
  constexpr std::array<std::string_view, 6> kKeys = {
      "node.kubernetes.io/not-ready",
      "node.kubernetes.io/unreachable",
      "node.kubernetes.io/network-unavailable",
      "node.kubernetes.io/out-of-service",
      "node.cloudprovider.kubernetes.io/uninitialized",
      "node.cloudprovider.kubernetes.io/shutdown",
  };
  return std::find(kKeys.begin(), kKeys.end(), taint.key) != kKeys.end();
}

bool IsRegistered(const kube::Node& node) { return LabelIsTrue(node, kube::kRegisteredLabel); }

bool IsBroughtUp(const kube::Node& node) { return LabelIsTrue(node, kube::kInitializedLabel); }

std::string VirtualName(const std::string& claim_name) { return "nodeclaim/" + claim_name; }

NodeReadiness ReadinessOf(const kube::Node* node, const kube::NodeClaim* claim) {
  if (std::string going = ReasonForGoing(node, claim); !going.empty()) {
    return {NodeStage::kGoing, {}, std::move(going)};
  }
  if (node == nullptr) return WithoutNode(*claim);
  std::vector<DeviceShortage> shortages = FindShortages(*node, claim);
  bool by_karpenter = claim != nullptr || node->meta.Label(kube::kNodePoolLabel) != nullptr;
  if (by_karpenter) {
    if (!IsRegistered(*node) || FindTaint(*node, kube::kUnregisteredTaint) != nullptr) {
      return {NodeStage::kLaunched, {}, "the Node exists, Karpenter hasn't registered it"};
    }
    if (!IsBroughtUp(*node)) {
      std::string message = WhyNotInitialized(*node, claim, shortages);
      return {NodeStage::kRegistered, std::move(shortages), std::move(message)};
    }
  }
  if (!node->ready) return {NodeStage::kRegistered, std::move(shortages), NotReady(*node)};
  if (!node->ill.empty()) return {NodeStage::kRegistered, std::move(shortages), node->ill};
  if (const kube::Taint* taint = BlockingTaint(*node, claim)) {
    return {NodeStage::kRegistered, std::move(shortages),
            fmt::format("taint {}", taint->ToString())};
  }
  if (!shortages.empty()) {
    std::string message = Describe(shortages);
    return {NodeStage::kInitialized, std::move(shortages), std::move(message)};
  }
  return {NodeStage::kUsable, {}, ""};
}

bool IsWholeFor(const kube::ResourceList& requests, const NodeInfo& info) {
  const std::vector<DeviceShortage>& shortages = info.readiness.shortages;
  if (shortages.empty()) return true;
  const auto& entries = requests.entries();
  return std::none_of(entries.begin(), entries.end(), [&](const auto& request) {
    const auto& [resource, amount] = request;
    if (amount <= 0 || !IsDevice(resource)) return false;
    auto shortage = std::find_if(
        shortages.begin(), shortages.end(),
        [&resource = resource](const auto& each) { return each.resource == resource; });
    const int64_t full =
        shortage != shortages.end() ? shortage->want : info.node->allocatable.Get(resource);
    return full > 0 && amount >= full;
  });
}

std::vector<NodeStep> StepsOf(const NodeInfo& info, const absl::Time* usable) {
  std::vector<NodeStep> steps;
  if (info.claim == nullptr) {
    steps.push_back({NodeStage::kRegistered, info.node->meta.creation_time});
  } else {
    steps.push_back({NodeStage::kRequested, info.claim->meta.creation_time});
    for (const auto& [stage, name] : {std::pair{NodeStage::kLaunched, "Launched"},
                                      {NodeStage::kRegistered, "Registered"},
                                      {NodeStage::kInitialized, "Initialized"}}) {
      const auto it = info.claim->conditions.find(name);
      if (it == info.claim->conditions.end() || it->second.status != "True") break;
      steps.push_back({stage, it->second.last_transition});
    }
  }
  if (usable != nullptr) steps.push_back({NodeStage::kUsable, *usable});
  std::erase_if(steps, [](const NodeStep& step) { return step.at == absl::InfinitePast(); });
  return steps;
}

const NodeReadiness& ReadinessOf(const NodeInfo& info) { return info.readiness; }

kube::Node Forecast(const kube::Node* node, const kube::NodeClaim& claim) {
  kube::Node forecast;
  if (node != nullptr) {
    forecast = *node;
  } else {
    forecast.meta.name = VirtualName(claim.meta.name);
    forecast.meta.creation_time = claim.meta.creation_time;
    forecast.provider_id = claim.provider_id;
  }
  if (node == nullptr || !IsRegistered(*node)) {
    for (const kube::Requirement& requirement : claim.requirements) {
      if (requirement.op == kube::SelectorOperator::kIn && requirement.values.size() == 1) {
        forecast.meta.labels[requirement.key] = requirement.values[0];
      }
    }
    for (const auto& [key, value] : claim.meta.labels) forecast.meta.labels[key] = value;
    // Its own domain, whatever it will be called.
    forecast.meta.labels.emplace(kube::kHostnameLabel, forecast.meta.name);
    for (const kube::Taint& taint : claim.taints) {
      if (std::find(forecast.taints.begin(), forecast.taints.end(), taint) ==
          forecast.taints.end()) {
        forecast.taints.push_back(taint);
      }
    }
  }
  std::erase_if(forecast.taints,
                [&](const kube::Taint& taint) { return LeavesDuringBringUp(taint, &claim); });

  bool launched = !claim.allocatable.empty();
  const kube::ResourceList& expected = launched ? claim.allocatable : claim.requests;
  for (const auto& [resource, amount] : expected.entries()) {
    if (IsDevice(resource) || forecast.allocatable.Get(resource) == 0) {
      Want(forecast.allocatable, resource, amount);
    }
  }
  if (!forecast.allocatable.Has(kube::kPods)) forecast.allocatable.Set(kube::kPods, kDefaultPods);
  forecast.capacity.Max(claim.capacity);
  forecast.capacity.Max(forecast.allocatable);
  forecast.ready = true;
  forecast.ready_message.clear();
  forecast.ill.clear();
  if (forecast.error.empty()) forecast.error = claim.error;
  return forecast;
}

}  // namespace muster::cluster
