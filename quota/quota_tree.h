// Quota and usage of ClusterQueues and the cohorts above them, per pair of flavor and resource
// (names.h).
//
// A node offers its parent what it has beyond its lending limit, and borrows from it up to its
// borrowing limit. `local` is what a node never lends: use up to it stays in the node, use past it
// counts in the parent as well, and so on up to the root:
//
//   subtree(n) = nominal(n) + sum over children c of subtree(c) - local(c)
//   local(n)   = max(0, subtree(n) - lendingLimit(n)), 0 without a limit
//   usage(p)   = sum over children c of max(0, usage(c) - local(c))
//
// so counting something costs one step per level. The rules are those of Kueue v0.19.2,
// pkg/cache/scheduler/resource_node.go. Nodes are dense integers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quota/amount.h"
#include "quota/names.h"

namespace muster::quota {

inline constexpr int kNoNode = -1;

struct PairAmount {
  int pair = 0;
  int64_t amount = 0;
  bool operator==(const PairAmount&) const = default;
};

// Of this pair; 0 if it isn't among them.
inline int64_t AmountOf(const std::vector<PairAmount>& amounts, int pair) {
  for (const PairAmount& each : amounts) {
    if (each.pair == pair) return each.amount;
  }
  return 0;
}

class QuotaTree {
 public:
  struct Node {
    std::string name;
    int parent = kNoNode;
    bool is_queue = false;
    bool active = true;  // an inactive ClusterQueue lends and counts, but takes no part
    int64_t fair_weight_milli = 1000;

    // Filled by Seal.
    int root = kNoNode;
    int height = 0;                       // levels below it that have active queues or cohorts
    std::vector<int> child_cohorts = {};  // in the order they were added
    std::vector<int> child_queues = {};   // active ones
    std::vector<int> listed = {};         // pairs with quota here or below, by resource
    std::vector<int64_t> lendable =
        {};  // by resource: what the root lists, as available at most here
  };

  int AddNode(Node node);
  void SetParent(int node, int parent) { nodes_[Index(node)].parent = parent; }
  void SetQuota(int node, int pair, int64_t nominal, std::optional<int64_t> borrowing_limit,
                std::optional<int64_t> lending_limit);
  // Call once, when all nodes and quotas are in (parents must form no cycle) and all pairs that
  // usage may be counted in have a name. Usage is 0 then.
  void Seal(const Names& names);

  int size() const { return static_cast<int>(nodes_.size()); }
  int pair_count() const { return pair_count_; }
  const Node& node(int node) const { return nodes_[Index(node)]; }

  int64_t Nominal(int node, int pair) const { return At(node, pair).nominal; }
  const std::optional<int64_t>& BorrowingLimit(int node, int pair) const {
    return At(node, pair).borrowing_limit;
  }
  Amount Subtree(int node, int pair) const { return At(node, pair).subtree; }
  Amount Usage(int node, int pair) const { return At(node, pair).usage; }
  // What could be used beside what is used now: negative where limits were lowered below use.
  Amount Available(int node, int pair) const;
  // The most that could ever be used.
  Amount PotentialAvailable(int node, int pair) const { return At(node, pair).potential; }
  // Of what is never lent, the unused part.
  Amount LocalAvailable(int node, int pair) const;
  // Would it use more than its subtree has, with `more`?
  bool BorrowsWith(int node, int pair, Amount more) const {
    const Cell& cell = At(node, pair);
    return cell.usage + more > cell.subtree;
  }

  void AddUsage(int node, int pair, Amount amount);
  void RemoveUsage(int node, int pair, Amount amount);
  void AddUsage(int node, const std::vector<PairAmount>& amounts);
  void RemoveUsage(int node, const std::vector<PairAmount>& amounts);

 private:
  struct Cell {
    Amount usage = 0;
    Amount subtree = 0;
    Amount local = 0;
    Amount potential = 0;
    int64_t nominal = 0;
    std::optional<int64_t> borrowing_limit;
  };
  struct Quota {
    int node = 0;
    int pair = 0;
    int64_t nominal = 0;
    std::optional<int64_t> borrowing_limit;
    std::optional<int64_t> lending_limit;
  };

  static size_t Index(int id) { return static_cast<size_t>(id); }
  const Cell& At(int node, int pair) const {
    return cells_[Index(node) * Index(pair_count_) + Index(pair)];
  }
  Cell& At(int node, int pair) { return cells_[Index(node) * Index(pair_count_) + Index(pair)]; }
  std::vector<int> ParentsFirst();
  void SumUp(const std::vector<int>& parents_first);

  std::vector<Node> nodes_;
  std::vector<Quota> quotas_;
  std::vector<Cell> cells_;
  int pair_count_ = 0;
};

}  // namespace muster::quota
