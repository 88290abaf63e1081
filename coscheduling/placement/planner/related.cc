#include "coscheduling/placement/planner/related.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "coscheduling/placement/planner/balance.h"
#include "coscheduling/placement/planner/order.h"
#include "coscheduling/placement/planner/packing.h"

namespace muster::coscheduling::planner {
namespace {

// Classes that are drawn to each other, and by which topology keys.
struct Block {
  std::vector<int> classes;
  std::vector<int> keys;  // empty: one class that is drawn to nobody
  int members = 0;
};

class BlockFinder {
 public:
  explicit BlockFinder(const Problem& problem) : problem_(problem), root_(problem.classes.size()) {
    std::iota(root_.begin(), root_.end(), 0);
  }

  // Largest first.
  std::vector<Block> Find() {
    for (const Relations::Affinity& affinity : problem_.relations.affinities()) {
      if (!affinity.settled) Join(affinity);
    }
    std::map<int, Block> by_root;
    for (size_t c = 0; c < root_.size(); ++c) {
      Block& block = by_root[Root(c)];
      block.classes.push_back(static_cast<int>(c));
      block.members += problem_.classes[c].size();
    }
    for (const Relations::Affinity& affinity : problem_.relations.affinities()) {
      if (affinity.settled) continue;
      int root = AnyRoot(affinity);
      if (root >= 0) AddKeys(affinity, &by_root[root]);
    }
    std::vector<Block> blocks;
    for (auto& [root, block] : by_root) blocks.push_back(std::move(block));
    std::stable_sort(blocks.begin(), blocks.end(),
                     [](const Block& a, const Block& b) { return a.members > b.members; });
    return blocks;
  }

 private:
  int Root(int c) const { return root_[c] == c ? c : Root(root_[c]); }

  bool Concerns(const Relations::Affinity& affinity, size_t c) const {
    int kind = problem_.classes[c].kind;
    return affinity.owns[kind] || affinity.selects[kind];
  }

  int AnyRoot(const Relations::Affinity& affinity) const {
    for (size_t c = 0; c < root_.size(); ++c) {
      if (Concerns(affinity, c)) return Root(static_cast<int>(c));
    }
    return -1;
  }

  void Join(const Relations::Affinity& affinity) {
    int first = AnyRoot(affinity);
    for (size_t c = 0; c < root_.size(); ++c) {
      if (Concerns(affinity, c)) root_[Root(static_cast<int>(c))] = first;
    }
  }

  static void AddKeys(const Relations::Affinity& affinity, Block* block) {
    for (int key : affinity.keys) {
      if (std::find(block->keys.begin(), block->keys.end(), key) == block->keys.end()) {
        block->keys.push_back(key);
      }
    }
  }

  const Problem& problem_;
  std::vector<int> root_;  // by class
};

class RelatedPlacement {
 public:
  RelatedPlacement(const Problem& problem, const Scope& scope, SearchBudget* budget)
      : problem_(problem),
        scope_(scope),
        nodes_(NodesOf(scope)),
        budget_(*budget),
        blocks_(BlockFinder(problem).Find()),
        room_(problem),
        relations_(problem.relations) {}

  Slots Place() {
    if (!problem_.spread && !problem_.wide_anti_affinity) PackPerDomain();
    std::vector<int> hardest_first = HardestFirst(problem_, nodes_);
    if (!Everyone()) PlaceBlocks(hardest_first);
    if (!Everyone() && problem_.classes.size() > 1) {
      PlaceBlocks({hardest_first.rbegin(), hardest_first.rend()});
    }
    Search();
    return best_;
  }

 private:
  bool Everyone() const { return best_score_.placed == problem_.members(); }

  // Keeps to what PlaceInOrder can do, so that a recheck (FirstBroken) comes to the same verdict.
  void Consider(const Slots& slots) {
    Slots valid = Apply(slots);
    Undo(valid);
    Score score = ScoreOf(problem_, valid);
    if (considered_ && !Better(score, best_score_)) return;
    considered_ = true;
    best_score_ = score;
    best_ = std::move(valid);
  }

