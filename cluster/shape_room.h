// For how many pods of one shape there is room, node by node and domain by domain.
//
// Kept by what changed: a node that changes costs one look at it, and as many additions as domains
// lie above it. So the question where a gang of equal members could go is answered without visiting
// the nodes, by the numbers of all domains.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cluster/domains.h"
#include "cluster/snapshot.h"

namespace muster::cluster {

class ShapeRoom {
 public:
  // Pods of equal ClassKey are of one shape; `example` is one of them. What others' pods forbid
  // (relations.h) isn't looked at.
  explicit ShapeRoom(kube::Pod example);

  // What decides about such a pod's room may change while no node does.
  static bool CanFollow(const kube::PodSpec& spec) {
    return spec.persistent_volume_claims.empty() && spec.affinity.preferred_node_terms.empty();
  }

  // Brings it up to the snapshot, which `domains` have followed.
  void Follow(const Snapshot& snapshot, const Domains& domains);

  // Eight bytes, as there is one for each node and shape. What is above its bound is told as that.
  struct Node {
    static constexpr int64_t kMost = 65'535;
    uint16_t fits = 0;  // beside each other, at most kMost
    // Free ones (free_devices.h), where one fits, at most kMost; 0 where the profile scores nodes.
    uint16_t devices = 0;
    int32_t preference : 31 = 0;  // NodePreferenceScore and the profile's, where one fits
    bool is_virtual : 1 = false;
    bool operator==(const Node&) const = default;
  };
  // Both have followed the same snapshot: no node tells them apart.
  bool IsLike(const ShapeRoom& other) const { return nodes_ == other.nodes_; }
  const Node& On(int slot) const { return nodes_[slot]; }
  // By domain: on nodes that take pods now, and on those that are coming.
  int64_t Now(int domain) const { return sums_[domain].now; }
  int64_t Coming(int domain) const { return sums_[domain].coming; }

 private:
  struct Sums {
    int64_t now = 0;
    int64_t coming = 0;
  };
  void Count(const Domains& domains, int slot, const Node& node, int step);

  const kube::Pod example_;
  std::vector<Node> nodes_;  // by slot
  std::vector<Sums> sums_;   // by domain
  uint64_t position_ = 0;    // in the snapshot's log
  uint64_t shape_ = 0;       // of the domains that the sums are for, if there are any yet
};

// Those of the shapes that were asked for lately.
class ShapeRooms {
 public:
  // Followed up.
  std::shared_ptr<const ShapeRoom> Of(const kube::Pod& pod, const Snapshot& snapshot,
                                      const Domains& domains);

 private:
  struct Entry {
    std::shared_ptr<ShapeRoom> room;
    uint64_t used = 0;
  };
  std::map<std::string, Entry> by_key_;  // ClassKey
  uint64_t uses_ = 0;
};

}  // namespace muster::cluster
