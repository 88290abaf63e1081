// One picture of the cluster: nodes (real and coming), pods, and what is free where.
//
// Single owner, single thread, no I/O. Fed object by object from watches, in any order between
// kinds; every update costs what it touches, never the size of the cluster. What stands in the
// snapshot is a function of the last version of each object and of the assumptions, not of the
// order in which they came. An older resource version of the same object is ignored.
//
// Four things take room on a node: pods that are bound there, assumed ones (a plan that is being
// carried out), those for which another scheduler has nominated it, and the DaemonSet pods that
// will come to it. Everything that a predicate reads is reachable from a NodeInfo and this class.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "cluster/journal.h"
#include "cluster/node_log.h"
#include "cluster/node_stage.h"
#include "cluster/profile.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "kube/objects/workload.h"

namespace muster::cluster {

// A pod as it stands on a node.
struct PlacedPod {
  std::shared_ptr<const kube::Pod> pod;
  bool assumed = false;     // not yet bound according to the API server
  uint64_t label_bits = 0;  // of its labels (label_bits.h)
};

// A node and what stands on it.
//
// A Node and its NodeClaim are one NodeInfo. A Node belongs to the claim whose status.nodeName is
// its name, else to the one with its providerID. Before the Node exists the NodeInfo is named after
// the claim ("nodeclaim/NAME"); from its first appearance on it has the Node's name, and what was
// assumed on it comes along. FindNode and Assume take either name.
//
// Until Karpenter has put karpenter.sh/initialized on the Node, it is virtual: `node` is a forecast
// (node_stage.h) of what it will be, so a plan that includes virtual nodes counts it exactly once,
// and nothing may be bound there. After that `node` is the Node itself, and it counts if its
// readiness says so; an initialized node that is ill isn't coming, and one that lacks devices
// serves who asks for fewer.
struct NodeInfo {
  std::shared_ptr<const kube::Node> node;  // never null; node->meta.name is the name of this info
  // The Node as the API server has it: `node` itself unless virtual; null while only the claim
  // exists.
  std::shared_ptr<const kube::Node> object;
  std::shared_ptr<const kube::NodeClaim> claim;  // null for a node that Karpenter didn't make
  bool is_virtual = false;
  int family = -1;  // of `node` (node_families.h)
  // A small number that no other node has while this one is there.
  int slot = -1;
  // What the label kubernetes.io/hostname of `node` says.
  enum class Hostname : uint8_t { kMissing, kName, kOther } hostname = Hostname::kMissing;
  NodeReadiness readiness;
  // What ResourceSlices say is on the node, by driver: "gpu.nvidia.com: 8". Empty: nothing.
  std::string in_slices;
  // allocatable - requested, floored at 0, by position in node->allocatable.entries(); which
  // resource is at which position depends on the family only.
  absl::InlinedVector<int64_t, 8> free;
  // Why the node can't be used whatever its stage: a malformed quantity of its own, a pod on it
  // whose requests can't be read, or a sum past int64. Empty normally. Such a node is neither
  // usable nor coming.
  std::string error;
  std::vector<PlacedPod> pods;  // in order of UID
  // Pods that stand nowhere and for which their scheduler has nominated this node
  // (status.nominatedNodeName), if they count (Snapshot::CountNominations); in order of UID.
  std::vector<std::shared_ptr<const kube::Pod>> nominated;
  // Sum over pods and nominated ones plus reserved_for_daemons. Never negative; may exceed
  // allocatable when others overcommit. Without entries of 0. What could be summed up, if error
  // says that it wasn't everything.
  kube::ResourceList requested;
  // Requests of matching DaemonSets whose pod doesn't stand on this node. A DaemonSet matches by
  // its pod's nodeSelector, required node affinity and tolerations; taints that leave by themselves
  // don't keep it away.
  kube::ResourceList reserved_for_daemons;

