// The snapshot's insides: what it remembers besides the nodes, and how a change spreads.
//   snapshot.cc          intake: which objects a change touches
//   snapshot_state.cc    pods on nodes, nodes and their claims, what is reserved
//   snapshot_volumes.cc  who uses which volumes, and what nodes attach
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "cluster/claim_pairing.h"
#include "cluster/daemon_reservation.h"
#include "cluster/journal_recorder.h"
#include "cluster/node_families.h"
#include "cluster/snapshot.h"
#include "cluster/spec_pool.h"
#include "cluster/storage_capacity.h"

namespace muster::cluster {

struct Snapshot::State {
  using Nodes = std::map<std::string, NodeInfo, std::less<>>;
  template <typename T>
  using Store = std::map<std::string, std::shared_ptr<const T>, std::less<>>;

  struct PodEntry {
    std::shared_ptr<const kube::Pod> pod;
    std::string assumed_on;  // key in nodes; empty: not assumed
    bool aside = false;      // bound, and doesn't count

    // Where the pod counts: a key in nodes, or the name of a Node that isn't known yet; "" nowhere.
    const std::string& Place() const;
    // The Node that is nominated for it, known or not; "": none.
    const std::string& Nomination() const;
  };

  using Pods = absl::flat_hash_map<std::string, PodEntry>;  // by UID
  // What objects say is journalled; what Assume and Forget did is known to him who called them.
  enum class Source { kObserved, kOwn };

  explicit State(Nodes& all_nodes) : nodes(all_nodes) {}

  // By the name of the NodeInfo.
  NodeInfo* Find(std::string_view name) {
    const auto it = by_name.find(absl::string_view(name.data(), name.size()));
    return it == by_name.end() ? nullptr : it->second;
  }

  Pods::iterator FindPod(std::string_view uid) {
    return pods.find(absl::string_view(uid.data(), uid.size()));
  }

  // By its own name or by that of its claim's virtual node.
  NodeInfo* FindNode(std::string_view name);

  void Attach(const std::string& node, const std::shared_ptr<const kube::Pod>& pod, bool assumed,
              Source source);
  void Detach(const std::string& node, const kube::Pod& pod, Source source);
  // The pod stays where it is, in a new version.
  void Replace(const std::string& node, const std::shared_ptr<const kube::Pod>& pod, bool assumed);

  // `version` is the known Node with nothing new but its resource version.
  void KeepVersion(NodeInfo& info, kube::Node version);
  // The same of a claim.
  void KeepVersion(std::shared_ptr<const kube::NodeClaim> version);
  void RefreshNode(const std::string& name, std::shared_ptr<const kube::Node> object);
  // Makes, updates or removes the claim's virtual node.
  void RefreshClaim(const std::string& name);
  // The nodes anew, then the virtual nodes of the claims and of those that the nodes had or got.
  void RefreshPairs(const std::set<std::string>& node_names, std::set<std::string> claim_names);
  void RemoveNode(Nodes::iterator node);
  // Null: it is gone.
  void SetSlice(const std::string& name, std::shared_ptr<const kube::ResourceSlice> slice);
  // The pod is nominated for the Node, or no longer; "" is none.
  void Nominate(const std::string& node, const std::string& pod_uid, bool is_nominated);
  void RefreshNominated(const std::string& node, Source source);
  // Adds the pod to those that use its claims, or takes it off.
  void CountUser(const kube::Pod& pod, bool uses);
  // A claim, a volume or a storage class isn't what it was.
  void VolumesChanged();
  void ForgetTaken();
  // What the node attaches, or may, isn't what it was.
  void AttachmentsChanged(const std::string& node);
  // Null: it is gone.
  void SetCsiNode(const std::string& name, std::shared_ptr<const kube::CsiNode> node);
  // Null: it is gone.
  void SetCapacity(const std::string& name,
                   std::shared_ptr<const kube::CsiStorageCapacity> capacity);
  void SetAttachment(const Snapshot& snapshot, const std::string& name,
                     std::shared_ptr<const kube::VolumeAttachment> attachment);
  const std::vector<AttachedVolume>& AttachedOn(const Snapshot& snapshot, const NodeInfo& info);
  // Either may be null.
  void RefreshDaemonSet(const kube::DaemonSet* before, const kube::DaemonSet* after);

