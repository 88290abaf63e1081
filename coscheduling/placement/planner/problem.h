// What a gang is planned by: classes of members, and where how many of each fit. Made once a plan.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/domains.h"
#include "cluster/predicates.h"
#include "cluster/relations.h"
#include "cluster/shape_room.h"
#include "cluster/snapshot.h"
#include "coscheduling/placement/planner/planner.h"

namespace muster::coscheduling::planner {

using cluster::Relations;

// Members that are interchangeable: equal needs, equal relations. Nodes are named by their slots.
struct MemberClass {
  const kube::Pod* pod = nullptr;     // stands for all
  int kind = 0;                       // of Relations
  std::vector<int> members = {};      // indices into PlanRequest::members, in rank order
  std::vector<int64_t> request = {};  // by Problem::resources
  std::shared_ptr<const cluster::ShapeRoom> room = nullptr;
  // What follows is left empty where all members are of one class and no relation concerns them.
  std::vector<char> clashes = {};  // by class: never on one node with a member of that class
  // Of Relations: by these, beside clashes, where other members are decides where one of the class
  // may go.
  std::vector<int> keys = {};
  std::vector<int> fits = {};            // by slot, beside each other; at most all
  std::vector<int64_t> preference = {};  // by slot
  std::vector<int64_t> fits_in = {};     // by domain of the tree
  int size() const { return static_cast<int>(members.size()); }
};

struct Problem {
  const cluster::Snapshot& snapshot;
  const PlanRequest& request;
  const cluster::Domains& tree;
  std::vector<std::string> resources = {};  // that some member requests
  std::vector<MemberClass> classes = {};
  std::optional<Relations> relations = {};  // if any could concern a member
  std::vector<int> index_of = {};           // by slot: the node's number in `relations`
  std::vector<int> homes = {};              // where siblings stand
  int zone_level = -1;                      // of the tree; -1: no node has a zone
  int required_level = -1;

  int members() const { return static_cast<int>(request.members.size()); }
  bool IsOfOneClass() const { return classes.size() == 1 && !relations && homes.empty(); }
};

// `tree` has followed the snapshot; all outlive the problem.
Problem BuildProblem(const cluster::Snapshot& snapshot, const PlanRequest& request,
                     const cluster::Domains& tree, cluster::ShapeRooms* rooms);

// `count` members of a class on a node.
struct Slot {
  int node = 0;
  int member_class = 0;
  int count = 0;
};
using Slots = std::vector<Slot>;

// The priorities of planner.h, down to preferences: less is better.
struct Score {
  bool incomplete = true;
  bool several_zones = false;  // if it is complete
  int left_over = std::numeric_limits<int>::max();
  std::vector<int> domains = {};  // used, by level of the tree from the top; then nodes
  int virtual_nodes = 0;
  int64_t devices = 0;  // free ones of the nodes used
  int64_t disfavour = 0;
  auto operator<=>(const Score&) const = default;
};
Score ScoreOf(const Problem& problem, const Slots& slots);

// As many members as it finds places for on these nodes, which are in the tree's order, each
// allowed beside those before it in some order. README.md says what is guaranteed (packing.cc).
Slots Pack(const Problem& problem, std::span<const int> nodes);

// Why the best partial plan isn't complete, counted over the nodes (shortfall.cc).
PlanShortfall ExplainShortfall(const Problem& problem, const Slots& slots);

// What the request itself says about a node; `required_level` is that of the request's key.
std::optional<cluster::Rejection> WhyNotAllowed(const PlanRequest& request,
                                                const cluster::NodeInfo& info,
                                                cluster::Detail detail = cluster::Detail::kWritten);

}  // namespace muster::coscheduling::planner
