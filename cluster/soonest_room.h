// Which nodes free soonest for pods that have no room now.
//
// When a node frees is known from what ends a pod whether it likes it or not. Of all others it
// isn't known; what merely is expected chooses nothing, and only tells when to look again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"
#include "cluster/domains.h"
#include "cluster/snapshot.h"

namespace muster::cluster {

using Amounts = absl::InlinedVector<int64_t, 4>;  // by resource

// Pods with equal needs.
struct WaitingClass {
  int64_t members = 0;
  Amounts asks;
  int64_t most_per_node = 0;
};

// When a pod is gone: by then for certain, InfinitePast for what may be had at once and
// InfiniteFuture if nothing ends it; and by when it is to be expected gone, no later than that.
struct Departure {
  absl::Time at = absl::InfiniteFuture();
  absl::Time expected = absl::InfiniteFuture();
};

// A node, and how it frees.
struct FreeingNode {
  std::string_view name;
  int domain = -1;  // a set lies in one
  Amounts free;
  std::vector<bool> takes;  // by class
  struct Ending {
    Departure leaves;
    Amounts gives;
  };
  std::vector<Ending> endings;
};

struct SoonestSet {
  // InfinitePast: now; InfiniteFuture: not known.
  absl::Time free_by;
  absl::Time expected;
  std::vector<size_t> nodes;  // indices
};

// The nodes on which `required` members have room soonest: the earliest time at which there are
// any, and of these the ones that free first, then those from which least has to go. nullopt if all
// of them together never have room. Classes that are hard to place come first, and the first
// resource is the one that is scarce. What it finds is a packing, so never too few; where classes
// or resources are several it may take a later set than the best packing would.
std::optional<SoonestSet> FindSoonest(const std::vector<FreeingNode>& nodes,
                                      const std::vector<WaitingClass>& classes, int64_t required);

// --- the same, on a snapshot ---

struct RoomWanted {
  std::vector<const kube::Pod*> members;
  int64_t required = 0;
  // All in one domain of this level of the tree, which has followed the snapshot; -1: of none. If
  // `beside` is a slot, in that node's.
  const Domains* tree = nullptr;
  int level = -1;
  int beside = -1;
  std::function<bool(const NodeInfo&)> may_use = nullptr;
  // nullopt: it stays as long as its node.
  std::function<std::optional<Departure>(const kube::Pod&)> leaves = nullptr;
};

struct SoonestRoom {
  std::set<std::string, std::less<>> nodes;
  std::set<std::string, std::less<>> pools;  // of these (PoolOf)
  int64_t idle_gpus = 0;                     // free ones on these
  // As in SoonestSet.
  absl::Time free_by = absl::InfiniteFuture();
  absl::Time expected = absl::InfiniteFuture();
  bool operator==(const SoonestRoom&) const = default;
};

// Among nodes that are usable. Relations between pods are left out of account, but for members that
// are one to a node.
std::optional<SoonestRoom> FindSoonestRoom(const Snapshot& snapshot, const RoomWanted& wanted);

// Of what sort a node is, by its instance type, devices and taints: nodes of one pool serve the
// same pods. Never empty.
std::string PoolOf(const kube::Node& node);

// It belongs to its node, and stays as long as that does.
bool StaysWithNode(const kube::Pod& pod);

}  // namespace muster::cluster
