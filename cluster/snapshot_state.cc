#include "cluster/snapshot_state.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cluster/label_bits.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

constexpr std::string_view kVirtualPrefix = "nodeclaim/";

// Whether they are the same to CheckClass.
bool SameClass(const kube::Node& a, const kube::Node& b) {
  return a.meta.labels == b.meta.labels && a.unschedulable == b.unschedulable &&
         a.taints == b.taints && a.declared_features == b.declared_features;
}

bool SameClass(const kube::NodeClaim* a, const kube::NodeClaim* b) {
  if (a == b) return true;
  return a != nullptr && b != nullptr && a->requirements == b->requirements &&
         a->IsTrue("Launched") == b->IsTrue("Launched");
}

// A virtual node is judged by its forecast, and where only what kube-scheduler sees counts, by its
// Node.
bool SameClass(const NodeInfo& before, const NodeInfo& after) {
  if (before.is_virtual != after.is_virtual || before.readiness.stage != after.readiness.stage ||
      before.readiness.shortages != after.readiness.shortages ||
      !SameClass(*before.node, *after.node) || !SameClass(before.claim.get(), after.claim.get())) {
    return false;
  }
  if (before.object == nullptr || after.object == nullptr) return before.object == after.object;
  return !after.is_virtual || before.object == after.object ||
         SameClass(*before.object, *after.object);
}

bool Counts(const NodeInfo& info) { return info.UsableNow() || info.Coming(); }

NodeChanges ChangeOfCounting(bool counted, bool counts) {
  if (counted == counts) return {};
  return counts ? NodeChange::kRoomGrew : NodeChange::kWent;
}

// Below zero where others overcommit.
int64_t FreeOf(int64_t allocatable, int64_t requested) {
  int64_t free = 0;
  return __builtin_sub_overflow(allocatable, requested, &free) ? 0 : free;
}

// One walk over resource lists side by side, in order of name.
class SideBySide {
 public:
  explicit SideBySide(std::array<const kube::ResourceList*, 4> lists) : lists_(lists) {}

  // The amounts of the next resource that any of the lists has, 0 where one hasn't.
  bool Next(std::array<int64_t, 4>* amounts) {
    const std::string* name = nullptr;
    for (size_t i = 0; i < lists_.size(); ++i) {
      const auto& entries = lists_[i]->entries();
      if (at_[i] < entries.size() && (name == nullptr || entries[at_[i]].first < *name)) {
        name = &entries[at_[i]].first;
      }
    }
    if (name == nullptr) return false;
    for (size_t i = 0; i < lists_.size(); ++i) {
      const auto& entries = lists_[i]->entries();
      const bool has = at_[i] < entries.size() && entries[at_[i]].first == *name;
      (*amounts)[i] = has ? entries[at_[i]].second : 0;
      next_[i] = at_[i] + (has ? 1 : 0);
    }
    at_ = next_;
    return true;
  }

 private:
  const std::array<const kube::ResourceList*, 4> lists_;
  std::array<size_t, 4> at_ = {};
  std::array<size_t, 4> next_ = {};
};

// What is free may be below zero, as CheckRoom counts: a node on which others overcommitted less
// has more room for a pod that stands there.
NodeChanges ChangeOfRoom(const kube::ResourceList& allocatable_before,
                         const kube::ResourceList& requested_before,
                         const kube::ResourceList& allocatable,
                         const kube::ResourceList& requested) {
  NodeChanges changes;
  SideBySide walk({&allocatable_before, &requested_before, &allocatable, &requested});
  for (std::array<int64_t, 4> amounts = {}; walk.Next(&amounts);) {
    const int64_t before = FreeOf(amounts[0], amounts[1]);
    const int64_t now = FreeOf(amounts[2], amounts[3]);
    if (now > before) changes |= NodeChange::kRoomGrew;
    if (now < before) changes |= NodeChange::kRoomShrank;
  }
  return changes;
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
    info.free.push_back(std::max<int64_t>(FreeOf(allocatable, info.requested.Get(resource)), 0));
  }
}

// Two versions of a pod, as what is nominated counts.
bool CountAlike(const std::shared_ptr<const kube::Pod>& a,
                const std::shared_ptr<const kube::Pod>& b) {
  return a->meta.uid == b->meta.uid && a->spec == b->spec && a->spec_error == b->spec_error &&
         a->meta.labels == b->meta.labels && a->IsDeleting() == b->IsDeleting();
}

std::vector<PlacedPod>::iterator FindSlot(std::vector<PlacedPod>& pods, const std::string& uid) {
  return std::lower_bound(
      pods.begin(), pods.end(), uid,
      [](const PlacedPod& placed, const std::string& key) { return placed.pod->meta.uid < key; });
}

}  // namespace

