// Packing a gang into one scope, class by class. A class goes first to where its relations leave
// room (cells), then within each of these into the fewest domains and onto the fewest nodes
// (cluster/tree_fill.h), those in use first.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cluster/placing_order.h"
#include "cluster/tree_fill.h"
#include "coscheduling/placement/planner/solution.h"

namespace muster::coscheduling::planner {
namespace {

using cluster::Bin;
using cluster::Take;

// Those of which one member takes the largest share of all that is free of some resource first.
std::vector<int> HardestFirst(const Problem& problem, const std::vector<int>& nodes) {
  std::vector<double> free(problem.resources.size());
  for (int node : nodes) {
    for (size_t r = 0; r < free.size(); ++r) {
      free[r] += static_cast<double>(problem.FreeOf(node)[r]);
    }
  }
  std::vector<double> shares;
  for (const MemberClass& member_class : problem.classes) {
    double largest = 0;
    for (size_t r = 0; r < free.size(); ++r) {
      const auto wanted = static_cast<double>(member_class.request[r]);
      largest = std::max(largest, wanted / std::max(free[r], 1.0));
    }
    shares.push_back(largest);
  }
  std::vector<int> order(problem.classes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return shares[a] > shares[b]; });
  return order;
}

std::vector<int> FewestCandidatesFirst(const Scope& scope, std::vector<int> order) {
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return scope.candidates[a].size() < scope.candidates[b].size();
  });
  return order;
}

// Classes that are drawn to each other, and by which topology keys.
struct Block {
  std::vector<int> classes;
  std::vector<int> keys;  // empty: one class that is drawn to nobody
};

// Every class is in one block.
std::vector<Block> FindBlocks(const Problem& problem) {
  std::vector<Block> blocks(problem.classes.size());
  for (size_t c = 0; c < blocks.size(); ++c) blocks[c].classes = {static_cast<int>(c)};
  for (const Relations::Affinity& affinity : problem.relations.affinities()) {
    if (affinity.settled) continue;
    auto concerned = [&](const Block& block) {
      return std::any_of(block.classes.begin(), block.classes.end(), [&](int c) {
        const int kind = problem.classes[c].kind;
        return affinity.owns[kind] || affinity.selects[kind];
      });
    };
    auto joined = std::stable_partition(blocks.begin(), blocks.end(),
                                        [&](const Block& block) { return !concerned(block); });
    if (joined == blocks.end()) continue;
    for (auto other = joined + 1; other != blocks.end(); ++other) {
      joined->classes.insert(joined->classes.end(), other->classes.begin(), other->classes.end());
      joined->keys.insert(joined->keys.end(), other->keys.begin(), other->keys.end());
    }
    joined->keys.insert(joined->keys.end(), affinity.keys.begin(), affinity.keys.end());
    blocks.erase(joined + 1, blocks.end());
  }
  return blocks;
}

// Nodes that no relation of the class tells apart.
struct Cell {
  std::vector<Bin> bins;
  int count = 0;      // members that go here
  size_t bin = 0;     // while members are counted out: where the next one could stand,
  int in_bin = 0;     // beside so many
  bool used = false;  // one of them by the gang

  void CountOne() {
    ++count;
    if (++in_bin < bins[bin].fits) return;
    ++bin;
    in_bin = 0;
  }
  bool Full() const { return bin == bins.size(); }
  int node() const { return bins[bin].node; }
};

class Packing {
 public:
  Packing(const Problem& problem, const Scope& scope)
      : problem_(problem),
        scope_(scope),
        blocks_(FindBlocks(problem)),
        block_of_(problem.classes.size()),
        room_(problem),
        members_in_(problem.tree->domains().size()) {
    if (problem.related) relations_ = problem.relations;
    for (const Problem::Home& home : problem.homes) CountIn(home.domain, 1);
    for (size_t b = 0; b < blocks_.size(); ++b) {
      for (int c : blocks_[b].classes) block_of_[c] = b;
    }
  }

