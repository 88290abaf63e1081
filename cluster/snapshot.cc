#include "cluster/snapshot.h"

#include <set>
#include <utility>

#include "cluster/snapshot_state.h"
#include "fmt/format.h"

namespace muster::cluster {
namespace {

template <typename T>
using Store = std::map<std::string, std::shared_ptr<const T>, std::less<>>;

template <typename T>
const T* Find(const Store<T>& store, std::string_view key) {
  auto it = store.find(key);
  return it == store.end() ? nullptr : it->second.get();
}

bool IsOutdated(const kube::ObjectMeta& candidate, const kube::ObjectMeta& current) {
  return candidate.uid == current.uid &&
         kube::IsOlderVersion(candidate.resource_version, current.resource_version);
}

// False, and nothing stored, if what is there is newer.
template <typename T>
bool Put(Store<T>& store, const std::string& key, T object) {
  std::shared_ptr<const T>& slot = store[key];
  if (slot != nullptr && IsOutdated(object.meta, slot->meta)) return false;
  slot = std::make_shared<const T>(std::move(object));
  return true;
}

template <typename T>
bool Erase(Store<T>& store, std::string_view key) {
  auto it = store.find(key);
  if (it == store.end()) return false;
  store.erase(it);
  return true;
}

}  // namespace

Snapshot::Snapshot() : state_(std::make_unique<State>(nodes_)) {}
Snapshot::~Snapshot() = default;

void Snapshot::Upsert(kube::Node node) {
  const std::string name = node.meta.name;
  std::set<std::string> claims;
  if (auto known = nodes_.find(name); known != nodes_.end()) {
    if (IsOutdated(node.meta, known->second.object->meta)) return;
    if (known->second.claim != nullptr) claims.insert(known->second.claim->meta.name);
  }
  state_->pairing.SetNode(name, node.provider_id);
  state_->RefreshNode(name, std::make_shared<const kube::Node>(std::move(node)));
  const NodeInfo& info = nodes_.at(name);
  if (info.claim != nullptr) claims.insert(info.claim->meta.name);
  for (const std::string& claim : claims) state_->RefreshClaim(claim);
}

void Snapshot::RemoveNode(std::string_view name) {
  auto it = nodes_.find(name);
  if (it == nodes_.end() || it->second.object == nullptr) return;
  std::shared_ptr<const kube::NodeClaim> claim = it->second.claim;
  state_->pairing.RemoveNode(it->first);
  state_->RemoveNode(it);
  if (claim != nullptr) state_->RefreshClaim(claim->meta.name);
}

void Snapshot::Upsert(kube::NodeClaim claim) {
  const std::string name = claim.meta.name;
  const std::string node_name = claim.node_name;
  const std::string provider_id = claim.provider_id;
  if (!Put(state_->claims, name, std::move(claim))) return;
  std::set<std::string> nodes = state_->pairing.NodesNamedBy(name);
  state_->pairing.SetClaim(name, node_name, provider_id);
  nodes.merge(state_->pairing.NodesNamedBy(name));
  state_->NoteChange();
  state_->RefreshPairs(nodes, {name});
}

void Snapshot::RemoveNodeClaim(std::string_view name) {
  if (!Erase(state_->claims, name)) return;
  std::set<std::string> nodes = state_->pairing.NodesNamedBy(name);
  state_->pairing.RemoveClaim(std::string(name));
  state_->NoteChange();
  state_->RefreshPairs(nodes, {std::string(name)});
}

void Snapshot::Upsert(kube::Pod pod) {
  auto [it, is_new] = state_->pods.try_emplace(pod.meta.uid);
  State::PodEntry& entry = it->second;
  if (!is_new && IsOutdated(pod.meta, entry.pod->meta)) return;
  std::shared_ptr<const kube::Pod> before = entry.pod;
  const std::string place_before = is_new ? "" : entry.Place();
  const bool was_assumed = !entry.assumed_on.empty();

  // A pod is updated often and its spec hardly ever.
  pod.spec = before != nullptr && *before->spec == *pod.spec ? before->spec
                                                             : state_->specs.Share(pod.spec);
  entry.pod = std::make_shared<const kube::Pod>(std::move(pod));
  if (entry.pod->IsBound() || entry.pod->IsTerminal()) entry.assumed_on.clear();
  const std::string place = entry.Place();
  const bool assumed = !entry.assumed_on.empty();
  std::shared_ptr<const kube::Pod> after = entry.pod;
  state_->NoteChange();
  if (place == place_before && assumed == was_assumed) {
    state_->Replace(place, after);
    return;
  }
  if (!place_before.empty()) state_->Detach(place_before, *before);
  if (!place.empty()) state_->Attach(place, after, assumed);
}

void Snapshot::RemovePod(std::string_view uid) {
  auto it = state_->FindPod(uid);
  if (it == state_->pods.end()) return;
  State::PodEntry entry = std::move(it->second);
  state_->pods.erase(it);
  state_->NoteChange();
  if (std::string place = entry.Place(); !place.empty()) state_->Detach(place, *entry.pod);
}

absl::Status Snapshot::Assume(std::string_view pod_uid, std::string_view node_name) {
  auto it = state_->FindPod(pod_uid);
  if (it == state_->pods.end()) {
    return absl::NotFoundError(fmt::format("pod {} isn't known", pod_uid));
  }
  State::PodEntry& entry = it->second;
  const std::string pod = entry.pod->meta.FullName();
  if (entry.pod->IsTerminal()) {
    return absl::FailedPreconditionError(fmt::format("pod {} has ended", pod));
  }
  if (entry.pod->IsBound()) {
    return absl::FailedPreconditionError(
        fmt::format("pod {} is bound to {}", pod, entry.pod->node_name));
  }
  const NodeInfo* info = FindNode(node_name);
  if (info == nullptr) return absl::NotFoundError(fmt::format("node {} isn't known", node_name));
  const std::string name = info->name();
  if (entry.assumed_on == name) return absl::OkStatus();
  if (!entry.assumed_on.empty()) {
    return absl::FailedPreconditionError(
        fmt::format("pod {} is assumed on {}", pod, entry.assumed_on));
  }
  entry.assumed_on = name;
  state_->NoteChange();
  state_->Attach(name, entry.pod, /*assumed=*/true);
  return absl::OkStatus();
}

void Snapshot::Forget(std::string_view pod_uid) {
  auto it = state_->FindPod(pod_uid);
  if (it == state_->pods.end() || it->second.assumed_on.empty()) return;
  const std::string node = std::exchange(it->second.assumed_on, "");
  state_->Detach(node, *it->second.pod);
}

void Snapshot::Upsert(kube::DaemonSet daemon_set) {
  const std::string uid = daemon_set.meta.uid;
  std::shared_ptr<const kube::DaemonSet> before;
  if (auto it = state_->daemon_sets.find(uid); it != state_->daemon_sets.end()) before = it->second;
  if (!Put(state_->daemon_sets, uid, std::move(daemon_set))) return;
  const kube::DaemonSet& after = *state_->daemon_sets.at(uid);
  state_->NoteChange();
  // Its status changes with each of its pods.
  if (before != nullptr && *before->pod_spec == *after.pod_spec && before->error == after.error &&
      before->meta.deletion_time == after.meta.deletion_time) {
    return;
  }
  state_->RefreshDaemonSet(before.get(), &after);
}

void Snapshot::RemoveDaemonSet(std::string_view uid) {
  auto it = state_->daemon_sets.find(uid);
  if (it == state_->daemon_sets.end()) return;
  std::shared_ptr<const kube::DaemonSet> before = it->second;
  state_->daemon_sets.erase(it);
  state_->NoteChange();
  state_->RefreshDaemonSet(before.get(), nullptr);
}

void Snapshot::Upsert(kube::Namespace name_space) {
  const std::string key = name_space.meta.name;
  if (Put(state_->namespaces, key, std::move(name_space))) state_->NoteRoom();
}

void Snapshot::Upsert(kube::PersistentVolumeClaim claim) {
  const std::string key = claim.meta.FullName();
  if (Put(state_->volume_claims, key, std::move(claim))) state_->NoteRoom();
}

void Snapshot::Upsert(kube::PersistentVolume volume) {
  const std::string key = volume.meta.name;
  if (Put(state_->volumes, key, std::move(volume))) state_->NoteRoom();
}

void Snapshot::Upsert(kube::StorageClass storage_class) {
  const std::string key = storage_class.meta.name;
  if (Put(state_->storage_classes, key, std::move(storage_class))) state_->NoteRoom();
}

void Snapshot::RemoveNamespace(std::string_view name) {
  if (Erase(state_->namespaces, name)) state_->NoteRoom();
}

void Snapshot::RemovePersistentVolumeClaim(std::string_view full_name) {
  if (Erase(state_->volume_claims, full_name)) state_->NoteRoom();
}

void Snapshot::RemovePersistentVolume(std::string_view name) {
  if (Erase(state_->volumes, name)) state_->NoteRoom();
}

void Snapshot::RemoveStorageClass(std::string_view name) {
  if (Erase(state_->storage_classes, name)) state_->NoteRoom();
}

const NodeInfo* Snapshot::FindNode(std::string_view name) const { return state_->FindNode(name); }

const kube::Pod* Snapshot::FindPod(std::string_view uid) const {
  auto it = state_->FindPod(uid);
  return it == state_->pods.end() ? nullptr : it->second.pod.get();
}

std::shared_ptr<const kube::Pod> Snapshot::SharePod(std::string_view uid) const {
  auto it = state_->FindPod(uid);
  return it == state_->pods.end() ? nullptr : it->second.pod;
}

const NodeInfo* Snapshot::FindNodeOfPod(std::string_view uid) const {
  auto it = state_->FindPod(uid);
  if (it == state_->pods.end()) return nullptr;
  const std::string& place = it->second.Place();
  if (place.empty()) return nullptr;
  auto node = nodes_.find(place);
  return node == nodes_.end() ? nullptr : &node->second;
}

const kube::NodeClaim* Snapshot::FindNodeClaim(std::string_view name) const {
  return Find(state_->claims, name);
}

const kube::Namespace* Snapshot::FindNamespace(std::string_view name) const {
  return Find(state_->namespaces, name);
}

const kube::PersistentVolumeClaim* Snapshot::FindPersistentVolumeClaim(
    std::string_view full_name) const {
  return Find(state_->volume_claims, full_name);
}

const kube::PersistentVolume* Snapshot::FindPersistentVolume(std::string_view name) const {
  return Find(state_->volumes, name);
}

const kube::StorageClass* Snapshot::FindStorageClass(std::string_view name) const {
  return Find(state_->storage_classes, name);
}

const std::map<std::string, std::shared_ptr<const kube::NodeClaim>, std::less<>>&
Snapshot::node_claims() const {
  return state_->claims;
}

const std::map<std::string, std::shared_ptr<const kube::Namespace>, std::less<>>&
Snapshot::namespaces() const {
  return state_->namespaces;
}

const absl::flat_hash_map<std::string, std::string>& Snapshot::anti_affinity_pods() const {
  return state_->anti_affinity_pods;
}

size_t Snapshot::pod_count() const { return state_->pods.size(); }

uint64_t Snapshot::room_epoch() const { return state_->room_epoch; }

uint64_t Snapshot::change_epoch() const { return state_->change_epoch; }

}  // namespace muster::cluster
