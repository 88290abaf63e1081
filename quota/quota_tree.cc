#include "quota/quota_tree.h"

#include <algorithm>
#include <utility>

namespace muster::quota {

int QuotaTree::AddNode(Node node) {
  nodes_.push_back(std::move(node));
  return size() - 1;
}

void QuotaTree::SetQuota(int node, int pair, int64_t nominal,
                         std::optional<int64_t> borrowing_limit,
                         std::optional<int64_t> lending_limit) {
  quotas_.push_back({node, pair, nominal, borrowing_limit, lending_limit});
}

// Links children, and returns all nodes with each parent before its children.
std::vector<int> QuotaTree::ParentsFirst() {
  std::vector<int> order;
  for (int id = 0; id < size(); ++id) {
    const Node& node = nodes_[Index(id)];
    if (node.parent == kNoNode) {
      order.push_back(id);
      continue;
    }
    Node& parent = nodes_[Index(node.parent)];
    if (!node.is_queue) parent.child_cohorts.push_back(id);
    if (node.is_queue && node.active) parent.child_queues.push_back(id);
  }
  std::vector<std::vector<int>> children(nodes_.size());
  for (int id = 0; id < size(); ++id) {
    const int parent = nodes_[Index(id)].parent;
    if (parent != kNoNode) children[Index(parent)].push_back(id);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    Node& node = nodes_[Index(order[i])];
    node.root = node.parent == kNoNode ? order[i] : nodes_[Index(node.parent)].root;
    const std::vector<int>& below = children[Index(order[i])];
    order.insert(order.end(), below.begin(), below.end());
  }
  return order;
}

// Heights and subtree sums, from the leaves up.
void QuotaTree::SumUp(const std::vector<int>& parents_first) {
  std::vector<std::vector<bool>> listed(nodes_.size(), std::vector<bool>(Index(pair_count_)));
  std::vector<std::optional<int64_t>> lending(cells_.size());
  for (const Quota& quota : quotas_) {
    Cell& cell = At(quota.node, quota.pair);
    cell.nominal = quota.nominal;
    cell.subtree = quota.nominal;
    cell.borrowing_limit = quota.borrowing_limit;
    lending[Index(quota.node) * Index(pair_count_) + Index(quota.pair)] = quota.lending_limit;
    listed[Index(quota.node)][Index(quota.pair)] = true;
  }
  for (auto it = parents_first.rbegin(); it != parents_first.rend(); ++it) {
    Node& node = nodes_[Index(*it)];
    node.height = node.child_cohorts.empty() && node.child_queues.empty() ? 0 : 1;
    for (int child : node.child_cohorts) {
      node.height = std::max(node.height, nodes_[Index(child)].height + 1);
    }
    for (int pair = 0; pair < pair_count_; ++pair) {
      if (!listed[Index(*it)][Index(pair)]) continue;
      node.listed.push_back(pair);
      Cell& cell = At(*it, pair);
      const auto& limit = lending[Index(*it) * Index(pair_count_) + Index(pair)];
      if (limit) cell.local = std::max(Amount(0), cell.subtree - Amount(*limit));
      if (node.parent == kNoNode) continue;
      At(node.parent, pair).subtree += cell.subtree - cell.local;
      listed[Index(node.parent)][Index(pair)] = true;
    }
  }
}

void QuotaTree::Seal(const Names& names) {
  pair_count_ = names.pair_count();
  cells_.assign(nodes_.size() * Index(pair_count_), Cell());
  const std::vector<int> order = ParentsFirst();
  SumUp(order);
  for (int id : order) {
    Node& node = nodes_[Index(id)];
    std::stable_sort(node.listed.begin(), node.listed.end(),
                     [&](int a, int b) { return names.Of(a).resource < names.Of(b).resource; });
    for (int pair = 0; pair < pair_count_; ++pair) {
      Cell& cell = At(id, pair);
      cell.potential = cell.subtree;
      if (node.parent == kNoNode) continue;
      cell.potential = cell.local + At(node.parent, pair).potential;
      if (cell.borrowing_limit) {
        cell.potential = std::min(cell.potential, cell.subtree + Amount(*cell.borrowing_limit));
      }
    }
    std::vector<Amount> lendable(Index(names.resource_count()));
    for (int pair : nodes_[Index(node.root)].listed) {
      lendable[Index(names.Of(pair).resource)] += At(id, pair).potential;
    }
    for (Amount amount : lendable) node.lendable.push_back(Saturate(amount));
  }
}

Amount QuotaTree::LocalAvailable(int node, int pair) const {
  const Cell& cell = At(node, pair);
  return std::max(Amount(0), cell.local - cell.usage);
}

Amount QuotaTree::Available(int node, int pair) const {
  const Cell& cell = At(node, pair);
  const int parent = nodes_[Index(node)].parent;
  if (parent == kNoNode) return cell.subtree - cell.usage;
  Amount from_parent = Available(parent, pair);
  if (cell.borrowing_limit) {
    const Amount lent = cell.subtree - cell.local;
    const Amount used = std::max(Amount(0), cell.usage - cell.local);
    from_parent = std::min(from_parent, lent - used + Amount(*cell.borrowing_limit));
  }
  return std::max(Amount(0), cell.local - cell.usage) + from_parent;
}

void QuotaTree::AddUsage(int node, int pair, Amount amount) {
  while (node != kNoNode && amount > 0) {
    Cell& cell = At(node, pair);
    const Amount kept = std::max(Amount(0), cell.local - cell.usage);
    cell.usage += amount;
    amount -= kept;
    node = nodes_[Index(node)].parent;
  }
}

void QuotaTree::RemoveUsage(int node, int pair, Amount amount) {
  while (node != kNoNode && amount > 0) {
    Cell& cell = At(node, pair);
    const Amount passed_on = cell.usage - cell.local;
    cell.usage -= amount;
    amount = std::min(amount, passed_on);
    node = nodes_[Index(node)].parent;
  }
}

void QuotaTree::AddUsage(int node, const std::vector<PairAmount>& amounts) {
  for (const PairAmount& each : amounts) AddUsage(node, each.pair, each.amount);
}

void QuotaTree::RemoveUsage(int node, const std::vector<PairAmount>& amounts) {
  for (const PairAmount& each : amounts) RemoveUsage(node, each.pair, each.amount);
}

}  // namespace muster::quota
