// Packing a gang into a part of the cluster, class by class. A class goes first to where its
// relations leave room (cells), then within each of these into the fewest domains and onto the
// fewest nodes (cluster/tree_fill.h), those in use first.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cluster/attached_volumes.h"
#include "cluster/placing_order.h"
#include "cluster/tree_fill.h"
#include "coscheduling/placement/planner/problem.h"

namespace muster::coscheduling::planner {
namespace {

using cluster::Bin;

// Nodes that no relation of the class tells apart.
struct Cell {
  std::vector<Bin> bins;
  int64_t room = 0;
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
  Packing(const Problem& problem, std::span<const int> nodes)
      : problem_(problem),
        nodes_(nodes),
        relations_(problem.relations),
        members_in_(problem.tree.domains().size()) {
    for (int home : problem.homes) CountIn(home, 1);
  }

  Slots Pack() {
    std::vector<int> order(problem_.classes.size());
    std::iota(order.begin(), order.end(), 0);
    // Those of which the fewest would fit are hardest to place.
    SortBy(&order, [&](const MemberClass& wanted, int node) {
      return wanted.fits[node] == 0 ? 0 : int64_t{wanted.room->On(node).fits};
    });
    Try(order);
    if (order.size() == 1 || IsWhole()) return best_;
    SortBy(&order, [&](const MemberClass& wanted, int node) { return wanted.fits[node] > 0; });
    Try(order);
    if (IsWhole()) return best_;
    std::ranges::reverse(order);
    Try(order);
    return best_;
  }

 private:
  bool IsWhole() const { return best_score_.left_over == 0; }

  template <typename Room>
  void SortBy(std::vector<int>* order, Room room_on) const {
    std::vector<int64_t> rooms;
    for (const MemberClass& wanted : problem_.classes) {
      int64_t& room = rooms.emplace_back(0);
      for (int node : nodes_) room += room_on(wanted, node);
    }
    std::ranges::stable_sort(*order, {}, [&](int c) { return rooms[c]; });
  }

  // Leaves everything as it was, beside best_.
  void Try(const std::vector<int>& order) {
    Slots slots;
    std::vector<int> left;
    for (const MemberClass& wanted : problem_.classes) left.push_back(wanted.size());
    // Again while one that had to wait for another finds its place.
    for (bool progress = true; progress;) {
      progress = false;
      for (int c : order) {
        if (left[c] == 0) continue;
        const int placed = PlaceClass(c, left[c], &slots);
        left[c] -= placed;
        progress |= placed > 0 && relations_ && order.size() > 1;
      }
    }
    for (const Slot& slot : slots) {
      CountIn(slot.node, -slot.count);
      Relate(slot, -1);
    }
    taken_.clear();
    if (relations_) slots = InValidOrder(std::move(slots));
    Score score = ScoreOf(problem_, slots);
    if (score >= best_score_) return;
    best_score_ = std::move(score);
    best_ = std::move(slots);
  }

  // --- classes ---

