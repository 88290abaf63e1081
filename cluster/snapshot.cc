#include "cluster/snapshot.h"

#include <algorithm>
#include <set>
#include <utility>

#include "cluster/made_volumes.h"
#include "cluster/object_versions.h"
#include "cluster/snapshot_state.h"
#include "cluster/volumes.h"
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

using muster::cluster::ReadAlike;

// A namespace without labels is to predicates as one that isn't known.
bool IsRead(const kube::Namespace& name_space) { return !name_space.meta.labels.empty(); }
bool ReadAlike(const kube::Namespace& a, const kube::Namespace& b) {
  return a.meta.labels == b.meta.labels;
}

// A driver that is missed nowhere and tells nothing is to predicates as one that isn't known.
bool IsRead(const kube::CsiDriver& driver) {
  return driver.must_be_on_node || driver.tells_capacity;
}
bool ReadAlike(const kube::CsiDriver& a, const kube::CsiDriver& b) {
  return a.must_be_on_node == b.must_be_on_node && a.tells_capacity == b.tells_capacity;
}

template <typename T>
bool IsRead(const T&) {
  return true;
}

// Put and Erase of what belongs to no node, journalled if it changes what predicates read; true
// then.
template <typename T>
bool PutRead(Store<T>& store, const std::string& key, T object, JournalRecorder& journal,
             Journal::ByName<ObjectChange> Journal::* kind) {
  auto known = store.find(key);
  const std::shared_ptr<const T> before = known == store.end() ? nullptr : known->second;
  const bool was_read = before != nullptr && IsRead(*before);
  const bool is_read = IsRead(object);
  const bool alike = was_read == is_read && (!is_read || ReadAlike(*before, object));
  if (!Put(store, key, std::move(object)) || alike) return false;
  journal.Changed(kind, key, was_read, is_read);
  return true;
}

template <typename T>
bool EraseRead(Store<T>& store, const std::string& key, JournalRecorder& journal,
               Journal::ByName<ObjectChange> Journal::* kind) {
  auto known = store.find(key);
  if (known == store.end()) return false;
  const bool was_read = IsRead(*known->second);
  if (was_read) journal.Changed(kind, key, true, false);
  store.erase(known);
  return was_read;
}

}  // namespace

Snapshot::Snapshot() : state_(std::make_unique<State>(nodes_)) {}
Snapshot::~Snapshot() = default;

