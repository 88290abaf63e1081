#include "cluster/snapshot_state.h"

#include <algorithm>
#include <utility>

#include "cluster/label_bits.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

constexpr std::string_view kVirtualPrefix = "nodeclaim/";

// Whether going from one to the other can matter to a predicate.
bool JudgedAlike(const kube::Node& a, const kube::Node& b) {
  return a.meta.labels == b.meta.labels && a.unschedulable == b.unschedulable &&
         a.taints == b.taints && a.allocatable == b.allocatable && a.error == b.error;
}

bool JudgedAlike(const kube::NodeClaim* a, const kube::NodeClaim* b) {
  if (a == b) return true;
  return a != nullptr && b != nullptr && a->requirements == b->requirements &&
         a->IsTrue("Launched") == b->IsTrue("Launched");
}

bool IsLessSomewhere(const kube::ResourceList& now, const kube::ResourceList& before) {
  const auto& entries = before.entries();
  return std::any_of(entries.begin(), entries.end(),
                     [&](const auto& entry) { return now.Get(entry.first) < entry.second; });
}

// UID of the DaemonSet that made the pod, or "".
std::string DaemonSetOf(const kube::Pod& pod) {
  const kube::OwnerReference* owner = pod.meta.Controller();
  return owner != nullptr && owner->kind == "DaemonSet" ? owner->uid : "";
}

bool KeepsOthersAway(const kube::Pod& pod) {
  return !pod.spec->affinity.required_pod_anti_affinity.empty();
}

NodeInfo::Hostname HostnameOf(const kube::Node& node) {
  const std::string* hostname = node.meta.Label(kube::kHostnameLabel);
  if (hostname == nullptr) return NodeInfo::Hostname::kMissing;
  return *hostname == node.meta.name ? NodeInfo::Hostname::kName : NodeInfo::Hostname::kOther;
}

void FillFree(NodeInfo& info) {
  info.free.clear();
  for (const auto& [resource, allocatable] : info.node->allocatable.entries()) {
    int64_t free = 0;
    if (__builtin_sub_overflow(allocatable, info.requested.Get(resource), &free)) free = 0;
    info.free.push_back(std::max<int64_t>(free, 0));
  }
}

std::vector<PlacedPod>::iterator FindSlot(std::vector<PlacedPod>& pods, const std::string& uid) {
  return std::lower_bound(
      pods.begin(), pods.end(), uid,
      [](const PlacedPod& placed, const std::string& key) { return placed.pod->meta.uid < key; });
}

}  // namespace

const std::string& Snapshot::State::PodEntry::Place() const {
  static const std::string kNowhere;
  if (pod->IsTerminal()) return kNowhere;
  return pod->IsBound() ? pod->node_name : assumed_on;
}

NodeInfo* Snapshot::State::FindNode(std::string_view name) {
  auto it = nodes.find(name);
  if (it == nodes.end() && name.starts_with(kVirtualPrefix)) {
    std::vector<std::string> paired = pairing.NodesOf(name.substr(kVirtualPrefix.size()));
    if (!paired.empty()) it = nodes.find(paired.front());
  }
  return it == nodes.end() ? nullptr : &it->second;
}

void Snapshot::State::Attach(const std::string& node, const std::shared_ptr<const kube::Pod>& pod,
                             bool assumed) {
  const std::string& uid = pod->meta.uid;
  auto it = nodes.find(node);
  if (it == nodes.end()) {
    waiting[node].insert(uid);
    return;
  }
  std::vector<PlacedPod>& placed = it->second.pods;
  placed.insert(FindSlot(placed, uid), {pod, assumed, LabelBits(pod->meta.labels)});
  if (KeepsOthersAway(*pod)) anti_affinity_pods[uid] = node;
  Settle(it->second, !DaemonSetOf(*pod).empty());
}