const std::string& Snapshot::State::PodEntry::Place() const {
  static const std::string kNowhere;
  if (pod->IsTerminal() || aside) return kNowhere;
  return pod->IsBound() ? pod->node_name : assumed_on;
}

const std::string& Snapshot::State::PodEntry::Nomination() const {
  static const std::string kNone;
  return pod->IsTerminal() || pod->IsBound() ? kNone : pod->nominated_node_name;
}

NodeInfo* Snapshot::State::FindNode(std::string_view name) {
  NodeInfo* info = Find(name);
  if (info == nullptr && name.starts_with(kVirtualPrefix)) {
    std::vector<std::string> paired = pairing.NodesOf(name.substr(kVirtualPrefix.size()));
    if (!paired.empty()) info = Find(paired.front());
  }
  return info;
}

std::pair<NodeInfo*, bool> Snapshot::State::FindOrMake(const std::string& name) {
  const auto [it, is_new] = nodes.try_emplace(name);
  if (is_new) {
    by_name.emplace(it->first, &it->second);
    list.clear();
    if (unused_slots.empty()) {
      unused_slots.push_back(static_cast<int>(in_slot.size()));
      in_slot.push_back(nullptr);
    }
    it->second.slot = unused_slots.back();
    unused_slots.pop_back();
    in_slot[it->second.slot] = &it->second;
  }
  return {&it->second, is_new};
}

void Snapshot::State::Attach(const std::string& node, const std::shared_ptr<const kube::Pod>& pod,
                             bool assumed, Source source) {
  const std::string& uid = pod->meta.uid;
  NodeInfo* info = Find(node);
  if (info == nullptr) {
    waiting[node].insert(uid);
    return;
  }
  std::vector<PlacedPod>& placed = info->pods;
  placed.insert(FindSlot(placed, uid), {pod, assumed, LabelBits(pod->meta.labels)});
  if (KeepsOthersAway(*pod)) anti_affinity_pods[uid] = node;
  SetChooser(*pod, assumed);
  UsersChanged(*info, *pod, source);
  NodeChanges changes = NodeChange::kPods;
  if (!pod->spec->host_ports.empty()) changes |= NodeChange::kRoomShrank;
  SettlePod(*info, *pod, /*stands=*/true, changes, source);
}

void Snapshot::State::Detach(const std::string& node, const kube::Pod& pod, Source source) {
  const std::string& uid = pod.meta.uid;
  NodeInfo* info = Find(node);
  if (info == nullptr) {
    auto unknown = waiting.find(node);
    if (unknown == waiting.end()) return;
    unknown->second.erase(uid);
    if (unknown->second.empty()) waiting.erase(unknown);
    return;
  }
  std::vector<PlacedPod>& placed = info->pods;
  auto slot = FindSlot(placed, uid);
  if (slot == placed.end() || slot->pod->meta.uid != uid) return;
  // Keeps `pod` alive, which may be the version that stands here.
  std::shared_ptr<const kube::Pod> leaving = std::move(slot->pod);
  placed.erase(slot);
  anti_affinity_pods.erase(uid);
  SetChooser(*leaving, /*assumed=*/false);
  UsersChanged(*info, *leaving, source);
  NodeChanges changes = NodeChange::kPods;
  if (!leaving->spec->host_ports.empty()) changes |= NodeChange::kRoomGrew;
  SettlePod(*info, *leaving, /*stands=*/false, changes, source);
}

void Snapshot::State::Nominate(const std::string& node, const std::string& pod_uid,
                               bool is_nominated) {
  if (node.empty()) return;
  std::set<std::string>& pods_of = nominations[node];
  is_nominated ? void(pods_of.insert(pod_uid)) : void(pods_of.erase(pod_uid));
  if (pods_of.empty()) nominations.erase(node);
  RefreshNominated(node, Source::kObserved);
}

void Snapshot::State::RefreshNominated(const std::string& node, Source source) {
  NodeInfo* info = Find(node);
  const auto nominated = nominations.find(node);
  if (info == nullptr || (info->nominated.empty() && nominated == nominations.end())) return;
  const auto before = std::exchange(info->nominated, {});
  if (nominated != nominations.end()) {
    for (const std::string& uid : nominated->second) {
      const std::shared_ptr<const kube::Pod>& pod = pods.at(uid).pod;
      if (pod->priority >= least_nominated) info->nominated.push_back(pod);
    }
  }
  if (std::ranges::equal(before, info->nominated, CountAlike)) return;
  const auto have_ports = [](const auto& some) {
    return std::ranges::any_of(some,
                               [](const auto& pod) { return !pod->spec->host_ports.empty(); });
  };
  NodeChanges changes = NodeChange::kPods;
  if (have_ports(before)) changes |= NodeChange::kRoomGrew;
  if (have_ports(info->nominated)) changes |= NodeChange::kRoomShrank;
  SettlePods(*info, /*daemons_changed=*/false, changes, source);
}

