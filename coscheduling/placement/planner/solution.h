// Solutions of a Problem: the part of it that one may use, how it is found there, how good it is,
// and what the best one lacks.
#pragma once

#include <cstdint>
#include <vector>

#include "coscheduling/placement/planner/problem.h"

namespace muster::coscheduling::planner {

// `count` members of a class on a node.
struct Slot {
  int node = 0;
  int member_class = 0;
  int count = 0;
};
using Slots = std::vector<Slot>;

// A part of the cluster to solve in: per class the nodes that it may use, ascending.
struct Scope {
  std::vector<std::vector<int>> candidates;
};

Scope WholeScope(const Problem& problem);
// The union over the classes, ascending.
std::vector<int> NodesOf(const Scope& scope);

struct Score {
  bool complete = false;
  bool one_zone = false;
  int placed = 0;
  std::vector<int> domains;  // used, by level of the tree from the top; then nodes
  int virtual_nodes = 0;
  int64_t devices = 0;  // free ones of the nodes used
  int64_t preference = 0;
};

Score ScoreOf(const Problem& problem, const Slots& slots);
// The priorities of planner.h, down to preferences.
bool Better(const Score& a, const Score& b);

int64_t PreferenceOf(const MemberClass& member_class, int node);

// As many members as it finds places for in the scope, each allowed beside those before it in some
// order. README.md says what is guaranteed (packing.cc).
Slots Pack(const Problem& problem, const Scope& scope);

// Why the best partial plan isn't complete, counted over the nodes (shortfall.cc).
PlanShortfall ExplainShortfall(const Problem& problem, const Slots& slots);

// What is left of the nodes while slots are being filled. Costs what is touched.
class Room {
 public:
  explicit Room(const Problem& problem);
  // How many more of the class fit on the node, at most `limit`.
  int Fits(int member_class, int node, int limit) const;
  // Fewer than none: gives them back.
  void Take(int member_class, int node, int count);
  int64_t Free(int node, size_t resource) const;
  bool Used(int node) const { return local_[node] >= 0 && used_[local_[node]] > 0; }

 private:
  const Problem& problem_;
  bool clashes_ = false;       // some classes clash
  std::vector<int> local_;     // by node: its index below, -1 while untouched
  std::vector<int> used_;      // members
  std::vector<int64_t> free_;  // by resource
  std::vector<int> placed_;    // by class, if some clash
};

}  // namespace muster::coscheduling::planner