void Snapshot::Upsert(kube::Node node) {
  const std::string name = node.meta.name;
  std::set<std::string> claims;
  if (NodeInfo* known = state_->Find(name)) {
    NodeInfo& info = *known;
    if (IsOutdated(node.meta, info.object->meta)) return;
    if (SameButVersion(node, *info.object)) {
      state_->KeepVersion(info, std::move(node));
      return;
    }
    if (info.claim != nullptr) claims.insert(info.claim->meta.name);
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
  if (const kube::NodeClaim* known = FindNodeClaim(name)) {
    if (IsOutdated(claim.meta, known->meta)) return;
    if (SameButVersion(claim, *known)) {
      state_->KeepVersion(std::make_shared<const kube::NodeClaim>(std::move(claim)));
      return;
    }
  }
  std::set<std::string> nodes = state_->pairing.NodesNamedBy(name);
  state_->pairing.SetClaim(name, claim.node_name, claim.provider_id);
  nodes.merge(state_->pairing.NodesNamedBy(name));
  state_->claims[name] = std::make_shared<const kube::NodeClaim>(std::move(claim));
  state_->RefreshPairs(nodes, {name});
}

void Snapshot::RemoveNodeClaim(std::string_view name) {
  if (!Erase(state_->claims, name)) return;
  std::set<std::string> nodes = state_->pairing.NodesNamedBy(name);
  state_->pairing.RemoveClaim(std::string(name));
  state_->RefreshPairs(nodes, {std::string(name)});
}

void Snapshot::Upsert(kube::Pod pod) {
  auto [it, is_new] = state_->pods.try_emplace(pod.meta.uid);
  State::PodEntry& entry = it->second;
  if (!is_new && IsOutdated(pod.meta, entry.pod->meta)) return;
  std::shared_ptr<const kube::Pod> before = entry.pod;
  const std::string place_before = is_new ? std::string() : entry.Place();
  const std::string nominated_before = is_new ? std::string() : entry.Nomination();

  // A pod is updated often and its spec hardly ever.
  const bool alike = before != nullptr && (before->spec == pod.spec || *before->spec == *pod.spec);
  pod.spec = alike ? before->spec : state_->specs.Share(pod.spec);
  entry.pod = std::make_shared<const kube::Pod>(std::move(pod));
  if (!alike) {
    if (before != nullptr) state_->CountUser(*before, false);
    state_->CountUser(*entry.pod, true);
  }
  if (const std::string& nominated = entry.Nomination(); nominated != nominated_before) {
    state_->Nominate(nominated_before, entry.pod->meta.uid, false);
    state_->Nominate(nominated, entry.pod->meta.uid, true);
  } else if (!nominated.empty()) {
    state_->RefreshNominated(nominated, State::Source::kObserved);
  }
  if (entry.pod->IsBound() || entry.pod->IsTerminal()) entry.assumed_on.clear();
  const std::string place = entry.Place();
  const bool assumed = !entry.assumed_on.empty();
  std::shared_ptr<const kube::Pod> after = entry.pod;
  if (place == place_before) {
    state_->Replace(place, after, assumed);
    return;
  }
  if (!place_before.empty()) state_->Detach(place_before, *before, State::Source::kObserved);
  if (!place.empty()) state_->Attach(place, after, assumed, State::Source::kObserved);
}

void Snapshot::RemovePod(std::string_view uid) {
  auto it = state_->FindPod(uid);
  if (it == state_->pods.end()) return;
  State::PodEntry entry = std::move(it->second);
  state_->pods.erase(it);
  state_->CountUser(*entry.pod, false);
  state_->Nominate(entry.Nomination(), entry.pod->meta.uid, false);
  if (const std::string& place = entry.Place(); !place.empty()) {
    state_->Detach(place, *entry.pod, State::Source::kObserved);
  }
}

absl::Status Snapshot::Assume(std::string_view pod_uid, std::string_view node_name) {
  auto it = state_->FindPod(pod_uid);
  if (it == state_->pods.end()) {
    return absl::NotFoundError(fmt::format("pod {} isn't known", pod_uid));
  }
  State::PodEntry& entry = it->second;
  const kube::ObjectMeta& meta = entry.pod->meta;
  if (entry.pod->IsTerminal()) {
    return absl::FailedPreconditionError(fmt::format("pod {} has ended", meta.FullName()));
  }
  if (entry.pod->IsBound()) {
    return absl::FailedPreconditionError(
        fmt::format("pod {} is bound to {}", meta.FullName(), entry.pod->node_name));
  }
  const NodeInfo* info = FindNode(node_name);
  if (info == nullptr) return absl::NotFoundError(fmt::format("node {} isn't known", node_name));
  if (entry.assumed_on == info->name()) return absl::OkStatus();
  if (!entry.assumed_on.empty()) {
    return absl::FailedPreconditionError(
        fmt::format("pod {} is assumed on {}", meta.FullName(), entry.assumed_on));
  }
  entry.assumed_on = info->name();
  state_->Attach(entry.assumed_on, entry.pod, /*assumed=*/true, State::Source::kOwn);
  return absl::OkStatus();
}

void Snapshot::Forget(std::string_view pod_uid) {
  auto it = state_->FindPod(pod_uid);
  if (it == state_->pods.end() || it->second.assumed_on.empty()) return;
  const std::string node = std::exchange(it->second.assumed_on, "");
  state_->Detach(node, *it->second.pod, State::Source::kOwn);
}

void Snapshot::SetAside(std::string_view pod_uid) {
  const auto it = state_->FindPod(pod_uid);
  if (it == state_->pods.end() || !it->second.pod->IsBound()) return;
  const std::string place = it->second.Place();
  if (place.empty()) return;
  it->second.aside = true;
  state_->Detach(place, *it->second.pod, State::Source::kOwn);
}

void Snapshot::PutBack(std::string_view pod_uid) {
  const auto it = state_->FindPod(pod_uid);
  if (it == state_->pods.end() || !std::exchange(it->second.aside, false)) return;
  state_->Attach(it->second.Place(), it->second.pod, /*assumed=*/false, State::Source::kOwn);
}

int64_t Snapshot::CountNominations(int64_t least_priority) {
  const int64_t before = std::exchange(state_->least_nominated, least_priority);
  const auto [low, high] = std::minmax(before, least_priority);
  for (const auto& [node, pods] : state_->nominations) {
    const bool concerned = std::ranges::any_of(pods, [&](const std::string& uid) {
      const int32_t priority = state_->pods.at(uid).pod->priority;
      return priority >= low && priority < high;
    });
    if (concerned) state_->RefreshNominated(node, State::Source::kOwn);
  }
  return before;
}

void Snapshot::Upsert(kube::ResourceSlice slice) {
  const kube::ResourceSlice* known = Find(state_->slices, slice.meta.name);
  if (known != nullptr && IsOutdated(slice.meta, known->meta)) return;
  const std::string name = slice.meta.name;
  state_->SetSlice(name, std::make_shared<const kube::ResourceSlice>(std::move(slice)));
}

void Snapshot::Remove(const kube::ResourceSlice& slice) {
  state_->SetSlice(slice.meta.name, nullptr);
}

void Snapshot::Upsert(kube::DaemonSet daemon_set) {
  const std::string uid = daemon_set.meta.uid;
  std::shared_ptr<const kube::DaemonSet> before;
  if (auto it = state_->daemon_sets.find(uid); it != state_->daemon_sets.end()) before = it->second;
  if (!Put(state_->daemon_sets, uid, std::move(daemon_set))) return;
  const kube::DaemonSet& after = *state_->daemon_sets.at(uid);
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
  state_->RefreshDaemonSet(before.get(), nullptr);
}

void Snapshot::Upsert(kube::Namespace name_space) {
  const std::string key = name_space.meta.name;
  PutRead(state_->namespaces, key, std::move(name_space), state_->journal, &Journal::namespaces);
}

void Snapshot::Upsert(kube::PersistentVolumeClaim claim) {
  const std::string key = claim.meta.FullName();
  if (PutRead(state_->volume_claims, key, std::move(claim), state_->journal,
              &Journal::volume_claims)) {
    state_->VolumesChanged();
  }
}

void Snapshot::Upsert(kube::PersistentVolume volume) {
  const std::string key = volume.meta.name;
  if (PutRead(state_->volumes, key, std::move(volume), state_->journal, &Journal::volumes)) {
    state_->VolumesChanged();
  }
}

void Snapshot::Upsert(kube::StorageClass storage_class) {
  const std::string key = storage_class.meta.name;
  if (PutRead(state_->storage_classes, key, std::move(storage_class), state_->journal,
              &Journal::storage_classes)) {
    state_->VolumesChanged();
  }
}

void Snapshot::RemoveNamespace(std::string_view name) {
  EraseRead(state_->namespaces, std::string(name), state_->journal, &Journal::namespaces);
}

void Snapshot::RemovePersistentVolumeClaim(std::string_view full_name) {
  if (EraseRead(state_->volume_claims, std::string(full_name), state_->journal,
                &Journal::volume_claims)) {
    state_->VolumesChanged();
  }
}

void Snapshot::RemovePersistentVolume(std::string_view name) {
  if (EraseRead(state_->volumes, std::string(name), state_->journal, &Journal::volumes)) {
    state_->VolumesChanged();
  }
}

void Snapshot::RemoveStorageClass(std::string_view name) {
  if (EraseRead(state_->storage_classes, std::string(name), state_->journal,
                &Journal::storage_classes)) {
    state_->VolumesChanged();
  }
}

void Snapshot::Upsert(kube::CsiNode node) {
  const kube::CsiNode* known = FindCsiNode(node.meta.name);
  if (known != nullptr && IsOutdated(node.meta, known->meta)) return;
  const std::string name = node.meta.name;
  state_->SetCsiNode(name, std::make_shared<const kube::CsiNode>(std::move(node)));
}

void Snapshot::RemoveCsiNode(std::string_view name) {
  state_->SetCsiNode(std::string(name), nullptr);
}

void Snapshot::Upsert(kube::CsiDriver driver) {
  const std::string key = driver.meta.name;
  if (PutRead(state_->csi_drivers, key, std::move(driver), state_->journal,
              &Journal::csi_drivers)) {
    state_->ForgetTaken();
  }
}

void Snapshot::RemoveCsiDriver(std::string_view name) {
  if (EraseRead(state_->csi_drivers, std::string(name), state_->journal, &Journal::csi_drivers)) {
    state_->ForgetTaken();
  }
}

void Snapshot::Upsert(kube::CsiStorageCapacity capacity) {
  const std::string name = capacity.meta.FullName();
  state_->SetCapacity(name, std::make_shared<const kube::CsiStorageCapacity>(std::move(capacity)));
}

void Snapshot::Remove(const kube::CsiStorageCapacity& capacity) {
  state_->SetCapacity(capacity.meta.FullName(), nullptr);
}

void Snapshot::Upsert(kube::VolumeAttachment attachment) {
  const kube::VolumeAttachment* known = Find(state_->attachments, attachment.meta.name);
  if (known != nullptr && IsOutdated(attachment.meta, known->meta)) return;
  const std::string name = attachment.meta.name;
  state_->SetAttachment(*this, name,
                        std::make_shared<const kube::VolumeAttachment>(std::move(attachment)));
}

void Snapshot::RemoveVolumeAttachment(std::string_view name) {
  state_->SetAttachment(*this, std::string(name), nullptr);
}

Journal Snapshot::TakeJournal() { return state_->journal.Take(); }

const NodeLog& Snapshot::log() const { return state_->log; }
const NodeLog& Snapshot::class_log() const { return state_->class_log; }

const NodeInfo* Snapshot::NodeIn(int slot) const { return state_->in_slot[slot]; }

int Snapshot::slot_count() const { return static_cast<int>(state_->in_slot.size()); }

const std::vector<const NodeInfo*>& Snapshot::node_list() const {
  if (state_->list.empty()) {
    state_->list.reserve(nodes_.size());
    for (const auto& [name, info] : nodes_) state_->list.push_back(&info);
  }
  return state_->list;
}

size_t Snapshot::virtual_count() const { return state_->virtual_count; }

const NodeInfo* Snapshot::FindNode(std::string_view name) const { return state_->FindNode(name); }

const kube::Node* Snapshot::FindNodeObject(std::string_view name) const {
  const NodeInfo* info = FindNode(name);
  return info == nullptr ? nullptr : info->object.get();
}

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
  return state_->Find(place);
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

const std::map<std::string, std::shared_ptr<const kube::PersistentVolume>, std::less<>>&
Snapshot::persistent_volumes() const {
  return state_->volumes;
}

const kube::StorageClass* Snapshot::FindStorageClass(std::string_view name) const {
  return Find(state_->storage_classes, name);
}

const kube::CsiNode* Snapshot::FindCsiNode(std::string_view node) const {
  return Find(state_->csi_nodes, node);
}

const kube::CsiDriver* Snapshot::FindCsiDriver(std::string_view name) const {
  return Find(state_->csi_drivers, name);
}

bool Snapshot::CanMake(std::string_view storage_class, int64_t bytes, const NodeInfo& info) const {
  const kube::StorageClass* known = FindStorageClass(storage_class);
  const kube::CsiDriver* driver = known == nullptr ? nullptr : FindCsiDriver(known->provisioner);
  // Of a node that isn't there yet drivers say nothing.
  if (driver == nullptr || !driver->tells_capacity || info.is_virtual) return true;
  if (!state_->capacity_lookup) {
    StorageCapacities& lookup = state_->capacity_lookup.emplace();
    for (const auto& [name, capacity] : state_->capacities) lookup.Add(capacity);
  }
  return state_->capacity_lookup->Suffice(storage_class, bytes, info.node->meta.labels);
}

bool Snapshot::IsLimited(std::string_view driver) const {
  return state_->limited_drivers.contains(driver);
}

const std::vector<std::string>& Snapshot::UsersOf(std::string_view claim) const {
  static const std::vector<std::string> kNobody;
  const auto it = state_->claim_users.find(absl::string_view(claim.data(), claim.size()));
  return it == state_->claim_users.end() ? kNobody : it->second;
}

const std::vector<AttachedVolume>& Snapshot::AttachedOn(const NodeInfo& info) const {
  return state_->AttachedOn(*this, info);
}

const AllMadeVolumes& Snapshot::made_volumes() const {
  if (!state_->made) state_->made = FindMadeVolumes(*this);
  return *state_->made;
}

const TakenVolumes& Snapshot::taken_volumes() const {
  for (size_t& next = state_->counted_choosers; next < state_->choosers.size(); ++next) {
    const kube::Pod& pod = *FindPod(state_->choosers[next]);
    const NodeInfo* info = FindNodeOfPod(pod.meta.uid);
    if (info == nullptr) continue;
    for (const VolumeChoice& choice : PlanClaims(*this, pod, *info, state_->taken).bind) {
      state_->taken[choice.volume->meta.name] = pod.meta.uid;
    }
  }
  return state_->taken;
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

}  // namespace muster::cluster