  const std::string& name() const { return node->meta.name; }
  // Pods may be bound here now, as far as the node goes: it may be cordoned, or short of devices
  // that some pods want in full (IsWholeFor).
  bool UsableNow() const { return !is_virtual && readiness.TakesPods(); }
  // Will be usable, as far as one can know.
  bool Coming() const {
    return is_virtual && readiness.stage != NodeStage::kGoing && error.empty();
  }
  // What is free of one resource, or of each; 0 of those that the node doesn't have.
  int64_t Free(std::string_view resource) const;
  kube::ResourceList FreeResources() const;
  const PlacedPod* FindPod(std::string_view uid) const;
};

// A volume that a node has attached, or is to have (attached_volumes.h).
struct AttachedVolume {
  std::string driver;
  std::string handle;
  std::string pod;  // UID of one on the node that uses it; empty: none does
  auto operator<=>(const AttachedVolume&) const = default;
};

// Volumes of one storage class of which one may be chosen for a claim (made_volumes.h). Pointers
// live until the snapshot changes.
struct MadeVolumes {
  // Those that are kept for a claim that isn't bound, by its "namespace/name"; of the others those
  // that only nodes of one hostname reach, by that; and all others.
  absl::flat_hash_map<std::string, std::vector<const kube::PersistentVolume*>> kept;
  absl::flat_hash_map<std::string, std::vector<const kube::PersistentVolume*>> on_host;
  std::vector<const kube::PersistentVolume*> elsewhere;
  // Of those that nobody has, in ascending order; where there are many, some of them: a claim
  // counts as asking for the next of these.
  std::vector<int64_t> sizes;
};
using AllMadeVolumes = std::map<std::string, MadeVolumes, std::less<>>;  // by storage class
// Volume -> UID of the assumed pod that chose it.
using TakenVolumes = absl::flat_hash_map<std::string, std::string>;

class Snapshot {
 public:
  Snapshot();
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Before anything is asked. What of it pods get is for who has them to give (AddedAffinity).
  void SetProfile(Profile profile) { profile_ = std::move(profile); }
  const Profile& profile() const { return profile_; }

  // A heartbeat, a Node or NodeClaim in which nothing is new but the resource version, replaces the
  // version and costs a comparison.
  //
  // A pod counts on its node while it is bound and not terminal, whether or not the Node is known
  // yet.
  void Upsert(kube::Node node);
  void Upsert(kube::NodeClaim claim);
  void Upsert(kube::Pod pod);
  void Upsert(kube::ResourceSlice slice);
  void Upsert(kube::DaemonSet daemon_set);
  void Upsert(kube::Namespace name_space);
  void Upsert(kube::PersistentVolumeClaim claim);
  void Upsert(kube::PersistentVolume volume);
  void Upsert(kube::StorageClass storage_class);
  void Upsert(kube::CsiNode node);
  void Upsert(kube::CsiDriver driver);
  void Upsert(kube::CsiStorageCapacity capacity);
  void Upsert(kube::VolumeAttachment attachment);
  // Unknown names are ignored.
  void RemoveNode(std::string_view name);
  void RemoveNodeClaim(std::string_view name);
  void RemovePod(std::string_view uid);
  void RemoveDaemonSet(std::string_view uid);
  void RemoveNamespace(std::string_view name);
  void RemovePersistentVolumeClaim(std::string_view full_name);
  void RemovePersistentVolume(std::string_view name);
  void RemoveStorageClass(std::string_view name);
  void RemoveCsiNode(std::string_view name);
  void RemoveCsiDriver(std::string_view name);
  void RemoveVolumeAttachment(std::string_view name);
  void Remove(const kube::Node& node) { RemoveNode(node.meta.name); }
  void Remove(const kube::ResourceSlice& slice);
  void Remove(const kube::DaemonSet& set) { RemoveDaemonSet(set.meta.uid); }
  void Remove(const kube::PersistentVolumeClaim& claim) {
    RemovePersistentVolumeClaim(claim.meta.FullName());
  }
  void Remove(const kube::PersistentVolume& volume) { RemovePersistentVolume(volume.meta.name); }
  void Remove(const kube::StorageClass& storage) { RemoveStorageClass(storage.meta.name); }
  void Remove(const kube::CsiNode& node) { RemoveCsiNode(node.meta.name); }
  void Remove(const kube::CsiDriver& driver) { RemoveCsiDriver(driver.meta.name); }
  void Remove(const kube::CsiStorageCapacity& capacity);
  void Remove(const kube::VolumeAttachment& attachment) {
    RemoveVolumeAttachment(attachment.meta.name);
  }

  // Counts the pod on the node as if it were bound there, until Forget, until the pod is seen
  // bound (wherever), terminal, or gone, or until the node is gone. An assumption on a virtual node
  // follows it to the Node that it becomes. The node may be full: that is the planner's business.
  // NotFound if pod or node is unknown; FailedPrecondition if the pod is bound, terminal or assumed
  // elsewhere. OK if it is assumed there already.
  absl::Status Assume(std::string_view pod_uid, std::string_view node_name);
  void Forget(std::string_view pod_uid);
  // To see what there would be without a pod that is bound: until PutBack it doesn't count where it
  // stands. For the time between two observations only. Nothing if it doesn't count, or does
  // already.
  void SetAside(std::string_view pod_uid);
  void PutBack(std::string_view pod_uid);
  // From now on nominations of pods below this priority don't count: kube-scheduler lets a pod
  // yield to those of no lower priority than its own. Returns what was said last; at first all
  // count.
  int64_t CountNominations(int64_t least_priority);

