// The volume part of CheckClass: claims that must be bound before a pod can be placed, and bound
// volumes that not every node reaches (kube-scheduler's VolumeBinding and VolumeZone, v1.34).
#pragma once

#include <optional>

#include "cluster/predicates.h"
#include "cluster/snapshot.h"

namespace muster::cluster {

// Rejects with kVolume a claim that is missing, being deleted, or unbound without a storage class
// that waits for the first consumer; and a bound volume that the node can't reach. A claim that
// waits for its first consumer passes, except where its annotation
// volume.kubernetes.io/selected-node names another node.
std::optional<Rejection> CheckVolumes(const Snapshot& snapshot, const kube::Pod& pod,
                                      const NodeInfo& info);

// True if CheckVolumes reads the same of both.
bool ReadAlike(const kube::PersistentVolumeClaim& a, const kube::PersistentVolumeClaim& b);
bool ReadAlike(const kube::PersistentVolume& a, const kube::PersistentVolume& b);
bool ReadAlike(const kube::StorageClass& a, const kube::StorageClass& b);

}  // namespace muster::cluster
