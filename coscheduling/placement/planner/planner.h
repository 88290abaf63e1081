// One plan for the whole gang: member -> node, all on one snapshot.
//
// Assumes: the snapshot is not changed during the call; members are unbound and not assumed. Equal
// inputs give equal plans, whatever was asked before.
//
// The lowest domain of the tree (cluster/domains.h) that holds the gang is taken: one host, else
// one leaf of the network, and so on up; what wants to be in one zone only for its size isn't
// spread for its surplus. Where all members are alike and no relation concerns them, that is found
// by numbers that are kept for each domain (cluster/subtree.h), exactly. Else members with equal
// needs form a class, each class is filtered against the nodes once, and in each domain that could
// hold all, from the lowest level up, class follows class, those that are hard to place first.
//
// Priorities among complete plans: one zone, most surplus members; then, level by level from the
// top, the fewest domains; fewest nodes, fewest nodes that don't exist yet, least leftover devices,
// most preferences met, rank order (neighbours in rank on neighbouring nodes), the tree's order.
// Among partial plans the number of members comes before the zone.
//
// What is guaranteed: every placement is valid, in some order. README.md says where each other
// guarantee ends.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster/domains.h"
#include "cluster/placing_order.h"
#include "cluster/predicates.h"
#include "cluster/shape_room.h"
#include "cluster/snapshot.h"

namespace muster::coscheduling {

struct PlanRequest {
  // In rank order. Not owned; all live during the call.
  std::vector<const kube::Pod*> members;
  // How many of them must be placed for the plan to be complete; the others are a surplus that is
  // placed if it fits beside them, in their zone. 0: all are surplus, and a plan is always
  // complete.
  size_t required = 0;
  // Nodes that are coming may be used too. A plan on real nodes only is what can be committed.
  bool include_virtual = false;
  // Node names never to use for this gang.
  std::set<std::string, std::less<>> excluded_nodes;
  // Of the tree, labels from the top down; empty: the usual ones.
  std::vector<std::string> levels;
  // All members in one domain of this level of the tree, by its label; empty: none required.
  std::string required_topology_key;
  // Names of nodes where other members of this gang already stand. The plan stays in their domain
  // of required_topology_key, and in the lowest domain around one of them that holds it.
  std::vector<std::string> sibling_nodes;
};

// Why nodes were turned down, over the whole gang: how many nodes per code, with one example.
struct PlanShortfall {
  struct Cause {
    cluster::RejectionCode code;
    int nodes = 0;
    std::string example;  // "ip-10-0-1-7: nvidia.com/gpu: 7 of 8 allocatable"
  };
  // Most nodes first, then by code. A node counts once per code: for each class with a member left
  // over, by the first reason why it can't take one more, beside those that are planned there.
  std::vector<Cause> causes;
  size_t placeable = 0;  // members that the best partial plan places
  // Of the level that is required: its label, and for how many members its domains have room at
  // most, those with the most first.
  struct Domain {
    std::string value;
    int64_t room = 0;
  };
  std::string required;
  std::vector<Domain> domains;
  std::string contradiction;  // then: labels that form no tree, a sentence of the first
};

struct Plan {
  bool complete = false;
  // Member pod UID -> node name. When not complete: the best partial plan, for display, for holding
  // early nodes and for what a provisioner still has to bring; never committed.
  cluster::PlaceMap placements;
  PlanShortfall shortfall;  // when not complete
};

// Makes plans on one snapshot, and keeps for that what follows from its nodes.
//
// Of members that are all alike: O(domains + members log members), and what changed since they were
// last asked for. Otherwise O(levels x classes x nodes + members log nodes) without relations
// between pods. With them each domain that a relation names is looked at for each round of
// placements in which all of them grow alike.
class Planner {
 public:
  Plan MakePlan(const cluster::Snapshot& snapshot, const PlanRequest& request);

  // The tree of these levels as it is now. What has changed since the last time costs its time
  // here, if it is called after each change, and not that of a plan.
  const cluster::Domains& Follow(const cluster::Snapshot& snapshot,
                                 const std::vector<std::string>& levels = {}) {
    return TreeOf(snapshot, levels).domains;
  }

  // Is every placement still good on this snapshot? Then each is assumed there. Otherwise returns
  // the first in rank order that isn't, the member's UID and why, and leaves the snapshot as it
  // was. Members without a placement are left out; a plan that MakePlan has just made is never
  // broken on the same snapshot.
  std::optional<std::pair<std::string, cluster::Rejection>> FirstBroken(
      cluster::Snapshot* snapshot, const PlanRequest& request, const cluster::PlaceMap& placements);

 private:
  struct Tree {
    cluster::Domains domains;
    cluster::ShapeRooms rooms = {};
  };
  Tree& TreeOf(const cluster::Snapshot& snapshot, const std::vector<std::string>& levels);

  std::map<std::vector<std::string>, Tree> trees_;  // by their levels
};

// By a planner that is used once.
Plan MakePlan(const cluster::Snapshot& snapshot, const PlanRequest& request);

}  // namespace muster::coscheduling
