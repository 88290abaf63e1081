// The volume part of CheckClass: claims that must be bound before a pod can be placed, and bound
// volumes that not every node reaches (kube-scheduler's VolumeBinding and VolumeZone, v1.34).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/predicates.h"
#include "cluster/snapshot.h"

namespace muster::cluster {

// Rejects with kVolume a claim that is missing, being deleted, lost, another pod's (of a generic
// ephemeral volume), or unbound without a storage class
// that waits for the first consumer; and a bound volume that the node can't reach. A claim that
// waits for its first consumer passes, except where its annotation
// volume.kubernetes.io/selected-node names another node, or its class makes no volumes for this one
// (allowedTopologies) and nobody has made one that it reaches and that will do (made_volumes.h).
std::optional<Rejection> CheckVolumes(const Snapshot& snapshot, const kube::Pod& pod,
                                      const NodeInfo& info);

// "namespace/name" of a claim that the pod names.
std::string FullClaimName(const kube::Pod& pod, const std::string& claim);

// Claims of the pod that aren't bound yet: their volumes are made for a node that somebody selects
// for them. Valid until the snapshot changes.
std::vector<const kube::PersistentVolumeClaim*> UnboundClaims(const Snapshot& snapshot,
                                                              const kube::Pod& pod);
bool IsUnbound(const kube::PersistentVolumeClaim& claim);
// Its class makes volumes for this node, if it makes any.
bool IsMadeFor(const Snapshot& snapshot, const kube::PersistentVolumeClaim& claim,
               const NodeInfo& info);
// The node that is selected for the claim's volume, or nullptr.
const std::string* SelectedNode(const kube::PersistentVolumeClaim& claim);
// Its class makes no volumes: somebody has made them, and the scheduler is to choose one.
bool IsOfMadeVolumes(const Snapshot& snapshot, const kube::PersistentVolumeClaim& claim);

// True if CheckVolumes and attached_volumes.h read the same of both.
bool ReadAlike(const kube::PersistentVolumeClaim& a, const kube::PersistentVolumeClaim& b);
bool ReadAlike(const kube::PersistentVolume& a, const kube::PersistentVolume& b);
bool ReadAlike(const kube::StorageClass& a, const kube::StorageClass& b);

}  // namespace muster::cluster