  Slots Pack() {
    if (problem_.classes.size() == 1) {
      Try({0});
      return best_;
    }
    const std::vector<int> hardest_first = HardestFirst(problem_, NodesOf(scope_));
    Try(hardest_first);
    const std::vector<int> fewest_first = FewestCandidatesFirst(scope_, hardest_first);
    if (fewest_first != hardest_first) Try(fewest_first);
    if (best_score_.placed == problem_.members()) return best_;
    Try({hardest_first.rbegin(), hardest_first.rend()});
    // The fewest nodes, wherever they are, may leave more room for others.
    scattered_ = true;
    Try(hardest_first);
    if (fewest_first != hardest_first) Try(fewest_first);
    return best_;
  }

 private:
  // Leaves room_ and relations_ as they were.
  void Try(const std::vector<int>& class_order) {
    Slots slots;
    std::vector<char> done(blocks_.size());
    for (int first : class_order) {
      const size_t b = block_of_[first];
      if (std::exchange(done[b], 1)) continue;
      if (blocks_[b].keys.empty()) {
        PlaceClasses({first}, nullptr, &slots);
        continue;
      }
      std::vector<int> classes;
      for (int c : class_order) {
        if (block_of_[c] == b) classes.push_back(c);
      }
      PlaceBlock(blocks_[b], classes, &slots);
    }
    Count(slots, -1);
    if (problem_.related) slots = InValidOrder(std::move(slots));
    Score score = ScoreOf(problem_, slots);
    if (tried_ && !Better(score, best_score_)) return;
    tried_ = true;
    best_score_ = score;
    best_ = std::move(slots);
  }

  // --- members drawn to each other ---

  // Into the domain that is best for the block. Only if none holds all of it, those who ask for
  // nobody may also stand elsewhere.
  void PlaceBlock(const Block& block, const std::vector<int>& classes, Slots* slots) {
    const Slots before = *slots;
    Slots best = before;
    Score best_score = ScoreOf(problem_, best);
    auto consider = [&](const std::vector<int>* nodes) {
      Slots with = before;
      PlaceClasses(classes, nodes, &with);
      Count({with.begin() + before.size(), with.end()}, -1);
      Score score = ScoreOf(problem_, with);
      if (!Better(score, best_score)) return;
      best_score = score;
      best = std::move(with);
    };
    Score reachable = ScoreOf(problem_, before);
    for (int c : classes) reachable.placed += problem_.classes[c].size();
    const int everyone = reachable.placed;
    for (const std::vector<int>& nodes : DomainsOf(block)) {
      if (Better(AtBest(reachable, before, nodes), best_score)) consider(&nodes);
    }
    if (best_score.placed < everyone) consider(nullptr);
    Count({best.begin() + before.size(), best.end()}, 1);
    *slots = std::move(best);
  }

  // The nodes of each domain that the block could go into as a whole, first node first.
  std::vector<std::vector<int>> DomainsOf(const Block& block) const {
    std::map<std::vector<int>, std::vector<int>> by_values;
    std::vector<int> values;
    for (int node : NodesOf(scope_)) {
      FindValues(block.keys, node, &values);
      if (std::find(values.begin(), values.end(), -1) == values.end()) {
        by_values[values].push_back(node);
      }
    }
    std::vector<std::vector<int>> domains;
    for (auto& [values, nodes] : by_values) domains.push_back(std::move(nodes));
    std::sort(domains.begin(), domains.end(), [&](const auto& a, const auto& b) {
      return problem_.nodes[a[0]].position < problem_.nodes[b[0]].position;
    });
    return domains;
  }

  // The node's domain by each key.
  void FindValues(const std::vector<int>& keys, int node, std::vector<int>* values) const {
    values->clear();
    for (int key : keys) values->push_back(problem_.relations.keys()[key].domain[node]);
  }

