#include "cluster/attached_volumes.h"

#include <algorithm>
#include <tuple>

#include "cluster/made_volumes.h"
#include "cluster/volumes.h"
#include "fmt/format.h"

namespace muster::cluster {
namespace {

using AttachedAs = std::pair<std::string, std::string>;  // driver, handle

// Kubernetes' own name from before limits were in CSINodes.
constexpr std::string_view kAttachable = "attachable-volumes-csi-";
constexpr std::string_view kShared = "shared volume ";

// As what the claim's volume is attached; nullopt if nothing of it counts.
std::optional<AttachedAs> NameOf(const Snapshot& snapshot,
                                 const kube::PersistentVolumeClaim& claim) {
  const kube::PersistentVolume* volume =
      claim.volume_name.empty() ? nullptr : snapshot.FindPersistentVolume(claim.volume_name);
  if (volume != nullptr) {
    if (volume->driver.empty() || volume->handle.empty()) return std::nullopt;
    return AttachedAs(volume->driver, volume->handle);
  }
  const kube::StorageClass* storage_class = snapshot.FindStorageClass(claim.storage_class);
  if (claim.storage_class.empty() || storage_class == nullptr) return std::nullopt;
  const std::string_view driver = kube::CsiDriverOf(storage_class->provisioner);
  if (driver.empty()) return std::nullopt;
  return AttachedAs(driver, "claim " + claim.meta.FullName());
}

bool IsShared(const Snapshot& snapshot, std::string_view claim) {
  return std::ranges::count_if(snapshot.UsersOf(claim), [&](const std::string& uid) {
           return !snapshot.FindPod(uid)->IsTerminal();
         }) > 1;
}

// Of one driver.
struct Load {
  int64_t attached = 0;  // that the pod asked about doesn't need to be there
  int64_t own = 0;       // new ones of the pod, that no other uses
  int64_t shared = 0;    // and that others use
};

Load LoadOf(const std::vector<AttachedVolume>& attached, const std::string& driver,
            const WantedVolumes& wanted, std::string_view pod_uid) {
  Load load;
  const auto [begin, end] = std::ranges::equal_range(attached, driver, {}, &AttachedVolume::driver);
  const std::string* last = nullptr;
  for (auto it = begin; it != end; ++it) {
    if (it->pod == pod_uid && !pod_uid.empty()) continue;
    load.attached += last == nullptr || *last != it->handle;
    last = &it->handle;
  }
  for (const WantedVolumes::Volume& volume : wanted.volumes) {
    if (volume.driver != driver) continue;
    const bool used_there = std::any_of(begin, end, [&](const AttachedVolume& one) {
      return one.handle == volume.handle && !one.pod.empty() && one.pod != pod_uid;
    });
    if (!used_there) ++(volume.shared ? load.shared : load.own);
  }
  return load;
}

const kube::CsiNode* CsiNodeOf(const Snapshot& snapshot, const NodeInfo& info) {
  return info.object == nullptr ? nullptr : snapshot.FindCsiNode(info.object->meta.name);
}

// How many of the driver's volumes the node can have; nullopt: any number.
std::optional<int64_t> MostOf(const kube::CsiNode* node, std::string_view driver) {
  if (node == nullptr) return std::nullopt;
  const auto known = node->drivers.find(driver);
  return known == node->drivers.end() ? std::nullopt : known->second;
}

// 1.35 has the rule behind a feature gate, 1.37 by default.
bool LacksDriver(const Snapshot& snapshot, const NodeInfo& info, const kube::CsiNode* node,
                 const std::string& driver) {
  if (info.object == nullptr || info.is_virtual) return false;  // it comes with the node
  const kube::CsiDriver* known = snapshot.FindCsiDriver(driver);
  return known != nullptr && known->must_be_on_node &&
         (node == nullptr || !node->drivers.contains(driver));
}

using Room = std::pair<int64_t, std::optional<Rejection>>;  // 0 with a reason

Room AttachRoomBeside(const std::vector<AttachedVolume>& attached, const Snapshot& snapshot,
                      const WantedVolumes& wanted, const kube::Pod& pod, const NodeInfo& info) {
  int64_t room = kManyPods;
  const kube::CsiNode* node = CsiNodeOf(snapshot, info);
  const std::string* last = nullptr;
  for (const WantedVolumes::Volume& volume : wanted.volumes) {
    if (last != nullptr && *last == volume.driver) continue;
    last = &volume.driver;
    if (LacksDriver(snapshot, info, node, volume.driver)) {
      return {0, Rejection{RejectionCode::kVolume,
                           fmt::format("CSI driver {} isn't on this node", volume.driver)}};
    }
    const std::optional<int64_t> most = MostOf(node, volume.driver);
    if (!most) continue;
    const Load load = LoadOf(attached, volume.driver, wanted, pod.meta.uid);
    const int64_t left = *most - load.attached;
    if (load.own + load.shared == 0) continue;
    if (load.own + load.shared > left) {
      return {0, LacksAttachments(volume.driver, load.own + load.shared, left)};
    }
    if (load.own > 0) room = std::min(room, (left - load.shared) / load.own);
  }
  return {room, std::nullopt};
}

void AddVolumesOf(const Snapshot& snapshot, const kube::Pod& pod,
                  std::vector<AttachedVolume>* attached) {
  for (const std::string& name : pod.spec->persistent_volume_claims) {
    const auto* claim = snapshot.FindPersistentVolumeClaim(FullClaimName(pod, name));
    std::optional<AttachedAs> named = claim == nullptr ? std::nullopt : NameOf(snapshot, *claim);
    if (!named) continue;
    attached->push_back({std::move(named->first), std::move(named->second), pod.meta.uid});
  }
}

// Once the pods stand there that are nominated for it.
std::vector<AttachedVolume> WithNominated(const Snapshot& snapshot, const NodeInfo& info) {
  std::vector<AttachedVolume> attached = snapshot.AttachedOn(info);
  for (const auto& pod : info.nominated) AddVolumesOf(snapshot, *pod, &attached);
  std::ranges::sort(attached);
  return attached;
}

// Both with the nominated pods and without.
Room AttachRoomOf(const Snapshot& snapshot, const WantedVolumes& wanted, const kube::Pod& pod,
                  const NodeInfo& info) {
  if (wanted.nowhere) return {0, wanted.nowhere};
  if (wanted.volumes.empty()) return {kManyPods, std::nullopt};
  Room room = AttachRoomBeside(snapshot.AttachedOn(info), snapshot, wanted, pod, info);
  if (info.nominated.empty() || room.first == 0) return room;
  Room with = AttachRoomBeside(WithNominated(snapshot, info), snapshot, wanted, pod, info);
  return with.first < room.first ? with : room;
}

}  // namespace

WantedVolumes WantedBy(const Snapshot& snapshot, const kube::Pod& pod) {
  WantedVolumes wanted;
  for (const std::string& name : pod.spec->persistent_volume_claims) {
    const std::string full_name = FullClaimName(pod, name);
    const kube::PersistentVolumeClaim* claim = snapshot.FindPersistentVolumeClaim(full_name);
    // CheckVolumes says that it is missing.
    std::optional<AttachedAs> named = claim == nullptr ? std::nullopt : NameOf(snapshot, *claim);
    if (!named) continue;
    wanted.volumes.push_back(
        {std::move(named->first), std::move(named->second), IsShared(snapshot, full_name)});
  }
  const auto by_name = [](const WantedVolumes::Volume& volume) {
    return std::tie(volume.driver, volume.handle);
  };
  std::ranges::sort(wanted.volumes, {}, by_name);
  const auto twice = std::ranges::unique(wanted.volumes, {}, by_name);
  wanted.volumes.erase(twice.begin(), twice.end());
  if (const auto held = HeldByAnother(snapshot, pod)) {
    wanted.nowhere = {RejectionCode::kVolumeInUse,
                      fmt::format("PersistentVolumeClaim {} is ReadWriteOncePod, and pod {} has it",
                                  held->first->meta.FullName(), held->second->meta.FullName())};
  }
  return wanted;
}

std::optional<Rejection> CheckAttaching(const Snapshot& snapshot, const WantedVolumes& wanted,
                                        const kube::Pod& pod, const NodeInfo& info) {
  return AttachRoomOf(snapshot, wanted, pod, info).second;
}

int64_t AttachRoom(const Snapshot& snapshot, const WantedVolumes& wanted, const kube::Pod& pod,
                   const NodeInfo& info) {
  return AttachRoomOf(snapshot, wanted, pod, info).first;
}

std::vector<Need> NeedsOf(const Snapshot& snapshot, const kube::Pod& pod) {
  std::vector<Need> needs;
  for (const Need& request : pod.spec->requests.entries()) {
    if (request.second > 0) needs.push_back(request);
  }
  if (pod.spec->persistent_volume_claims.empty()) return needs;
  const size_t requests = needs.size();
  for (const WantedVolumes::Volume& volume : WantedBy(snapshot, pod).volumes) {
    if (!snapshot.IsLimited(volume.driver)) continue;
    std::string name = fmt::format("{}{}", kAttachable, volume.driver);
    const auto known =
        std::find_if(needs.begin() + static_cast<std::ptrdiff_t>(requests), needs.end(),
                     [&](const Need& need) { return need.first == name; });
    if (known != needs.end()) {
      ++known->second;
    } else {
      needs.emplace_back(std::move(name), 1);
    }
    if (volume.shared) {
      needs.emplace_back(fmt::format("{}{}/{}", kShared, volume.driver, volume.handle), 1);
    }
  }
  AddMadeNeeds(snapshot, pod, &needs);
  return needs;
}

std::string_view DriverOf(std::string_view need) {
  return need.starts_with(kAttachable) ? need.substr(kAttachable.size()) : "";
}

int64_t FreeFor(const Snapshot& snapshot, const NodeInfo& info, std::string_view need) {
  if (need.starts_with(kShared)) return kManyPods;
  if (need.starts_with(kMadeVolume)) return FreeMadeVolumes(snapshot, info, need);
  const std::string driver(DriverOf(need));
  if (driver.empty()) return info.Free(need);
  const std::optional<int64_t> most = MostOf(CsiNodeOf(snapshot, info), driver);
  if (!most) return kManyPods;
  const auto left_beside = [&](const std::vector<AttachedVolume>& attached) {
    return std::max<int64_t>(0, *most - LoadOf(attached, driver, {}, /*pod_uid=*/"").attached);
  };
  return info.nominated.empty() ? left_beside(snapshot.AttachedOn(info))
                                : left_beside(WithNominated(snapshot, info));
}

Rejection LacksAttachments(std::string_view driver, int64_t wanted, int64_t left) {
  return {RejectionCode::kVolumeLimit, fmt::format("{}: wants {} more attached, and {} can be",
                                                   driver, wanted, std::max<int64_t>(0, left))};
}

std::vector<AttachedVolume> FindAttached(
    const Snapshot& snapshot, const NodeInfo& info,
    const std::vector<const kube::VolumeAttachment*>& attachments) {
  std::vector<AttachedVolume> attached;
  for (const PlacedPod& placed : info.pods) AddVolumesOf(snapshot, *placed.pod, &attached);
  const size_t of_pods = attached.size();
  for (const kube::VolumeAttachment* attachment : attachments) {
    const auto* volume = snapshot.FindPersistentVolume(attachment->volume_name);
    if (attachment->attacher.empty() || volume == nullptr || volume->in_tree) continue;
    if (volume->handle.empty()) continue;
    const bool used =
        std::any_of(attached.begin(), attached.begin() + static_cast<std::ptrdiff_t>(of_pods),
                    [&](const AttachedVolume& one) {
                      return one.driver == attachment->attacher && one.handle == volume->handle;
                    });
    if (!used) attached.push_back({attachment->attacher, volume->handle, ""});
  }
  std::ranges::sort(attached);
  return attached;
}

std::vector<const kube::PersistentVolumeClaim*> ClaimsOfOnePod(const Snapshot& snapshot,
                                                               const kube::Pod& pod) {
  std::vector<const kube::PersistentVolumeClaim*> claims;
  for (const std::string& name : pod.spec->persistent_volume_claims) {
    const auto* claim = snapshot.FindPersistentVolumeClaim(FullClaimName(pod, name));
    if (claim != nullptr && (claim->wants.access_modes & kube::kReadWriteOncePod) != 0) {
      claims.push_back(claim);
    }
  }
  return claims;
}

std::optional<std::pair<const kube::PersistentVolumeClaim*, const kube::Pod*>> HeldByAnother(
    const Snapshot& snapshot, const kube::Pod& pod) {
  for (const kube::PersistentVolumeClaim* claim : ClaimsOfOnePod(snapshot, pod)) {
    for (const std::string& uid : snapshot.UsersOf(claim->meta.FullName())) {
      if (uid == pod.meta.uid || snapshot.FindNodeOfPod(uid) == nullptr) continue;
      return std::pair(claim, snapshot.FindPod(uid));
    }
  }
  return std::nullopt;
}

}  // namespace muster::cluster