void Snapshot::State::Replace(const std::string& node, const std::shared_ptr<const kube::Pod>& pod,
                              bool assumed) {
  NodeInfo* info = Find(node);
  if (info == nullptr) return;
  auto slot = FindSlot(info->pods, pod->meta.uid);
  std::shared_ptr<const kube::Pod> before = std::exchange(slot->pod, pod);
  if (slot->assumed && !assumed) SetChooser(*before, /*assumed=*/false);
  slot->assumed = assumed;
  NodeChanges changes;
  const bool daemons_changed = DaemonSetOf(*before) != DaemonSetOf(*pod);
  if (before->meta.labels != pod->meta.labels || before->IsDeleting() != pod->IsDeleting() ||
      before->longest_seconds != pod->longest_seconds || daemons_changed) {
    changes |= NodeChange::kPods;
    slot->label_bits = LabelBits(pod->meta.labels);
  }
  if (before->spec == pod->spec && before->spec_error == pod->spec_error && !daemons_changed) {
    Record(*info, changes, Source::kObserved);
    return;
  }
  ForgetAttached(*info);
  anti_affinity_pods.erase(pod->meta.uid);
  if (KeepsOthersAway(*pod)) anti_affinity_pods[pod->meta.uid] = node;
  if (before->spec->affinity.required_pod_anti_affinity !=
      pod->spec->affinity.required_pod_anti_affinity) {
    changes |= NodeChange::kPods;
  }
  if (before->spec->host_ports != pod->spec->host_ports) {
    changes |= {NodeChange::kRoomGrew, NodeChange::kRoomShrank};
  }
  SettlePods(*info, daemons_changed, changes, Source::kObserved);
}

void Snapshot::State::SettlePods(NodeInfo& info, bool daemons_changed, NodeChanges changes,
                                 Source source) {
  const bool counted = Counts(info);
  changes |= Settle(info, daemons_changed, info.node->allocatable);
  changes |= ChangeOfCounting(counted, Counts(info));
  Record(info, changes, source);
}

void Snapshot::State::SettlePod(NodeInfo& info, const kube::Pod& pod, bool stands,
                                NodeChanges changes, Source source) {
  if (const std::optional<NodeChanges> of_room = CountPod(info, pod, stands)) {
    Record(info, changes | *of_room, source);
    return;
  }
  SettlePods(info, !DaemonSetOf(pod).empty(), changes, source);
}

// Amounts are never negative, so a sum fits or doesn't fit in whatever order it is made, and adding
// and subtracting gives what summing up anew does. After a sum that didn't fit it wouldn't.
std::optional<NodeChanges> Snapshot::State::CountPod(NodeInfo& info, const kube::Pod& pod,
                                                     bool stands) {
  if (!info.error.empty() || !pod.spec_error.empty() || !DaemonSetOf(pod).empty()) {
    return std::nullopt;
  }
  const kube::ResourceList& amounts = pod.spec->requests;
  const absl::Status sum = stands ? info.requested.Add(amounts) : info.requested.Subtract(amounts);
  if (!sum.ok()) return std::nullopt;
  NodeChanges changes;
  const auto& allocatable = info.node->allocatable.entries();
  size_t at = 0;
  for (const auto& [resource, amount] : amounts.entries()) {
    if (amount == 0) continue;
    while (at < allocatable.size() && allocatable[at].first < resource) ++at;
    const bool has = at < allocatable.size() && allocatable[at].first == resource;
    const int64_t capacity = has ? allocatable[at].second : 0;
    const int64_t requested = info.requested.Get(resource);
    const int64_t now = FreeOf(capacity, requested);
    const int64_t before = FreeOf(capacity, stands ? requested - amount : requested + amount);
    if (now > before) changes |= NodeChange::kRoomGrew;
    if (now < before) changes |= NodeChange::kRoomShrank;
    if (has) info.free[at] = std::max<int64_t>(now, 0);
  }
  info.requested.DropZeros();
  return changes;
}

