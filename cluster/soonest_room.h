// Which nodes free soonest for pods that have no room now.
//
// When a node frees is known from what ends a pod whether it likes it or not. Of all others it
// isn't known; what merely is expected chooses nothing, and only tells when to look again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"
#include "cluster/domains.h"
#include "cluster/snapshot.h"

namespace muster::cluster {

using Amounts = absl::InlinedVector<int64_t, 6>;  // by resource

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
  absl::InlinedVector<bool, 8> takes;  // by class
  struct Ending {
    Departure leaves;
    Amounts gives;
  };
  absl::InlinedVector<Ending, 1> endings;
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
  std::function<bool(std::string_view)> may_use_pool = nullptr;
  const std::set<std::string, std::less<>>* excluded = nullptr;  // nodes; null: none
  // nullopt: it stays as long as its node. Asked of those whose end is told (FreeingNodes).
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

// How each node frees, kept by what changed: what a node's pods leave behind whose end nobody tells
// is summed up once, so that a search asks about the others alone.
class FreeingNodes {
 public:
  // Whether a pod's end may be told by something else than itself. It is told of those that end
  // by themselves too.
  using IsTold = std::function<bool(const kube::Pod&)>;
  explicit FreeingNodes(IsTold is_told) : is_told_(std::move(is_told)) {}

  // Brings it up to the snapshot.
  void Follow(const Snapshot& snapshot);
  struct Pool {
    int nodes = 0;
    int usable = 0;  // of these
  };
  const std::map<std::string, Pool>& pools() const { return pools_; }  // by PoolOf

  // Among nodes that are usable. Relations between pods are left out of account, but for members
  // that are one to a node.
  std::optional<SoonestRoom> FindSoonest(const Snapshot& snapshot, const RoomWanted& wanted);

 private:
  using AllAmounts = absl::InlinedVector<int64_t, 8>;  // by place in resources_; 0 of those beyond
  struct Told {
    uint32_t place;  // in NodeInfo::pods
    AllAmounts asks;
  };
  struct Node {
    AllAmounts free;    // less than nothing where one is to stand before another one has gone
    AllAmounts untold;  // what those ask who leave, and nobody tells when
    std::vector<Told> told;
    std::pair<const std::string, Pool>* pool = nullptr;  // none: no node has this slot
    bool usable = false;
  };
  void Leave(Node* node);
  Node Read(const NodeInfo& info);
  void Add(const kube::ResourceList& list, int sign, AllAmounts* sums);
  size_t PlaceOf(const std::string& resource);

  const IsTold is_told_;
  std::vector<std::string> resources_;  // all that were ever seen
  std::map<std::string, Pool> pools_;
  std::vector<Node> nodes_;         // by slot
  std::vector<FreeingNode> found_;  // of one search; its memory is used again
  uint64_t position_ = 0;           // in the snapshot's log
};

// Of what sort a node is, by its instance type, devices and taints: nodes of one pool serve the
// same pods. Never empty.
std::string PoolOf(const kube::Node& node);

// It belongs to its node, and stays as long as that does.
bool StaysWithNode(const kube::Pod& pod);

}  // namespace muster::cluster