void Snapshot::State::Detach(const std::string& node, const kube::Pod& pod) {
  const std::string& uid = pod.meta.uid;
  auto it = nodes.find(node);
  if (it == nodes.end()) {
    auto unknown = waiting.find(node);
    if (unknown == waiting.end()) return;
    unknown->second.erase(uid);
    if (unknown->second.empty()) waiting.erase(unknown);
    return;
  }
  std::vector<PlacedPod>& placed = it->second.pods;
  auto slot = FindSlot(placed, uid);
  if (slot == placed.end() || slot->pod->meta.uid != uid) return;
  // Keeps `pod` alive, which may be the version that stands here.
  std::shared_ptr<const kube::Pod> leaving = std::move(slot->pod);
  placed.erase(slot);
  anti_affinity_pods.erase(uid);
  NoteRoom();
  Settle(it->second, !DaemonSetOf(*leaving).empty());
}

void Snapshot::State::Replace(const std::string& node,
                              const std::shared_ptr<const kube::Pod>& pod) {
  auto it = nodes.find(node);
  if (it == nodes.end()) return;
  auto slot = FindSlot(it->second.pods, pod->meta.uid);
  std::shared_ptr<const kube::Pod> before = std::exchange(slot->pod, pod);
  if (before->meta.labels != pod->meta.labels || before->IsDeleting() != pod->IsDeleting()) {
    ++room_epoch;
    slot->label_bits = LabelBits(pod->meta.labels);
  }
  const bool daemons_changed = DaemonSetOf(*before) != DaemonSetOf(*pod);
  if (before->spec == pod->spec && before->spec_error == pod->spec_error && !daemons_changed) {
    return;
  }
  ++room_epoch;
  anti_affinity_pods.erase(pod->meta.uid);
  if (KeepsOthersAway(*pod)) anti_affinity_pods[pod->meta.uid] = node;
  Settle(it->second, daemons_changed);
}

// Sums up anew what stands on the node. Adding and subtracting would be wrong for ever after one
// sum that didn't fit.
void Snapshot::State::Settle(NodeInfo& info, bool daemons_changed) {
  std::string error = info.node->error;
  auto note = [&error](std::string text) {
    if (error.empty()) error = std::move(text);
  };
  kube::ResourceList reserved = std::move(info.reserved_for_daemons);
  if (daemons_changed || !info.error.empty()) {
    reserved = {};
    absl::Status status = SumAwaitedDaemons(daemon_sets, info, &reserved);
    if (!status.ok()) note(std::string(status.message()));
  }
  kube::ResourceList requested = reserved;
  for (const PlacedPod& placed : info.pods) {
    const kube::Pod& pod = *placed.pod;
    if (!pod.spec_error.empty()) {
      note(fmt::format("pod {}: {}", pod.meta.FullName(), pod.spec_error));
    }
    if (absl::Status status = requested.Add(pod.spec->requests); !status.ok()) {
      note(fmt::format("pod {}: {}", pod.meta.FullName(), std::string(status.message())));
    }
  }
  if (IsLessSomewhere(requested, info.requested)) ++room_epoch;
  info.reserved_for_daemons = std::move(reserved);
  info.requested = std::move(requested);
  FillFree(info);
  if (error == info.error) return;
  info.error = std::move(error);
  ++room_epoch;
  Judge(info);
}

void Snapshot::State::Judge(NodeInfo& info) {
  info.readiness = ReadinessOf(info.object.get(), info.claim.get());
  if (info.error.empty() || info.readiness.stage == NodeStage::kGoing) return;
  info.readiness.stage = std::min(info.readiness.stage, NodeStage::kInitialized);
  info.readiness.message = info.error;
}

