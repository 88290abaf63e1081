// Every plan there is, by brute force: what the planner is measured against on small inputs.
//
// Shares nothing with the planner but the predicates of cluster/: members are placed one by one,
// each wherever cluster says that it may go beside those placed before, until every set of
// placements that can be reached has been seen.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cluster/snapshot.h"
#include "coscheduling/placement/planner/planner.h"

namespace muster::coscheduling::testing {

// The priorities of planner.h as one value: larger is better.
struct OracleScore {
  bool complete = false;
  bool one_zone = false;
  int placed = 0;
  // Used, by level of the labels below the zone's from the top, then nodes. A node, or a domain,
  // counts at the levels that it skips.
  std::vector<int> domains;
  int virtual_nodes = 0;
  int64_t devices = 0;
  std::string ToString() const;
};
bool OracleBetter(const OracleScore& a, const OracleScore& b);

// From the top down: what the oracle takes for a tree.
extern const std::vector<std::string> kOracleLevels;

class Oracle {
 public:
  // `alike`: by member, equal numbers for members with equal spec and labels.
  Oracle(const cluster::Snapshot& snapshot, const PlanRequest& request, std::vector<int> alike);

  // The best that can be reached.
  const OracleScore& best() const { return best_; }
  cluster::PlaceMap BestPlacements() const;
  OracleScore ScoreOf(const cluster::PlaceMap& placements) const;
  // Members and node names in an order in which each is valid; empty if there is none.
  std::vector<std::pair<const kube::Pod*, std::string>> OrderOf(
      const cluster::PlaceMap& placements) const;
  size_t states() const { return seen_.size(); }

 private:
  // By kind of member, then node: how many.
  using State = std::vector<uint8_t>;

  struct Explorer;
  OracleScore ScoreOf(const State& state) const;
  State StateOf(const cluster::PlaceMap& placements) const;

  const PlanRequest& request_;
  std::vector<int> alike_;
  std::vector<const cluster::NodeInfo*> nodes_;
  std::vector<std::vector<const kube::Pod*>> kinds_;
  std::map<State, std::pair<State, int>> seen_;  // to the state before and the cell added
  OracleScore best_;
  State best_state_;
  const cluster::Snapshot& snapshot_;
};

}  // namespace muster::coscheduling::testing
