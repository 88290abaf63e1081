// Filling nodes with equal members: the fewest nodes, then the ones one would miss least.
//
// Assumes: a node's members are limited by their number only. Greedy by size finds how few nodes
// suffice; as the sum of the largest then exceeds what is needed by less than one node's worth (the
// slack), only exchanges that cost no more than the slack can make the choice cheaper. Those are
// searched exactly, by dynamic programming over (members of the largest nodes given up, slack
// spent), up to a slack of kMostSlack; beyond that the largest nodes are taken as they are.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace muster::coscheduling::planner {

// A node, with room for `fits` members, at least one.
struct Bin {
  int node = 0;
  int fits = 0;
  // What it costs to use the node: compared in this order, summed over the nodes used.
  struct Cost {
    int64_t virtual_nodes = 0;
    int64_t devices = 0;
    int64_t disfavour = 0;  // preferences not met
    auto operator<=>(const Cost&) const = default;
    Cost operator+(const Cost& other) const {
      return {virtual_nodes + other.virtual_nodes, devices + other.devices,
              disfavour + other.disfavour};
    }
  } cost;
  int position = 0;  // ties go to the first
};

struct Take {
  int node = 0;
  int count = 0;
};

// Above the 16 accelerators of the largest nodes there are.
inline constexpr int kMostSlack = 16;

// Places as many of `members` as there is room for. Nodes are filled one after the other; the last
// one gets what is left.
std::vector<Take> FillFewestNodes(std::vector<Bin> bins, int members);

}  // namespace muster::coscheduling::planner