  // --- domains of a block ---

  // The nodes of each domain that the block could go into as a whole, first node first. Of single
  // nodes that no member could tell apart, one is enough.
  std::vector<std::vector<int>> DomainsOf(const Block& block) const {
    if (block.keys.empty()) return {nodes_};
    std::map<std::vector<int>, std::vector<int>> by_values;
    for (int node : nodes_) {
      std::vector<int> values;
      for (int key : block.keys) values.push_back(problem_.relations.keys()[key].domain[node]);
      if (std::find(values.begin(), values.end(), -1) == values.end()) {
        by_values[std::move(values)].push_back(node);
      }
    }
    std::vector<std::vector<int>> domains;
    for (auto& [values, nodes] : by_values) domains.push_back(std::move(nodes));
    std::sort(domains.begin(), domains.end(), [&](const auto& a, const auto& b) {
      return problem_.nodes[a[0]].position < problem_.nodes[b[0]].position;
    });
    absl::flat_hash_set<std::vector<int64_t>> seen;
    std::erase_if(domains, [&](const std::vector<int>& nodes) {
      return nodes.size() == 1 && !room_.Used(nodes[0]) &&
             !seen.insert(Fingerprint(problem_, scope_, nodes[0], /*with_relations=*/true)).second;
    });
    return domains;
  }

  Scope Within(const Block& block, const std::vector<int>& nodes) const {
    if (block.keys.empty()) return scope_;
    Scope narrow;
    narrow.candidates.resize(scope_.candidates.size());
    for (size_t c = 0; c < narrow.candidates.size(); ++c) {
      const std::vector<int>& candidates = scope_.candidates[c];
      if (std::find(block.classes.begin(), block.classes.end(), c) == block.classes.end()) {
        narrow.candidates[c] = candidates;
        continue;
      }
      for (int node : nodes) {
        if (std::binary_search(candidates.begin(), candidates.end(), node)) {
          narrow.candidates[c].push_back(node);
        }
      }
    }
    return narrow;
  }

  // --- packing with affinity and clashes only ---

  void PackPerDomain() {
    const Block* drawn = nullptr;
    for (const Block& block : blocks_) {
      if (block.keys.empty()) continue;
      if (drawn != nullptr) return;  // where one block goes decides what the next one finds
      drawn = &block;
    }
    if (drawn == nullptr) return;
    for (const std::vector<int>& nodes : DomainsOf(*drawn)) {
      Consider(Pack(problem_, Within(*drawn, nodes), &budget_));
    }
  }

  // --- block by block ---

  void PlaceBlocks(const std::vector<int>& class_order) {
    Slots all;
    for (const Block& block : blocks_) {
      std::vector<int> classes;
      for (int c : class_order) {
        if (std::find(block.classes.begin(), block.classes.end(), c) != block.classes.end()) {
          classes.push_back(c);
        }
      }
      Slots best = all;
      Score best_score = ScoreOf(problem_, best);
      for (const std::vector<int>& nodes : DomainsOf(block)) {
        Slots slots = PlaceClasses(classes, Within(block, nodes));
        Undo(slots);
        slots.insert(slots.begin(), all.begin(), all.end());
        Score score = ScoreOf(problem_, slots);
        if (!Better(score, best_score)) continue;
        best_score = score;
        best = std::move(slots);
      }
      Redo({best.begin() + all.size(), best.end()});
      all = std::move(best);
    }
    Undo(all);
    Consider(all);
  }

  // Class by class; again while one that had to wait for another finds its place.
  Slots PlaceClasses(const std::vector<int>& classes, const Scope& scope) {
    Slots slots;
    std::vector<int> left;
    for (int c : classes) left.push_back(problem_.classes[c].size());
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t i = 0; i < classes.size(); ++i) {
        if (left[i] == 0) continue;
        Slots placed = Apply(PlaceClass(classes[i], scope.candidates[classes[i]], left[i]));
        for (const Slot& slot : placed) left[i] -= slot.count;
        progress |= !placed.empty();
        slots.insert(slots.end(), placed.begin(), placed.end());
      }
      if (classes.size() == 1) break;
    }
    return slots;
  }

