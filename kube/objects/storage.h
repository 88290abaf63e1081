// Volumes: who claims them, which there are, who makes them, and how many of them nodes can attach.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/objects/meta.h"
#include "kube/objects/pod.h"

namespace muster::kube {

// One bit each: who may mount a volume, or is to mount it.
enum AccessMode : uint8_t {
  kReadWriteOnce = 1,
  kReadOnlyMany = 2,
  kReadWriteMany = 4,
  kReadWriteOncePod = 8,
};

// What a claim wants of a volume, and what a volume is, where one of those that somebody has made
// is to be chosen for it.
struct VolumeTraits {
  int64_t bytes = 0;             // at least; and what there is
  uint8_t access_modes = 0;      // of AccessMode
  bool block = false;            // volumeMode: a device, else a file system
  std::string attributes_class;  // volumeAttributesClassName
  bool operator==(const VolumeTraits&) const = default;
};

struct PersistentVolumeClaim {
  ObjectMeta meta;
  std::string storage_class;
  std::string volume_name;  // empty: unbound
  bool bound = false;       // status.phase
  VolumeTraits wants;
  std::optional<LabelSelector> selector;  // of the volume's labels; absent: any
  std::string error;                      // what makes it unusable, by field; empty normally
};

struct PersistentVolume {
  ObjectMeta meta;
  std::string storage_class;
  std::string claim_ref;   // "namespace/name" or empty
  std::string claim_uid;   // of that claim; empty: of whichever has the name
  bool available = false;  // status.phase: nobody has it
  VolumeTraits has;
  // Who attaches it to nodes, and what it is to him. Of kinds from before CSI the driver to which
  // Kubernetes has moved them. Empty where nothing is attached, or nothing is known of it.
  std::string driver;
  std::string handle;
  bool in_tree = false;  // of a kind from before CSI
  // Absent: reachable from every node.
  std::optional<std::vector<NodeSelectorTerm>> required_node_terms;
  std::string error;  // what makes required_node_terms unusable, by field; empty normally
};

struct StorageClass {
  ObjectMeta meta;
  std::string provisioner;
  bool wait_for_first_consumer = false;
  // Where it makes volumes: one term's requirements all hold of the node. Empty: everywhere.
  std::vector<std::vector<Requirement>> allowed_topologies;
};

// Of these nothing of `meta` is kept but what identifies them: clusters have one for each node, and
// for each volume that is attached.

// storage.k8s.io/v1 CSINode: the drivers on the Node of its name.
struct CsiNode {
  ObjectMeta meta;
  // How many of a driver's volumes the node can have attached; nullopt: any number.
  std::map<std::string, std::optional<int64_t>, std::less<>> drivers;
};

// storage.k8s.io/v1 CSIDriver.
struct CsiDriver {
  ObjectMeta meta;
  // A pod with volumes of it doesn't go on a node without it (spec.preventPodSchedulingIfMissing,
  // 1.35).
  bool must_be_on_node = false;
  // What it can still make is told by CSIStorageCapacities (spec.storageCapacity).
  bool tells_capacity = false;
};

// storage.k8s.io/v1 CSIStorageCapacity: how large a volume of a storage class can be for some
// nodes.
struct CsiStorageCapacity {
  ObjectMeta meta;
  std::string storage_class;
  std::optional<LabelSelector> nodes;  // absent: of none
  std::optional<int64_t> most;         // bytes; absent: not known, which isn't enough
};

// storage.k8s.io/v1 VolumeAttachment: a volume that is attached to a node, or is to be.
struct VolumeAttachment {
  ObjectMeta meta;
  std::string attacher;  // its driver
  std::string node_name;
  std::string volume_name;  // the PersistentVolume; empty: one that is written in a pod
};

// The driver that makes and attaches the volumes of a StorageClass with this provisioner; "" of
// kinds from before CSI whose volumes count for no driver.
std::string_view CsiDriverOf(std::string_view provisioner);

}  // namespace muster::kube
