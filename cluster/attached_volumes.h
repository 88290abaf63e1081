// Volumes as nodes attach them: which a pod wants attached, which a node has, and for how many more
// it has room (kube-scheduler's NodeVolumeLimits, v1.37); and that a ReadWriteOncePod claim is one
// pod's alone (its VolumeRestrictions).
//
// Counted is each volume once, however many pods of the node use it; and a VolumeAttachment, if no
// pod of the node uses its volume. A claim that isn't bound counts as a volume of its class'
// driver, a volume of a kind from before CSI for the driver to which Kubernetes has moved it. A
// node takes any number of a driver for which its CSINode names no limit, and so does one that has
// no CSINode yet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/predicates.h"
#include "cluster/snapshot.h"

namespace muster::cluster {

// What one pod wants attached wherever it goes. Good while the snapshot doesn't change.
struct WantedVolumes {
  struct Volume {
    std::string driver;
    std::string handle;
    bool shared = false;  // by another pod, wherever that is or will be
  };
  std::vector<Volume> volumes;  // by driver and handle, each once
  // Why no node can take the pod: another one has a claim of it alone.
  std::optional<Rejection> nowhere;
};
WantedVolumes WantedBy(const Snapshot& snapshot, const kube::Pod& pod);

// Why the node can't take the pod. The pod itself doesn't count against itself if it stands there.
std::optional<Rejection> CheckAttaching(const Snapshot& snapshot, const WantedVolumes& wanted,
                                        const kube::Pod& pod, const NodeInfo& info);
// For how many pods like this one the node can attach volumes, if each has others of those that
// aren't shared; kManyPods if no limit is near.
int64_t AttachRoom(const Snapshot& snapshot, const WantedVolumes& wanted, const kube::Pod& pod,
                   const NodeInfo& info);

// What a pod needs of a node in amounts that add up over pods: its requests, and how many volumes
// of each driver of which any node takes but so many ("attachable-volumes-csi-DRIVER"), or of those
// that somebody has made (made_volumes.h). Pods that
// share such a volume also need it by name, so that they aren't taken for pods of which each has
// its own.
using Need = std::pair<std::string, int64_t>;
std::vector<Need> NeedsOf(const Snapshot& snapshot, const kube::Pod& pod);
// How much of that the node has left.
int64_t FreeFor(const Snapshot& snapshot, const NodeInfo& info, std::string_view need);
inline bool IsResource(std::string_view need) {
  return !need.starts_with("attachable-volumes-csi-") && !need.starts_with("shared volume ") &&
         !need.starts_with("made volume ");
}
// The driver of which a need wants volumes attached; empty of any other.
std::string_view DriverOf(std::string_view need);
// Too few of the driver's volumes can be attached.
Rejection LacksAttachments(std::string_view driver, int64_t wanted, int64_t left);

// What stands on the node, by driver and handle: for Snapshot::AttachedOn, which keeps it.
std::vector<AttachedVolume> FindAttached(
    const Snapshot& snapshot, const NodeInfo& info,
    const std::vector<const kube::VolumeAttachment*>& attachments);

// The pod's ReadWriteOncePod claims.
std::vector<const kube::PersistentVolumeClaim*> ClaimsOfOnePod(const Snapshot& snapshot,
                                                               const kube::Pod& pod);
// One of them that another pod has, and who: one that stands somewhere.
std::optional<std::pair<const kube::PersistentVolumeClaim*, const kube::Pod*>> HeldByAnother(
    const Snapshot& snapshot, const kube::Pod& pod);

}  // namespace muster::cluster