// Sums up anew what stands on the node.
NodeChanges Snapshot::State::Settle(NodeInfo& info, bool daemons_changed,
                                    const kube::ResourceList& allocatable_before) {
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
  const auto count = [&](const kube::Pod& pod) {
    if (!pod.spec_error.empty()) {
      note(fmt::format("pod {}: {}", pod.meta.FullName(), pod.spec_error));
    }
    if (absl::Status status = requested.Add(pod.spec->requests); !status.ok()) {
      note(fmt::format("pod {}: {}", pod.meta.FullName(), std::string(status.message())));
    }
  };
  for (const PlacedPod& placed : info.pods) count(*placed.pod);
  for (const std::shared_ptr<const kube::Pod>& pod : info.nominated) count(*pod);
  requested.DropZeros();
  NodeChanges changes =
      ChangeOfRoom(allocatable_before, info.requested, info.node->allocatable, requested);
  info.reserved_for_daemons = std::move(reserved);
  info.requested = std::move(requested);
  FillFree(info);
  if (error == info.error) return changes;
  info.error = std::move(error);
  Judge(info);
  return changes | NodeChange::kClass;
}

void Snapshot::State::Judge(NodeInfo& info) {
  info.readiness = ReadinessOf(info.object.get(), info.claim.get());
  info.in_slices = info.object == nullptr ? "" : TextOfSlices(info.object->meta.name);
  const bool lacks_all = std::ranges::any_of(
      info.readiness.shortages, [](const DeviceShortage& shortage) { return shortage.have == 0; });
  if (lacks_all && !info.readiness.message.empty()) {
    info.readiness.message += SlicesNote(info.in_slices);
  }
  if (info.error.empty() || info.readiness.stage == NodeStage::kGoing) return;
  info.readiness.stage = std::min(info.readiness.stage, NodeStage::kRegistered);
  info.readiness.message = info.error;
}

// What the two objects say together. Everything about the node that predicates read follows from
// them, so if that is unchanged nothing else is touched.
void Snapshot::State::Adopt(NodeInfo& info, std::shared_ptr<const kube::Node> object,
                            std::shared_ptr<const kube::NodeClaim> claim, bool is_new) {
  NodeInfo before;  // as far as it follows from the two
  before.node = std::move(info.node);
  before.object = std::exchange(info.object, std::move(object));
  before.claim = std::exchange(info.claim, std::move(claim));
  before.is_virtual = info.is_virtual;
  before.readiness = std::move(info.readiness);
  before.error = info.error;

  Judge(info);
  if (info.object == nullptr) {
    info.is_virtual = true;
  } else {
    info.is_virtual = info.claim != nullptr && !IsBroughtUp(*info.object) &&
                      info.readiness.stage != NodeStage::kGoing;
  }
  virtual_count += info.is_virtual ? 1 : 0;
  virtual_count -= before.is_virtual ? 1 : 0;
  info.node = info.is_virtual
                  ? std::make_shared<const kube::Node>(Forecast(info.object.get(), *info.claim))
                  : info.object;
  info.hostname = HostnameOf(*info.node);
  if (is_new) {
    info.family = families.Join(*info.node);
    journal.NodeCame(info.name());
    const NodeChanges changes = Settle(info, /*daemons_changed=*/true, {});
    Record(info, changes | ChangeOfCounting(false, Counts(info)) | NodeChange::kCame,
           Source::kObserved);
    return;
  }
  if (!NodeFamilies::Alike(*before.node, *info.node)) {
    families.Leave(info.family);
    info.family = families.Join(*info.node);
  }
  NodeChanges changes;
  if (before.object != info.object || before.claim != info.claim) changes |= NodeChange::kMarks;
  const bool same_class = SameClass(before, info);
  if (!same_class) {
    changes |= NodeChange::kClass;
    ForgetTaken();  // others may be reached
  }
  if (!same_class || before.node->allocatable != info.node->allocatable ||
      before.node->error != info.node->error) {
    changes |= Settle(info, /*daemons_changed=*/!same_class, before.node->allocatable);
    changes |= ChangeOfCounting(Counts(before), Counts(info));
  }
  Record(info, changes, Source::kObserved);
}

void Snapshot::State::Record(const NodeInfo& info, NodeChanges changes, Source source) {
  if (source == Source::kObserved) journal.NodeChanged(info.name(), changes);
  if (changes.HasAny(kMayHelp | kMayHurt)) log.Note(info.slot);
  if (changes.HasAny({NodeChange::kCame, NodeChange::kWent, NodeChange::kClass})) {
    class_log.Note(info.slot);
  }
}

void Snapshot::State::KeepVersion(NodeInfo& info, kube::Node version) {
  info.object = std::make_shared<const kube::Node>(std::move(version));
  if (!info.is_virtual) info.node = info.object;
}