  Nodes& nodes;
  // The same by hash, as names are looked up with every pod: keys are those of `nodes`.
  absl::flat_hash_map<absl::string_view, NodeInfo*> by_name;
  std::vector<const NodeInfo*> list;  // of `nodes`; empty: to be made anew
  std::vector<NodeInfo*> in_slot;     // null where the slot is unused
  std::vector<int> unused_slots;
  NodeLog log;
  NodeLog class_log;
  size_t virtual_count = 0;
  Pods pods;
  SpecPool specs;
  // Bound to nodes that aren't known: node name -> UIDs.
  absl::flat_hash_map<std::string, std::set<std::string>> waiting;
  absl::flat_hash_map<std::string, std::string> anti_affinity_pods;
  std::map<std::string, std::set<std::string>, std::less<>> nominations;  // Node name -> UIDs
  int64_t least_nominated = std::numeric_limits<int64_t>::min();          // of those that count
  ClaimPairing pairing;
  NodeFamilies families;
  Store<kube::NodeClaim> claims;
  DaemonSets daemon_sets;
  Store<kube::ResourceSlice> slices;
  std::map<std::string, std::set<std::string>> slices_on;  // by node: their names
  Store<kube::Namespace> namespaces;
  Store<kube::PersistentVolumeClaim> volume_claims;
  Store<kube::PersistentVolume> volumes;
  Store<kube::StorageClass> storage_classes;
  Store<kube::CsiNode> csi_nodes;
  Store<kube::CsiDriver> csi_drivers;
  Store<kube::CsiStorageCapacity> capacities;                  // by "namespace/name"
  std::optional<StorageCapacities> capacity_lookup;            // nullopt: to be made anew
  std::map<std::string, size_t, std::less<>> limited_drivers;  // on so many nodes
  Store<kube::VolumeAttachment> attachments;
  std::map<std::string, std::set<std::string>, std::less<>> attachments_on;  // by node: their names
  absl::flat_hash_map<std::string, std::vector<std::string>> claim_users;    // UIDs of pods
  // By slot, where somebody asked since it changed.
  std::vector<std::unique_ptr<const std::vector<AttachedVolume>>> attached;
  std::optional<AllMadeVolumes> made;  // nullopt: to be found anew
  std::vector<std::string> choosers;   // UIDs of assumed pods with claims, as they were assumed
  TakenVolumes taken;                  // by
  size_t counted_choosers = 0;         // of them
  JournalRecorder journal;

 private:
  NodeChanges Settle(NodeInfo& info, bool daemons_changed,
                     const kube::ResourceList& allocatable_before);
  // For one pod that has just come to stand there, or gone: costs what it asks for.
  void SettlePod(NodeInfo& info, const kube::Pod& pod, bool stands, NodeChanges changes,
                 Source source);
  // What it changes of the node's room; nothing, and nothing is counted, if all must be summed up
  // anew.
  std::optional<NodeChanges> CountPod(NodeInfo& info, const kube::Pod& pod, bool stands);
  // For any change of what stands on the node, which journals itself together with `changes`.
  void SettlePods(NodeInfo& info, bool daemons_changed, NodeChanges changes, Source source);
  // The pod came to stand on the node, or left it.
  void UsersChanged(const NodeInfo& info, const kube::Pod& pod, Source source);
  void SetChooser(const kube::Pod& pod, bool assumed);
  void ForgetAttached(const NodeInfo& info);
  void Judge(NodeInfo& info);
  std::string TextOfSlices(const std::string& node) const;
  // Into journal and log.
  void Record(const NodeInfo& info, NodeChanges changes, Source source);
  void Adopt(NodeInfo& info, std::shared_ptr<const kube::Node> object,
             std::shared_ptr<const kube::NodeClaim> claim, bool is_new);
  void MoveAssumed(NodeInfo& from, const std::string& to);
  // The second is true if there was none.
  std::pair<NodeInfo*, bool> FindOrMake(const std::string& name);
};

}  // namespace muster::cluster
