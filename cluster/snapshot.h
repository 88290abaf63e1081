// One picture of the cluster: nodes (real and coming), pods, and what is free where.
//
// Single owner, single thread, no I/O. Fed object by object from watches; every update costs what
// it touches, never the size of the cluster. Four kinds of pods take room on a node: bound ones,
// assumed ones (a plan that is being carried out), and the DaemonSet pods that will come to a node
// that is new. Everything that a predicate reads is reachable from a NodeInfo and this class.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "kube/objects/workload.h"

namespace muster::cluster {

// A pod as it stands on a node.
struct PlacedPod {
  std::shared_ptr<const kube::Pod> pod;
  bool assumed = false;  // not yet bound according to the API server
};

// A node and what stands on it. A virtual node stands for a NodeClaim that has no usable Node yet;
// its name is the claim's, prefixed "nodeclaim/".
struct NodeInfo {
  std::shared_ptr<const kube::Node> node;  // never null; made up from the claim if is_virtual
  bool is_virtual = false;
  std::shared_ptr<const kube::NodeClaim> claim;  // null for a node that Karpenter didn't make
  std::vector<PlacedPod> pods;
  // Sum over pods plus reserved_for_daemons. Never negative; may exceed allocatable when others
  // overcommit.
  kube::ResourceList requested;
  // Requests of matching DaemonSets whose pod has not come to this node yet.
  kube::ResourceList reserved_for_daemons;

  // allocatable - requested, floored at 0 per resource.
  int64_t Free(std::string_view resource) const;
  kube::ResourceList FreeResources() const;
};

class Snapshot {
 public:
  Snapshot();
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  void Upsert(kube::Node node);
  void Upsert(kube::NodeClaim claim);
  void Upsert(kube::Pod pod);
  void Upsert(kube::DaemonSet daemon_set);
  void Upsert(kube::Namespace name_space);
  void Upsert(kube::PersistentVolumeClaim claim);
  void Upsert(kube::PersistentVolume volume);
  void Upsert(kube::StorageClass storage_class);
  void RemoveNode(std::string_view name);
  void RemoveNodeClaim(std::string_view name);
  void RemovePod(std::string_view uid);
  void RemoveDaemonSet(std::string_view uid);
  void RemoveNamespace(std::string_view name);
  void RemovePersistentVolumeClaim(std::string_view full_name);
  void RemovePersistentVolume(std::string_view name);
  void RemoveStorageClass(std::string_view name);

  // Counts the pod on the node as if it were bound there, until Forget, until the pod is seen
  // bound (wherever), terminal, or gone. NotFound if pod or node is unknown;
  // FailedPrecondition if the pod is bound or assumed elsewhere.
  absl::Status Assume(std::string_view pod_uid, std::string_view node_name);
  void Forget(std::string_view pod_uid);

  const NodeInfo* FindNode(std::string_view name) const;
  const kube::Pod* FindPod(std::string_view uid) const;
  std::shared_ptr<const kube::Pod> SharePod(std::string_view uid) const;
  const kube::NodeClaim* FindNodeClaim(std::string_view name) const;
  const kube::Namespace* FindNamespace(std::string_view name) const;
  const kube::PersistentVolumeClaim* FindPersistentVolumeClaim(std::string_view full_name) const;
  const kube::PersistentVolume* FindPersistentVolume(std::string_view name) const;
  const kube::StorageClass* FindStorageClass(std::string_view name) const;

  // All nodes, real and virtual, in name order. Pointers live until the next non-const call.
  const std::map<std::string, NodeInfo, std::less<>>& nodes() const { return nodes_; }
  const std::map<std::string, std::shared_ptr<const kube::NodeClaim>, std::less<>>& node_claims()
      const;
  // Placed pods that carry required anti-affinity; predicates must let them keep others away.
  const absl::flat_hash_map<std::string, std::string>& anti_affinity_pods() const;  // uid -> node

  // Grows whenever room may have appeared: a node came or changed for the better, a pod left, an
  // assumption was forgotten. While it stands still, what didn't fit still doesn't.
  uint64_t room_epoch() const;
  // Grows on every change whatsoever.
  uint64_t change_epoch() const;

 private:
  struct State;
  std::map<std::string, NodeInfo, std::less<>> nodes_;
  std::unique_ptr<State> state_;
};

}  // namespace muster::cluster