  const NodeInfo* FindNode(std::string_view name) const;
  // Its Node; null while there is only a NodeClaim, or nothing.
  const kube::Node* FindNodeObject(std::string_view name) const;
  const kube::Pod* FindPod(std::string_view uid) const;
  std::shared_ptr<const kube::Pod> SharePod(std::string_view uid) const;
  // The node on which the pod is counted, bound or assumed; nullptr if none.
  const NodeInfo* FindNodeOfPod(std::string_view uid) const;
  const kube::NodeClaim* FindNodeClaim(std::string_view name) const;
  const kube::Namespace* FindNamespace(std::string_view name) const;
  const kube::PersistentVolumeClaim* FindPersistentVolumeClaim(std::string_view full_name) const;
  const kube::PersistentVolume* FindPersistentVolume(std::string_view name) const;
  const kube::StorageClass* FindStorageClass(std::string_view name) const;
  const kube::CsiNode* FindCsiNode(std::string_view node) const;
  const kube::CsiDriver* FindCsiDriver(std::string_view name) const;
  // Whether the driver of this storage class says that it can make a volume of so many bytes for
  // the node.
  bool CanMake(std::string_view storage_class, int64_t bytes, const NodeInfo& info) const;
  // Some node takes only so many of the driver's volumes.
  bool IsLimited(std::string_view driver) const;
  // UIDs of the known pods that name the claim ("namespace/name"), wherever they are.
  const std::vector<std::string>& UsersOf(std::string_view claim) const;
  // By driver and handle. Lives until the next non-const call.
  const std::vector<AttachedVolume>& AttachedOn(const NodeInfo& info) const;
  // Both live until the next non-const call.
  const AllMadeVolumes& made_volumes() const;
  const TakenVolumes& taken_volumes() const;

  // All nodes, real and virtual, in name order. Pointers live until the next non-const call.
  const std::map<std::string, NodeInfo, std::less<>>& nodes() const { return nodes_; }
  // The same in one piece, for those who look at all of them. Lives until the next non-const call.
  const std::vector<const NodeInfo*>& node_list() const;
  // How many of them are virtual.
  size_t virtual_count() const;
  const std::map<std::string, std::shared_ptr<const kube::NodeClaim>, std::less<>>& node_claims()
      const;
  const std::map<std::string, std::shared_ptr<const kube::Namespace>, std::less<>>& namespaces()
      const;
  const std::map<std::string, std::shared_ptr<const kube::PersistentVolume>, std::less<>>&
  persistent_volumes() const;
  // Placed pods that carry required anti-affinity; predicates must let them keep others away.
  const absl::flat_hash_map<std::string, std::string>& anti_affinity_pods() const;  // uid -> node
  size_t pod_count() const;

  // For those who follow the nodes change by change, own assumptions included (node_log.h).
  const NodeLog& log() const;
  // The same of what their objects say alone: kCame, kWent and kClass.
  const NodeLog& class_log() const;
  // By slot; null if no node has it. All slots are below slot_count().
  const NodeInfo* NodeIn(int slot) const;
  int slot_count() const;

  // What changed since the last call, moved out (journal.h). A call that changes nothing that
  // anybody reads, such as a heartbeat, adds nothing.
  Journal TakeJournal();

 private:
  struct State;
  Profile profile_;
  std::map<std::string, NodeInfo, std::less<>> nodes_;
  std::unique_ptr<State> state_;
};

// For as long as it lives nominations count as for a pod of this priority.
class NominationsFor {
 public:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();  // as the priority

  NominationsFor(Snapshot* snapshot, int64_t priority)
      : snapshot_(snapshot), before_(snapshot->CountNominations(priority)) {}
  ~NominationsFor() { snapshot_->CountNominations(before_); }
  NominationsFor(const NominationsFor&) = delete;
  NominationsFor& operator=(const NominationsFor&) = delete;

  void Set(int64_t priority) { snapshot_->CountNominations(priority); }

 private:
  Snapshot* snapshot_;
  const int64_t before_;
};

// Sets pods aside for as long as it lives.
class Aside {
 public:
  explicit Aside(Snapshot* snapshot) : snapshot_(snapshot) {}
  ~Aside() { Set({}); }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  // These from now on, by UID, and no others. The UIDs live until it is called again.
  void Set(std::set<std::string_view> pods) {
    for (std::string_view uid : pods_) {
      if (!pods.contains(uid)) snapshot_->PutBack(uid);
    }
    for (std::string_view uid : pods) {
      if (!pods_.contains(uid)) snapshot_->SetAside(uid);
    }
    pods_ = std::move(pods);
  }

 private:
  Snapshot* snapshot_;
  std::set<std::string_view> pods_;
};

}  // namespace muster::cluster