  // Returns how many of the `count` members found a place.
  int PlaceClass(int c, int count, Slots* slots) {
    std::vector<Cell> cells = CellsOf(c, count);
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
  std::vector<Cell> CellsOf(int c, int count) const {
    const MemberClass& wanted = problem_.classes[c];
    std::vector<Cell> cells;
    absl::flat_hash_map<std::vector<int>, size_t> numbers;
    std::vector<int> values;
    for (int node : nodes_) {
      const int fits = Fits(c, node, count);
      if (fits == 0) continue;
      values.clear();
      for (int key : wanted.keys) {
        values.push_back(relations_->keys()[key].domain[problem_.index_of[node]]);
      }
      const auto [number, is_new] = numbers.try_emplace(values, cells.size());
      if (is_new) cells.emplace_back();
      Cell& cell = cells[number->second];
      const cluster::ShapeRoom::Node& on = wanted.room->On(node);
      cell.bins.push_back({.node = node,
                           .fits = fits,
                           .cost = {.virtual_nodes = on.is_virtual,
                                    .devices = on.devices,
                                    .disfavour = -fits * wanted.preference[node]},
                           .position = problem_.tree.PositionOf(node),
                           .domain = problem_.tree.DomainOf(node)});
      cell.used |= taken_.contains(node);
      cell.room += fits;
    }
    // Those who are drawn together first look for room for all of them.
    const bool drawn = relations_ && relations_->IsDrawn(wanted.kind);
    const auto shortage = [&](const Cell& cell) {
      return drawn ? std::max<int64_t>(0, count - cell.room) : 0;
    };
    std::ranges::stable_sort(cells, {}, [&](const Cell& cell) {
      return std::tuple(shortage(cell), !cell.used, cell.bins[0].cost, cell.bins[0].position);
    });
    return cells;
  }

  // One by one, each to the least filled cell that may take one. Leaves relations_ as they were.
  void CountOut(int kind, int count, std::vector<Cell>* cells) {
    constexpr int64_t kClosed = std::numeric_limits<int64_t>::max();
    std::vector<int> placed;
    auto level_of = [&](const Cell& cell) {
      if (cell.Full()) return kClosed;
      const int index = problem_.index_of[cell.node()];
      return relations_->Allows(kind, index) ? relations_->SpreadLevel(kind, index) : kClosed;
    };
    while (static_cast<int>(placed.size()) < count) {
      int64_t least = kClosed;
      for (const Cell& cell : *cells) least = std::min(least, level_of(cell));
      if (least == kClosed) break;
      // Those that still are after one before them was filled further.
      for (Cell& cell : *cells) {
        if (static_cast<int>(placed.size()) == count || level_of(cell) != least) continue;
        placed.push_back(problem_.index_of[cell.node()]);
        relations_->Place(kind, placed.back());
        cell.CountOne();
      }
    }
    for (int index : placed) relations_->Remove(kind, index);
  }

  int FillCell(int c, Cell cell, Slots* slots) {
    int placed = 0;
    auto take_from = [&](std::vector<Bin> bins) {
      const std::vector<int>& open = members_ == 0 ? none_ : members_in_;
      const auto fill =
          cluster::FillTree(problem_.tree, std::move(bins), cell.count - placed, open);
      for (const cluster::Take& take : fill.takes) {
        slots->push_back({take.node, c, take.count});
        Take(slots->back());
        placed += take.count;
      }
    };
    if (cell.used) {
      const auto unused =
          std::stable_partition(cell.bins.begin(), cell.bins.end(),
                                [&](const Bin& bin) { return taken_.contains(bin.node); });
      take_from({cell.bins.begin(), unused});
      cell.bins.erase(cell.bins.begin(), unused);
    }
    take_from(std::move(cell.bins));
    return placed;
  }

  // --- room ---

  // On a node with members of the gang.
  struct Taken {
    std::vector<int64_t> free;  // by resource
    std::vector<int> placed;    // by class
  };

  // How many more of the class fit on the node, at most `limit`.
  int Fits(int c, int node, int limit) const {
    const MemberClass& wanted = problem_.classes[c];
    int64_t fits = std::min(wanted.fits[node], limit);
    const auto taken = fits > 0 ? taken_.find(node) : taken_.end();
    if (taken == taken_.end()) return static_cast<int>(fits);
    for (size_t other = 0; other < problem_.classes.size(); ++other) {
      if (taken->second.placed[other] > 0 && wanted.clashes[other]) return 0;
    }
    for (size_t r = 0; r < wanted.request.size(); ++r) {
      if (wanted.request[r] > 0) fits = std::min(fits, taken->second.free[r] / wanted.request[r]);
    }
    return static_cast<int>(std::max<int64_t>(0, fits));
  }

  void Take(const Slot& slot) {
    Taken& taken = taken_[slot.node];
    if (taken.placed.empty()) {
      taken.placed.resize(problem_.classes.size());
      const cluster::NodeInfo& info = *problem_.snapshot.NodeIn(slot.node);
      for (const std::string& need : problem_.resources) {
        taken.free.push_back(cluster::FreeFor(problem_.snapshot, info, need));
      }
    }
    taken.placed[slot.member_class] += slot.count;
    const std::vector<int64_t>& request = problem_.classes[slot.member_class].request;
    for (size_t r = 0; r < request.size(); ++r) taken.free[r] -= slot.count * request[r];
    CountIn(slot.node, slot.count);
    Relate(slot, 1);
  }

  void CountIn(int node, int members) {
    members_ += members;
    for (int at = problem_.tree.DomainOf(node); at >= 0; at = problem_.tree.domains()[at].parent) {
      members_in_[at] += members;
    }
  }

  void Relate(const Slot& slot, int step) {
    if (!relations_) return;
    const int kind = problem_.classes[slot.member_class].kind;
    for (int i = 0; i < slot.count; ++i) {
      if (step > 0) relations_->Place(kind, problem_.index_of[slot.node]);
      if (step < 0) relations_->Remove(kind, problem_.index_of[slot.node]);
    }
  }

  // Keeps to what PlaceInOrder can do, so that FirstBroken comes to the same verdict. Without those
  // that it refused it may go another way.
  Slots InValidOrder(Slots slots) {
    for (bool refused = true; refused;) {
      std::vector<cluster::Placing> placements;
      std::vector<size_t> slot_of;
      for (size_t s = 0; s < slots.size(); ++s) {
        const int kind = problem_.classes[slots[s].member_class].kind;
        placements.insert(placements.end(), slots[s].count,
                          {kind, problem_.index_of[slots[s].node]});
        slot_of.insert(slot_of.end(), slots[s].count, s);
      }
      const cluster::PlacingOrder ordering = cluster::PlaceInOrder(placements, &*relations_);
      for (size_t i : ordering.placed) relations_->Remove(placements[i].kind, placements[i].node);
      for (size_t i : ordering.refused) --slots[slot_of[i]].count;
      std::erase_if(slots, [](const Slot& slot) { return slot.count == 0; });
      refused = !ordering.refused.empty();
    }
    return slots;
  }

  const Problem& problem_;
  const std::span<const int> nodes_;
  std::optional<Relations> relations_;
  absl::flat_hash_map<int, Taken> taken_;  // by node
  int members_ = 0;                        // that are placed, or stood already:
  std::vector<int> members_in_;            // by domain of the tree
  const std::vector<int> none_;
  Score best_score_;
  Slots best_;
};

}  // namespace

Slots Pack(const Problem& problem, std::span<const int> nodes) {
  return Packing(problem, nodes).Pack();
}

}  // namespace muster::coscheduling::planner