  // No plan with the block on these nodes is better: spares the look at most of many hosts.
  Score AtBest(Score reachable, const Slots& before, const std::vector<int>& nodes) const {
    reachable.complete = reachable.placed >= static_cast<int>(problem_.request->required);
    if (before.empty()) {
      reachable.one_zone = true;
      std::ranges::fill(reachable.domains, 1);
      reachable.virtual_nodes = 1;
      reachable.devices = std::numeric_limits<int64_t>::max();
      for (int node : nodes) {
        const NodeSlot& slot = problem_.nodes[node];
        reachable.virtual_nodes = std::min<int>(reachable.virtual_nodes, slot.is_virtual);
        reachable.devices = std::min(reachable.devices, slot.devices);
      }
    }
    for (const MemberClass& member_class : problem_.classes) {
      if (!member_class.preference.empty()) {
        reachable.preference = std::numeric_limits<int64_t>::max();
      }
    }
    return reachable;
  }

  // --- classes ---

  // Class by class, on these nodes or, with none given, on all; again while one that had to wait
  // for another finds its place.
  void PlaceClasses(const std::vector<int>& classes, const std::vector<int>* nodes, Slots* slots) {
    std::vector<int> left;
    for (int c : classes) left.push_back(problem_.classes[c].size());
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t i = 0; i < classes.size(); ++i) {
        if (left[i] == 0) continue;
        const int placed = PlaceClass(classes[i], nodes, left[i], slots);
        left[i] -= placed;
        progress |= placed > 0 && classes.size() > 1;
      }
    }
  }

  // Returns how many of the `count` members found a place.
  int PlaceClass(int c, const std::vector<int>* nodes, int count, Slots* slots) {
    std::vector<Cell> cells = CellsOf(c, nodes, count);
    if (problem_.classes[c].keys.empty()) {
      for (Cell& cell : cells) cell.count = count;  // one at most
    } else {
      CountOut(problem_.classes[c].kind, count, &cells);
    }
    int placed = 0;
    for (Cell& cell : cells) placed += FillCell(c, std::move(cell), slots);
    return placed;
  }

  // The nodes that have room: cells in use first, then those with a cheap first node.
  std::vector<Cell> CellsOf(int c, const std::vector<int>* nodes, int count) const {
    const MemberClass& wanted = problem_.classes[c];
    std::vector<Cell> cells;
    absl::flat_hash_map<std::vector<int>, size_t> index;
    std::vector<int> values;
    auto add = [&](int node) {
      const int fits = room_.Fits(c, node, count);
      if (fits == 0) return;
      size_t cell = 0;
      if (!wanted.keys.empty()) {
        FindValues(wanted.keys, node, &values);
        cell = index.try_emplace(values, cells.size()).first->second;
      }
      if (cell == cells.size()) cells.emplace_back();
      cells[cell].bins.push_back(MakeBin(wanted, node, fits));
      cells[cell].used |= room_.Used(node);
    };
    const std::vector<int>& candidates = scope_.candidates[c];
    if (nodes == nullptr) {
      if (wanted.keys.empty()) cells.emplace_back().bins.reserve(candidates.size());
      for (int node : candidates) add(node);
    } else {
      for (int node : *nodes) {
        if (std::binary_search(candidates.begin(), candidates.end(), node)) add(node);
      }
    }
    std::stable_sort(cells.begin(), cells.end(), [](const Cell& a, const Cell& b) {
      const Bin &first = a.bins[0], &second = b.bins[0];
      return std::tuple(!a.used, first.cost, first.position) <
             std::tuple(!b.used, second.cost, second.position);
    });
    return cells;
  }

  Bin MakeBin(const MemberClass& wanted, int node, int fits) const {
    const NodeSlot& slot = problem_.nodes[node];
    return {.node = node,
            .fits = fits,
            .cost = {.virtual_nodes = slot.is_virtual,
                     .devices = slot.devices,
                     .disfavour = -fits * PreferenceOf(wanted, node)},
            .position = slot.position,
            .domain = scattered_ ? cluster::Domains::kRoot : slot.domain};
  }

  // One by one, each to the least filled cell that may take one. Leaves relations_ as they were.
  void CountOut(int kind, int count, std::vector<Cell>* cells) {
    std::vector<int> placed;
    auto level_of = [&](const Cell& cell) {
      return cell.Full() || !relations_->Allows(kind, cell.node())
                 ? std::numeric_limits<int64_t>::max()
                 : relations_->SpreadLevel(kind, cell.node());
    };
    while (static_cast<int>(placed.size()) < count) {
      int64_t least = std::numeric_limits<int64_t>::max();
      for (const Cell& cell : *cells) least = std::min(least, level_of(cell));
      if (least == std::numeric_limits<int64_t>::max()) break;
      // Those that still are after one before them was filled further.
      for (Cell& cell : *cells) {
        if (static_cast<int>(placed.size()) == count || level_of(cell) != least) continue;
        placed.push_back(cell.node());
        relations_->Place(kind, cell.node());
        cell.CountOne();
      }
    }
    for (int node : placed) relations_->Remove(kind, node);
  }

  int FillCell(int c, Cell cell, Slots* slots) {
    int placed = 0;
    auto take_from = [&](std::vector<Bin> bins) {
      const std::vector<int>& open = members_ == 0 ? none_ : members_in_;
      const auto fill =
          cluster::FillTree(*problem_.tree, std::move(bins), cell.count - placed, open);
      for (const Take& take : fill.takes) {
        slots->push_back({take.node, c, take.count});
        Count({slots->back()}, 1);
        placed += take.count;
      }
    };
    if (cell.used) {
      const auto unused = std::stable_partition(
          cell.bins.begin(), cell.bins.end(), [&](const Bin& bin) { return room_.Used(bin.node); });
      take_from({cell.bins.begin(), unused});
      cell.bins.erase(cell.bins.begin(), unused);
    }
    take_from(std::move(cell.bins));
    return placed;
  }

  // --- bookkeeping ---

  void CountIn(int domain, int members) {
    members_ += members;
    for (; domain >= 0; domain = problem_.tree->domains()[domain].parent) {
      members_in_[domain] += members;
    }
  }

  // Takes the slots into account (1), or no longer (-1).
  void Count(const Slots& slots, int step) {
    for (const Slot& slot : slots) {
      room_.Take(slot.member_class, slot.node, step * slot.count);
      CountIn(problem_.nodes[slot.node].domain, step * slot.count);
      if (!problem_.related) continue;
      const int kind = problem_.classes[slot.member_class].kind;
      for (int i = 0; i < slot.count; ++i) {
        if (step > 0) relations_->Place(kind, slot.node);
        if (step < 0) relations_->Remove(kind, slot.node);
      }
    }
  }

  // Keeps to what PlaceInOrder can do, so that FirstBroken comes to the same verdict. Without those
  // that it refused it may go another way.
  Slots InValidOrder(Slots slots) {
    for (bool refused = true; refused;) {
      std::vector<cluster::Placing> placements;
      std::vector<size_t> slot_of;
      for (size_t s = 0; s < slots.size(); ++s) {
        placements.insert(placements.end(), slots[s].count,
                          {problem_.classes[slots[s].member_class].kind, slots[s].node});
        slot_of.insert(slot_of.end(), slots[s].count, s);
      }
      cluster::PlacingOrder ordering = cluster::PlaceInOrder(placements, &*relations_);
      for (size_t i : ordering.placed) relations_->Remove(placements[i].kind, placements[i].node);
      for (size_t i : ordering.refused) --slots[slot_of[i]].count;
      std::erase_if(slots, [](const Slot& slot) { return slot.count == 0; });
      refused = !ordering.refused.empty();
    }
    return slots;
  }

  const Problem& problem_;
  const Scope& scope_;
  const std::vector<Block> blocks_;
  std::vector<size_t> block_of_;  // by class
  Room room_;
  int members_ = 0;              // that are placed, or stood already:
  std::vector<int> members_in_;  // by domain of the tree
  const std::vector<int> none_;
  std::optional<Relations> relations_;  // if some class has keys
  bool scattered_ = false;              // domains don't count
  bool tried_ = false;
  Score best_score_;
  Slots best_;
};

}  // namespace

Slots Pack(const Problem& problem, const Scope& scope) { return Packing(problem, scope).Pack(); }

}  // namespace muster::coscheduling::planner