  Slots PlaceClass(int c, const std::vector<int>& candidates, int count) {
    auto slots = PlaceBalanced(problem_, room_, relations_, c, candidates, count);
    return slots ? std::move(*slots) : PlaceOneByOne(c, candidates, count);
  }

  // For domains that cut across each other: each member to the least filled domains.
  Slots PlaceOneByOne(int c, const std::vector<int>& candidates, int count) {
    Slots slots;
    int kind = problem_.classes[c].kind;
    for (; count > 0; --count) {
      using Rank = std::tuple<int64_t, bool, Bin::Cost, int>;
      std::pair<Rank, int> best = {{}, -1};
      for (int node : candidates) {
        if (room_.Fits(c, node, 1) == 0 || !relations_.Allows(kind, node)) continue;
        Bin bin = MakeBin(problem_, c, node, 1);
        Rank rank = {relations_.SpreadLevel(kind, node), !room_.Used(node), bin.cost, bin.position};
        if (best.second < 0 || rank < best.first) best = {rank, node};
      }
      if (best.second < 0) break;
      slots.push_back({best.second, c, 1});
      room_.Take(c, best.second, 1);
      relations_.Place(kind, best.second);
    }
    Undo(slots);
    return slots;
  }

  // Places what is valid of the slots; returns it.
  Slots Apply(const Slots& slots) {
    std::vector<Placement> placements;
    std::vector<size_t> slot_of;
    for (size_t s = 0; s < slots.size(); ++s) {
      placements.insert(placements.end(), slots[s].count,
                        {problem_.classes[slots[s].member_class].kind, slots[s].node});
      slot_of.insert(slot_of.end(), slots[s].count, s);
    }
    Slots valid = slots;
    Ordering ordering = PlaceInOrder(placements, &relations_);
    for (size_t refused : ordering.refused) --valid[slot_of[refused]].count;
    std::erase_if(valid, [](const Slot& slot) { return slot.count == 0; });
    for (const Slot& slot : valid) room_.Take(slot.member_class, slot.node, slot.count);
    return valid;
  }

  // For what is known to be valid.
  void Redo(const Slots& slots) {
    for (const Slot& slot : slots) {
      room_.Take(slot.member_class, slot.node, slot.count);
      for (int i = 0; i < slot.count; ++i) {
        relations_.Place(problem_.classes[slot.member_class].kind, slot.node);
      }
    }
  }

  void Undo(const Slots& slots) {
    for (const Slot& slot : slots) {
      room_.Return(slot.member_class, slot.node, slot.count);
      for (int i = 0; i < slot.count; ++i) {
        relations_.Remove(problem_.classes[slot.member_class].kind, slot.node);
      }
    }
  }

  void Search() {
    if (problem_.members() > kMostMembersSearched) return;
    if (Everyone() && best_score_.nodes <= FewestNodes(problem_, nodes_)) return;
    Scope thinned = ThinOut(problem_, scope_, /*with_relations=*/true);
    int64_t pairs = static_cast<int64_t>(NodesOf(thinned).size()) * problem_.members();
    if (pairs > kMostPairsSearched) return;
    Consider(SearchPlacements(problem_, thinned, best_score_, &budget_));
  }

  const Problem& problem_;
  const Scope& scope_;
  const std::vector<int> nodes_;
  SearchBudget& budget_;
  const std::vector<Block> blocks_;
  Room room_;
  Relations relations_;
  bool considered_ = false;
  Score best_score_;
  Slots best_;
};

}  // namespace

Slots PlaceRelated(const Problem& problem, const Scope& scope, SearchBudget* budget) {
  return RelatedPlacement(problem, scope, budget).Place();
}

}  // namespace muster::coscheduling::planner
