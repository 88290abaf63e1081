// Filling nodes of a tree of domains with equal pods: the fewest domains at each level, from the
// top down; then the fewest nodes, then those that one would miss least.
//
// Exact up to a bound of work: a table per domain says at what least cost it holds each number of
// pods. Beyond that, level by level, the fewest domains of those in the domains chosen above, the
// largest first and the last one no larger than it must be. That is known to be exact at each level
// at which it takes no more domains than would suffice of all there are; it always is at the first
// level, and without levels.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "cluster/domains.h"

namespace muster::cluster {

// A node, with room for `fits` pods, at least one.
struct Bin {
  int node = 0;  // the caller's number
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
  int position = 0;             // in the tree's order; ties go to the first
  int domain = Domains::kRoot;  // where it hangs
};

struct Take {
  int node = 0;
  int count = 0;
};

struct TreeFill {
  // In the tree's order. Nodes are filled one after the other; the last one gets what is left.
  std::vector<Take> takes;
  int placed = 0;
  // How many domains are used, by level from the top; a node, or domain, that hangs higher up
  // counts at the levels that it skips. The last are the nodes.
  std::vector<int> domains;
  Bin::Cost cost;
  // No choice takes fewer domains of any level, or fewer nodes, given those above.
  bool exact = true;

  // Of two that place as many.
  bool BetterThan(const TreeFill& other) const {
    if (domains != other.domains) return domains < other.domains;
    return cost < other.cost;
  }
};

// Places as many of `pods` as there is room for. Domains with any pods in `open`, by number, are in
// use already and cost nothing; it may be empty.
TreeFill FillTree(const Domains& tree, std::vector<Bin> bins, int pods,
                  const std::vector<int>& open = {});

// TreeFill::domains of nodes that hang in these domains, node by node in the tree's order.
std::vector<int> CountDomains(const Domains& tree, const std::vector<int>& domains);

// Above the 16 accelerators of the largest nodes there are.
inline constexpr int kMostSlack = 16;

// The chosen bins, without levels: the fewest, and of those the cheapest as long as they hold at
// most kMostSlack pods too many.
std::vector<Bin> FewestBins(std::vector<Bin> bins, int pods);

}  // namespace muster::cluster