// What the two objects say together. Everything about the node that predicates read follows from
// them, so if that is unchanged (a heartbeat) nothing else is touched.
void Snapshot::State::Adopt(NodeInfo& info, std::shared_ptr<const kube::Node> object,
                            std::shared_ptr<const kube::NodeClaim> claim, bool is_new) {
  std::shared_ptr<const kube::Node> node_before = std::move(info.node);
  std::shared_ptr<const kube::NodeClaim> claim_before = std::exchange(info.claim, std::move(claim));
  NodeReadiness readiness_before = std::move(info.readiness);
  const bool was_virtual = info.is_virtual;

  info.object = std::move(object);
  Judge(info);
  if (info.object == nullptr) {
    info.is_virtual = true;
  } else {
    info.is_virtual = info.claim != nullptr && !IsBroughtUp(*info.object) &&
                      info.readiness.stage != NodeStage::kGoing;
  }
  info.node = info.is_virtual
                  ? std::make_shared<const kube::Node>(Forecast(info.object.get(), *info.claim))
                  : info.object;
  if (is_new || !NodeFamilies::Alike(*node_before, *info.node)) {
    if (!is_new) families.Leave(info.family);
    info.family = families.Join(*info.node);
  }
  info.hostname = HostnameOf(*info.node);
  NoteChange();
  const bool alike = !is_new && was_virtual == info.is_virtual &&
                     JudgedAlike(*node_before, *info.node) &&
                     JudgedAlike(claim_before.get(), info.claim.get());
  if (alike && readiness_before == info.readiness) return;
  ++room_epoch;
  Settle(info, /*daemons_changed=*/!alike);
}

void Snapshot::State::RefreshNode(const std::string& name,
                                  std::shared_ptr<const kube::Node> object) {
  auto [it, is_new] = nodes.try_emplace(name);
  auto claim = claims.find(pairing.ClaimOf(name));
  Adopt(it->second, std::move(object), claim == claims.end() ? nullptr : claim->second, is_new);
  if (!is_new) return;
  auto bound = waiting.extract(name);
  if (bound.empty()) return;
  for (const std::string& uid : bound.mapped()) Attach(name, pods.at(uid).pod, /*assumed=*/false);
}

void Snapshot::State::RefreshClaim(const std::string& name) {
  auto claim = claims.find(name);
  std::vector<std::string> paired = pairing.NodesOf(name);
  if (claim != claims.end() && paired.empty()) {
    auto [it, is_new] = nodes.try_emplace(VirtualName(name));
    Adopt(it->second, nullptr, claim->second, is_new);
    return;
  }
  auto virtual_node = nodes.find(VirtualName(name));
  if (virtual_node == nodes.end()) return;
  if (!paired.empty()) MoveAssumed(virtual_node->second, paired.front());
  RemoveNode(virtual_node);
}

void Snapshot::State::RefreshPairs(const std::set<std::string>& node_names,
                                   std::set<std::string> claim_names) {
  for (const std::string& name : node_names) {
    NodeInfo& info = nodes.at(name);
    if (info.claim != nullptr) claim_names.insert(info.claim->meta.name);
    RefreshNode(name, info.object);
    if (info.claim != nullptr) claim_names.insert(info.claim->meta.name);
  }
  for (const std::string& name : claim_names) RefreshClaim(name);
}

void Snapshot::State::RemoveNode(Nodes::iterator node) {
  for (const PlacedPod& placed : node->second.pods) {
    const std::string& uid = placed.pod->meta.uid;
    anti_affinity_pods.erase(uid);
    if (placed.assumed) {
      pods.at(uid).assumed_on.clear();
    } else {
      waiting[node->first].insert(uid);
    }
  }
  families.Leave(node->second.family);
  nodes.erase(node);
  NoteRoom();
}

void Snapshot::State::MoveAssumed(NodeInfo& from, const std::string& to) {
  std::vector<PlacedPod> moving = std::move(from.pods);
  from.pods.clear();
  for (const PlacedPod& placed : moving) {
    pods.at(placed.pod->meta.uid).assumed_on = to;
    Attach(to, placed.pod, /*assumed=*/true);
  }
}

void Snapshot::State::RefreshDaemonSet(const kube::DaemonSet* before,
                                       const kube::DaemonSet* after) {
  for (auto& [name, info] : nodes) {
    if ((before != nullptr && WillComeTo(*before, info)) ||
        (after != nullptr && WillComeTo(*after, info))) {
      Settle(info, /*daemons_changed=*/true);
    }
  }
}

}  // namespace muster::cluster
