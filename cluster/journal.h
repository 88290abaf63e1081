// What changed in a snapshot since its journal was last taken, so that those who keep something
// that follows from the snapshot look at what changed and at nothing else.
//
//   Journal journal = snapshot.TakeJournal();
//   for (const auto& [name, entry] : journal.nodes) {
//     if (entry.observed.HasAny(kMayHelp)) { offer the node `name` to those who wait }
//   }
//
// What Assume and Forget do isn't named: it is no news to him who called them.
//
// Each thing is named once, in order of name, however often it changed; what came and went in
// between isn't named at all. So a journal is never longer than what is in the snapshot now and
// what was there when it was last taken, even if nobody takes it.
//
// What each predicate reads (predicates.h), and so what must be in a journal for its verdict on a
// node to have changed:
//   CheckClass      kClass of that node (kWent, kRoomGrew if it stopped or began to count);
//                   volume_claims, volumes, storage_classes, csi_drivers for pods with claims
//   CheckRoom       kRoomGrew for the better, kRoomShrank for the worse, of that node; for pods
//                   with claims what is named above, and kPods of that node
//   CheckRelations  kPods, kClass, kCame or kWent of any node; namespaces
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>

#include "absl/container/btree_map.h"

namespace muster::cluster {

enum class NodeChange : uint8_t {
  kCame = 1 << 0,  // there was no NodeInfo of this name
  // There is none any more, or it is neither usable nor coming any more. FindNode tells which.
  kWent = 1 << 1,
  // Of some resource more is free than before; or a host port, or the node began to be usable or
  // coming. How much is free is for the reader to see.
  kRoomGrew = 1 << 2,
  // Of some resource less is free, or a host port was taken.
  kRoomShrank = 1 << 3,
  // Labels, taints, cordon, stage, devices: whatever CheckClass reads; and the volumes that it has
  // attached, or can have.
  kClass = 1 << 4,
  // A pod came, went, or changed in what relations read, labels, being deleted, anti-affinity, or
  // in what ends it.
  kPods = 1 << 5,
  // Node or NodeClaim says something else than before. By itself: in what no predicate reads, such
  // as annotations, finalizers, and the words of conditions. A new resourceVersion alone, as a
  // heartbeat brings it, is no change.
  kMarks = 1 << 6,
};

// A set of them.
class NodeChanges {
 public:
  constexpr NodeChanges() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): one change is a set of changes.
  constexpr NodeChanges(NodeChange change) : bits_(static_cast<uint8_t>(change)) {}
  constexpr NodeChanges(std::initializer_list<NodeChange> changes) {
    for (NodeChange change : changes) bits_ |= static_cast<uint8_t>(change);
  }

  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool Has(NodeChange change) const { return HasAny(change); }
  constexpr bool HasAny(NodeChanges of) const { return (bits_ & of.bits_) != 0; }
  constexpr NodeChanges operator|(NodeChanges other) const {
    other.bits_ |= bits_;
    return other;
  }
  constexpr NodeChanges& operator|=(NodeChanges other) { return *this = *this | other; }
  constexpr bool operator==(const NodeChanges&) const = default;
  // "room grew, pods"; "" of none.
  std::string ToString() const;

 private:
  uint8_t bits_ = 0;
};

// What its Node and its NodeClaim say; the rest is about what stands there.
inline constexpr NodeChanges kOfObjects = {NodeChange::kCame, NodeChange::kWent, NodeChange::kClass,
                                           NodeChange::kMarks};
// What may make a node take a pod that it didn't take before, as far as the node itself goes.
inline constexpr NodeChanges kMayHelp = {NodeChange::kCame, NodeChange::kRoomGrew,
                                         NodeChange::kClass, NodeChange::kPods};
// What may make it refuse a pod that it took.
inline constexpr NodeChanges kMayHurt = {NodeChange::kWent, NodeChange::kRoomShrank,
                                         NodeChange::kClass, NodeChange::kPods};

struct NodeEntry {
  NodeChanges observed;
  // The name that the node had as a virtual one ("nodeclaim/NAME"), if it became real under this
  // name; else empty. The old name has an entry with kWent.
  std::string formerly;
  bool is_new = false;  // wasn't there when the journal was last taken

  bool operator==(const NodeEntry&) const = default;
};

enum class ObjectChange { kCame, kChanged, kWent };

struct Journal {
  template <typename T>
  using ByName = absl::btree_map<std::string, T, std::less<>>;

  ByName<NodeEntry> nodes;  // by the name of the NodeInfo
  // "namespace/name". One that is one pod's alone is named, too, when a pod that uses it comes to
  // stand somewhere, or leaves.
  ByName<ObjectChange> volume_claims;
  ByName<ObjectChange> volumes;  // PersistentVolumes
  // Of which something changed, or what can be made of it.
  ByName<ObjectChange> storage_classes;
  ByName<ObjectChange> csi_drivers;  // that pods mustn't miss
  // Namespaces whose labels changed. One without labels is like one that isn't known.
  ByName<ObjectChange> namespaces;

  bool empty() const;
};

}  // namespace muster::cluster
