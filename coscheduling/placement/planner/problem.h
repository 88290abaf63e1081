// What the planner's solvers work on: classes of members, nodes, and who could go where, in dense
// arrays. Built once per plan; the solvers never look at pods or nodes again.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/domains.h"
#include "cluster/predicates.h"
#include "cluster/relations.h"
#include "cluster/snapshot.h"
#include "coscheduling/placement/planner/planner.h"

namespace muster::coscheduling::planner {

using cluster::Relations;

// Members that are interchangeable: equal needs, equal relations, equal candidates.
struct MemberClass {
  const kube::Pod* pod = nullptr;  // stands for all
  int kind = 0;                    // of cluster::Relations
  std::vector<int> members;        // indices into PlanRequest::members, in rank order
  std::vector<int64_t> request;    // by Problem::resources
  std::vector<char> clashes;       // by class: never on one node with a member of that class
  int most_per_node = std::numeric_limits<int>::max();  // 1 if it clashes with itself
  // Of cluster::Relations: by these, beside clashes, where other members are decides where one of
  // the class may go.
  std::vector<int> keys;
  std::vector<int> candidates;      // nodes that could take one member, ascending
  std::vector<int64_t> preference;  // by candidate; empty: no preferences
  int size() const { return static_cast<int>(members.size()); }
};

// Nodes are named by their index, which follows the order of their names.
struct NodeSlot {
  const cluster::NodeInfo* info = nullptr;
  bool is_virtual = false;
  int family = -1;      // cluster/node_families.h
  int domain = 0;       // of the tree: where it hangs
  int part = 0;         // by required_topology_key; -1: the label is missing
  int64_t devices = 0;  // free ones
  int position = 0;     // in the tree's order
};

struct Problem {
  const cluster::Snapshot* snapshot = nullptr;
  const PlanRequest* request = nullptr;
  std::vector<std::string> resources;  // that some member requests
  std::vector<NodeSlot> nodes;
  std::vector<int64_t> free;  // by node, then resource; never negative
  std::vector<MemberClass> classes;
  Relations relations;
  bool related = false;  // some class has keys
  const cluster::Domains* tree = nullptr;
  int zone_level = -1;  // of the tree; -1: no node has a zone
  // Where siblings stand.
  struct Home {
    int slot = 0;  // of the node
    int domain = 0;
    int part = 0;
  };
  std::vector<Home> homes;

  const int64_t* FreeOf(int node) const { return free.data() + node * resources.size(); }
  int members() const { return static_cast<int>(request->members.size()); }
};

// Fills in where the nodes are, and their devices, for those that are candidates of some class
// (places.cc).
void FindPlaces(Problem* problem);

// `tree` has followed the snapshot, and outlives the problem.
Problem BuildProblem(const cluster::Snapshot& snapshot, const PlanRequest& request,
                     const cluster::Domains& tree);

// How many members of a class fit into `free` beside each other, at most `limit`.
int FitCount(const MemberClass& member_class, const int64_t* free, int limit);

// Why the node can't take a member of the class, with nothing of the gang placed. For explanations
// only; BuildProblem has filtered by the same rules.
// `class_check` is that of the class's pod.
std::optional<cluster::Rejection> WhyNoCandidate(const Problem& problem, int class_index, int node,
                                                 cluster::ClassCheck* class_check,
                                                 cluster::Detail detail);

// The parts of WhyNoCandidate, for checking one placement.
std::optional<cluster::Rejection> WhyNotAllowed(const PlanRequest& request,
                                                const cluster::NodeInfo& info,
                                                cluster::Detail detail = cluster::Detail::kWritten);
std::optional<cluster::Rejection> WhyNotPorts(const PlanRequest& request, const kube::Pod& pod,
                                              const cluster::NodeInfo& info);
// Free amount of a resource, with the gang's own members taken off the node.
int64_t FreeWithoutMembers(const PlanRequest& request, const cluster::NodeInfo& info,
                           std::string_view resource);
cluster::Rejection ShortOf(const cluster::NodeInfo& info, const std::string& resource,
                           int64_t wanted, int64_t free,
                           cluster::Detail detail = cluster::Detail::kWritten);

}  // namespace muster::coscheduling::planner