void Snapshot::State::KeepVersion(std::shared_ptr<const kube::NodeClaim> version) {
  const std::string& name = version->meta.name;
  for (const std::string& node : pairing.NodesOf(name)) nodes.at(node).claim = version;
  if (auto it = nodes.find(VirtualName(name)); it != nodes.end()) it->second.claim = version;
  claims[name] = std::move(version);
}

void Snapshot::State::RefreshNode(const std::string& name,
                                  std::shared_ptr<const kube::Node> object) {
  const auto [info, is_new] = FindOrMake(name);
  auto claim = claims.find(pairing.ClaimOf(name));
  Adopt(*info, std::move(object), claim == claims.end() ? nullptr : claim->second, is_new);
  if (!is_new) return;
  RefreshNominated(name, Source::kObserved);
  auto bound = waiting.extract(name);
  if (bound.empty()) return;
  for (const std::string& uid : bound.mapped()) {
    Attach(name, pods.at(uid).pod, /*assumed=*/false, Source::kObserved);
  }
}

void Snapshot::State::RefreshClaim(const std::string& name) {
  auto claim = claims.find(name);
  std::vector<std::string> paired = pairing.NodesOf(name);
  if (claim != claims.end() && paired.empty()) {
    const auto [info, is_new] = FindOrMake(VirtualName(name));
    Adopt(*info, nullptr, claim->second, is_new);
    return;
  }
  auto virtual_node = nodes.find(VirtualName(name));
  if (virtual_node == nodes.end()) return;
  if (!paired.empty()) {
    MoveAssumed(virtual_node->second, paired.front());
    journal.NodeBecame(paired.front(), virtual_node->first);
  }
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
    UsersChanged(node->second, *placed.pod, Source::kObserved);
    if (placed.assumed) {
      SetChooser(*placed.pod, /*assumed=*/false);
      pods.at(uid).assumed_on.clear();
    } else {
      waiting[node->first].insert(uid);
    }
  }
  families.Leave(node->second.family);
  journal.NodeWent(node->first, node->second.pods.empty() ? NodeChanges() : NodeChange::kPods);
  by_name.erase(node->first);
  list.clear();
  log.Note(node->second.slot);
  class_log.Note(node->second.slot);
  ForgetAttached(node->second);
  in_slot[node->second.slot] = nullptr;
  unused_slots.push_back(node->second.slot);
  if (node->second.is_virtual) --virtual_count;
  nodes.erase(node);
}

void Snapshot::State::MoveAssumed(NodeInfo& from, const std::string& to) {
  std::vector<PlacedPod> moving = std::move(from.pods);
  from.pods.clear();
  for (const PlacedPod& placed : moving) {
    pods.at(placed.pod->meta.uid).assumed_on = to;
    Attach(to, placed.pod, /*assumed=*/true, Source::kObserved);
  }
}

std::string Snapshot::State::TextOfSlices(const std::string& node) const {
  const auto on = slices_on.find(node);
  if (on == slices_on.end()) return "";
  std::map<std::string_view, int64_t> devices;  // by driver
  for (const std::string& name : on->second) {
    const kube::ResourceSlice& slice = *slices.at(name);
    devices[slice.driver] += slice.devices;
  }
  std::string text;
  for (const auto& [driver, count] : devices) {
    if (count > 0) text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", driver, count);
  }
  return text;
}

void Snapshot::State::SetSlice(const std::string& name,
                               std::shared_ptr<const kube::ResourceSlice> slice) {
  std::set<std::string> concerned;
  if (const auto known = slices.find(name); known != slices.end()) {
    const std::string& node = known->second->node_name;
    concerned.insert(node);
    std::set<std::string>& on = slices_on[node];
    on.erase(name);
    if (on.empty()) slices_on.erase(node);
    slices.erase(known);
  }
  if (slice != nullptr && !slice->node_name.empty()) {
    concerned.insert(slice->node_name);
    slices_on[slice->node_name].insert(name);
    slices[name] = std::move(slice);
  }
  for (const std::string& node : concerned) {
    NodeInfo* info = Find(node);
    if (info == nullptr) continue;
    const std::string before = info->in_slices;
    Judge(*info);
    if (info->in_slices == before) continue;
    journal.NodeChanged(node, {NodeChange::kMarks, NodeChange::kClass});
  }
}

void Snapshot::State::RefreshDaemonSet(const kube::DaemonSet* before,
                                       const kube::DaemonSet* after) {
  for (auto& [name, info] : nodes) {
    if ((before != nullptr && WillComeTo(*before, info)) ||
        (after != nullptr && WillComeTo(*after, info))) {
      SettlePods(info, /*daemons_changed=*/true, {}, Source::kObserved);
    }
  }
}

}  // namespace muster::cluster
