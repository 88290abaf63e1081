#include <algorithm>
#include <utility>

#include "cluster/attached_volumes.h"
#include "cluster/object_versions.h"
#include "cluster/snapshot_state.h"
#include "cluster/volumes.h"

namespace muster::cluster {
namespace {

// Drivers with a limit.
template <typename Visit>
void ForEachLimited(const kube::CsiNode* node, Visit visit) {
  if (node == nullptr) return;
  for (const auto& [driver, most] : node->drivers) {
    if (most) visit(driver);
  }
}

}  // namespace

void Snapshot::State::CountUser(const kube::Pod& pod, bool uses) {
  for (const std::string& name : pod.spec->persistent_volume_claims) {
    const std::string claim = FullClaimName(pod, name);
    std::vector<std::string>& users = claim_users[claim];
    std::erase(users, pod.meta.uid);
    if (uses) users.push_back(pod.meta.uid);
    if (users.empty()) claim_users.erase(claim);
  }
}

void Snapshot::State::UsersChanged(const NodeInfo& info, const kube::Pod& pod, Source source) {
  if (pod.spec->persistent_volume_claims.empty()) return;
  ForgetAttached(info);
  if (source == Source::kOwn) return;
  for (const std::string& name : pod.spec->persistent_volume_claims) {
    const auto claim = volume_claims.find(FullClaimName(pod, name));
    if (claim == volume_claims.end()) continue;
    if ((claim->second->wants.access_modes & kube::kReadWriteOncePod) == 0) continue;
    journal.Changed(&Journal::volume_claims, claim->first, true, true);
  }
}

void Snapshot::State::SetChooser(const kube::Pod& pod, bool assumed) {
  if (pod.spec->persistent_volume_claims.empty()) return;
  // What those chose that were assumed after it may be another now.
  if (std::erase(choosers, pod.meta.uid) > 0) ForgetTaken();
  if (assumed) choosers.push_back(pod.meta.uid);
}

void Snapshot::State::ForgetTaken() {
  taken.clear();
  counted_choosers = 0;
}

void Snapshot::State::VolumesChanged() {
  attached.clear();
  made.reset();
  ForgetTaken();
}

void Snapshot::State::ForgetAttached(const NodeInfo& info) {
  if (static_cast<size_t>(info.slot) < attached.size()) attached[info.slot] = nullptr;
}

const std::vector<AttachedVolume>& Snapshot::State::AttachedOn(const Snapshot& snapshot,
                                                               const NodeInfo& info) {
  if (attached.size() < in_slot.size()) attached.resize(in_slot.size());
  auto& known = attached[info.slot];
  if (known == nullptr) {
    std::vector<const kube::VolumeAttachment*> on_node;
    if (const auto on = attachments_on.find(info.name()); on != attachments_on.end()) {
      for (const std::string& name : on->second) on_node.push_back(attachments.at(name).get());
    }
    known =
        std::make_unique<const std::vector<AttachedVolume>>(FindAttached(snapshot, info, on_node));
  }
  return *known;
}

void Snapshot::State::AttachmentsChanged(const std::string& node) {
  NodeInfo* info = Find(node);
  if (info == nullptr) return;
  ForgetAttached(*info);
  Record(*info, NodeChange::kClass, Source::kObserved);
}

void Snapshot::State::SetCsiNode(const std::string& name,
                                 std::shared_ptr<const kube::CsiNode> node) {
  std::shared_ptr<const kube::CsiNode>& known = csi_nodes[name];
  const bool alike = known != nullptr && node != nullptr && known->drivers == node->drivers;
  const bool unknown = known == nullptr && node == nullptr;
  ForEachLimited(known.get(), [&](const std::string& driver) {
    const auto limited = limited_drivers.find(driver);
    if (--limited->second == 0) limited_drivers.erase(limited);
  });
  ForEachLimited(node.get(), [&](const std::string& driver) { ++limited_drivers[driver]; });
  known = std::move(node);
  if (known == nullptr) csi_nodes.erase(name);
  if (!alike && !unknown) AttachmentsChanged(name);
}

void Snapshot::State::SetCapacity(const std::string& name,
                                  std::shared_ptr<const kube::CsiStorageCapacity> capacity) {
  const auto known = capacities.find(name);
  const auto of_class = [&](const kube::CsiStorageCapacity& one) {
    journal.Changed(&Journal::storage_classes, one.storage_class, true, true);
  };
  if (known != capacities.end() && capacity != nullptr) {
    const kube::CsiStorageCapacity& before = *known->second;
    if (IsOutdated(capacity->meta, before.meta)) return;
    if (before.nodes == capacity->nodes && before.most == capacity->most) return;
  }
  if (known != capacities.end()) {
    of_class(*known->second);
    capacities.erase(known);
  }
  if (capacity != nullptr) {
    of_class(*capacity);
    capacities[name] = std::move(capacity);
  }
  capacity_lookup.reset();
  ForgetTaken();
}

void Snapshot::State::SetAttachment(const Snapshot& snapshot, const std::string& name,
                                    std::shared_ptr<const kube::VolumeAttachment> attachment) {
  std::set<std::string> concerned;
  const auto known = attachments.find(name);
  if (known != attachments.end()) concerned.insert(known->second->node_name);
  if (attachment != nullptr) concerned.insert(attachment->node_name);
  std::map<std::string, std::vector<AttachedVolume>> before;
  for (const std::string& node : concerned) {
    if (const NodeInfo* info = Find(node)) before[node] = AttachedOn(snapshot, *info);
  }
  if (known != attachments.end()) {
    const auto on = attachments_on.find(known->second->node_name);
    on->second.erase(name);
    if (on->second.empty()) attachments_on.erase(on);
    attachments.erase(known);
  }
  if (attachment != nullptr) {
    attachments_on[attachment->node_name].insert(name);
    attachments[name] = std::move(attachment);
  }
  for (const auto& [node, was] : before) {
    const NodeInfo& info = *Find(node);
    ForgetAttached(info);
    // Of what its pods use nothing changes.
    if (AttachedOn(snapshot, info) != was) AttachmentsChanged(node);
  }
}

}  // namespace muster::cluster
