#include "cluster/tree_fill.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/numeric/int128.h"

namespace muster::cluster {
namespace {

// Additions in tables. So few that nothing else need be tried first; some 10 ms.
constexpr int64_t kLittleWork = 200'000;
constexpr int64_t kMostWork = 4'000'000;

// All that is compared, the most important first, as one number.
using Key = absl::uint128;

class Filling {
 public:
  Filling(const Domains& tree, std::vector<Bin> bins, int pods, const std::vector<int>& open)
      : tree_(tree), bins_(std::move(bins)), pods_(pods), open_(open) {
    for (Bin& bin : bins_) bin.fits = std::min(bin.fits, pods_);
    if (!std::ranges::is_sorted(bins_, {}, &Bin::position)) {
      std::ranges::sort(bins_, {}, &Bin::position);
    }
    FindParts();
    FindLevels();
  }

  TreeFill Run() {
    if (parts_.empty() || pods_ <= 0) return Filled({});
    if (parts_[top_].room <= pods_) return Filled(bins_);
    const int64_t work = Work();
    if (work <= kLittleWork) {
      if (auto chosen = ByTables()) return Filled(std::move(*chosen));
    }
    TreeFill fill = Filled(levels_.empty() ? FewestBins(bins_, pods_) : LevelByLevel());
    if (levels_.empty() || IsFewest(fill)) return fill;
    if (work <= kMostWork && open_.empty()) {
      if (auto chosen = ByTables()) return Filled(std::move(*chosen));
    }
    fill.exact = false;
    return fill;
  }

 private:
  // A domain in which there are bins.
  struct Part {
    int domain = 0;
    int level = -1;
    bool open = false;
    int64_t room = 0;
    int bin_count = 0;          // here and below
    int position = 0;           // of its first bin
    std::vector<int> bins;      // right here
    std::vector<int> children;  // parts, after this one
  };

  int nodes_level() const { return static_cast<int>(tree_.levels().size()); }

  void FindParts() {
    absl::flat_hash_map<int, int> part_of;
    std::vector<int> above;
    for (size_t b = 0; b < bins_.size(); ++b) {
      int domain = bins_[b].domain;
      above.clear();
      auto found = part_of.find(domain);
      while (found == part_of.end() && domain >= 0) {
        above.push_back(domain);
        domain = tree_.domains()[domain].parent;
        found = part_of.find(domain);
      }
      int part = found == part_of.end() ? -1 : found->second;
      for (; !above.empty(); above.pop_back()) {
        const int made = static_cast<int>(parts_.size());
        part_of[above.back()] = made;
        Part& here = parts_.emplace_back();
        here.domain = above.back();
        here.level = tree_.domains()[here.domain].level;
        here.open = !open_.empty() && open_[here.domain] != 0;
        here.position = bins_[b].position;
        if (part >= 0) parts_[part].children.push_back(made);
        part = made;
      }
      parts_[part].bins.push_back(static_cast<int>(b));
    }
    for (size_t p = parts_.size(); p-- > 0;) {
      Part& here = parts_[p];
      here.bin_count = static_cast<int>(here.bins.size());
      for (int b : here.bins) here.room += bins_[b].fits;
      for (int child : here.children) {
        here.room += parts_[child].room;
        here.bin_count += parts_[child].bin_count;
      }
    }
    while (!parts_.empty() && parts_[top_].bins.empty() && parts_[top_].children.size() == 1) {
      top_ = parts_[top_].children.front();
    }
  }

  // Those at which there is something to choose.
  void FindLevels() {
    for (size_t p = top_ + 1; p < parts_.size(); ++p) levels_.push_back(parts_[p].level);
    std::ranges::sort(levels_);
    levels_.erase(std::unique(levels_.begin(), levels_.end()), levels_.end());
  }

  // --- tables ---

  // What FillTables adds.
  int64_t Work() const {
    int64_t work = 0;
    for (size_t p = top_; p < parts_.size(); ++p) {
      int64_t room = 0;
      auto add = [&](int64_t more, int64_t ways) {
        room = std::min<int64_t>(room + more, pods_);
        work += (room + 1) * ways;
      };
      for (int b : parts_[p].bins) add(bins_[b].fits, 1);
      for (int child : parts_[p].children) {
        const int64_t most = std::min<int64_t>(parts_[child].room, pods_);
        add(most, most);
      }
    }
    return work;
  }

  struct Units {
    std::vector<Key> of_level;  // by position in levels_, then of nodes
    Key virtual_node = 0;
    Key device = 0;
    Key disfavour = 0;
    int64_t least_disfavour = 0;
  };

  // nullopt if all of it doesn't fit into one number.
  std::optional<Units> FindUnits() const {
    uint64_t virtual_nodes = 0;
    uint64_t devices = 0;
    uint64_t disfavour = 0;
    Units units;
    for (const Bin& bin : bins_) {
      units.least_disfavour = std::min(units.least_disfavour, bin.cost.disfavour);
    }
    for (const Bin& bin : bins_) {
      virtual_nodes += static_cast<uint64_t>(bin.cost.virtual_nodes);
      devices += static_cast<uint64_t>(bin.cost.devices);
      disfavour += static_cast<uint64_t>(bin.cost.disfavour - units.least_disfavour);
    }
    int bits = 0;
    auto next = [&bits](uint64_t most) {
      const Key unit = bits < 128 ? Key(1) << bits : Key(0);
      bits += std::bit_width(most);
      return unit;
    };
    units.disfavour = next(disfavour);
    units.device = next(devices);
    units.virtual_node = next(virtual_nodes);
    for (size_t i = 0; i <= levels_.size(); ++i) units.of_level.push_back(next(bins_.size()));
    std::ranges::reverse(units.of_level);
    if (bits > 127) return std::nullopt;
    return units;
  }

  // Of going from a domain of one level into a domain, or onto a node, of a lower one.
  Key Entering(const Units& units, int from, int to) const {
    Key key = 0;
    for (size_t i = 0; i < levels_.size(); ++i) {
      if (from < levels_[i] && levels_[i] <= to) key += units.of_level[i];
    }
    if (to == nodes_level()) key += units.of_level.back();
    return key;
  }

  Key KeyOf(const Units& units, const Bin& bin) const {
    return units.virtual_node * static_cast<uint64_t>(bin.cost.virtual_nodes) +
           units.device * static_cast<uint64_t>(bin.cost.devices) +
           units.disfavour * static_cast<uint64_t>(bin.cost.disfavour - units.least_disfavour);
  }

  // How many pods each bin and child of a part gets, by how many all up to it get.
  struct Table {
    std::vector<Key> least;                    // by number of pods: what room for them costs
    std::vector<std::vector<int32_t>> shares;  // by bin, then child: by number of pods
  };

  std::optional<std::vector<Bin>> ByTables() const {
    const std::optional<Units> units = FindUnits();
    if (!units) return std::nullopt;
    std::vector<Table> tables(parts_.size());
    for (size_t p = parts_.size(); p-- > static_cast<size_t>(top_);) {
      FillTable(*units, static_cast<int>(p), &tables);
    }
    std::vector<Bin> chosen;
    Trace(tables, top_, pods_, &chosen);
    return chosen;
  }

  void FillTable(const Units& units, int p, std::vector<Table>* tables) const {
    const Part& part = parts_[p];
    Table& table = (*tables)[p];
    std::vector<Key>& least = table.least;
    least = {0};
    const Key onto_node = Entering(units, part.level, nodes_level());
    for (int b : part.bins) {
      const Bin& bin = bins_[b];
      const Key cost = onto_node + KeyOf(units, bin);
      const int before = static_cast<int>(least.size()) - 1;
      const int now = std::min(before + bin.fits, pods_);
      std::vector<int32_t>& share = table.shares.emplace_back(now + 1, 0);
      least.resize(now + 1);
      for (int m = now; m > 0; --m) {
        const int rest = std::max(0, m - bin.fits);
        const Key with = least[rest] + cost;
        if (m <= before && least[m] <= with) continue;
        least[m] = with;
        share[m] = m - rest;
      }
    }
    for (int child : part.children) {
      const Key into =
          parts_[child].open ? Key(0) : Entering(units, part.level, parts_[child].level);
      std::vector<Key> costs = std::move((*tables)[child].least);
      for (size_t m = 1; m < costs.size(); ++m) costs[m] += into;
      const int before = static_cast<int>(least.size()) - 1;
      const int most = static_cast<int>(costs.size()) - 1;
      const int now = std::min(before + most, pods_);
      std::vector<int32_t>& share = table.shares.emplace_back(now + 1, 0);
      std::vector<Key> next(now + 1);
      for (int m = 0; m <= now; ++m) {
        int best = std::max(0, m - before);
        Key key = least[m - best] + costs[best];
        for (int there = best + 1; there <= std::min(most, m); ++there) {
          const Key with = least[m - there] + costs[there];
          if (key <= with) continue;
          key = with;
          best = there;
        }
        next[m] = key;
        share[m] = best;
      }
      least = std::move(next);
    }
  }

  void Trace(const std::vector<Table>& tables, int p, int pods, std::vector<Bin>* chosen) const {
    const Part& part = parts_[p];
    for (size_t c = part.children.size(); c-- > 0;) {
      const int there = tables[p].shares[part.bins.size() + c][pods];
      if (there > 0) Trace(tables, part.children[c], there, chosen);
      pods -= there;
    }
    for (size_t b = part.bins.size(); b-- > 0;) {
      const int there = tables[p].shares[b][pods];
      if (there > 0) chosen->push_back(bins_[part.bins[b]]);
      pods -= there;
    }
  }

  // --- level by level ---

  // A domain, or a node that hangs above the level in question.
  struct Item {
    int part = -1;
    int bin = -1;
    int64_t room = 0;
    int bin_count = 1;
    int position = 0;
    bool open = false;
  };

  void AddChildren(int p, std::vector<Item>* items) const {
    for (int b : parts_[p].bins) {
      items->push_back({.bin = b, .room = bins_[b].fits, .position = bins_[b].position});
    }
    for (int child : parts_[p].children) {
      const Part& part = parts_[child];
      items->push_back({.part = child,
                        .room = part.room,
                        .bin_count = part.bin_count,
                        .position = part.position,
                        .open = part.open});
    }
  }

  static bool LargestFirst(const Item& a, const Item& b) {
    return std::tuple(!a.open, -a.room, a.bin_count, a.position) <
           std::tuple(!b.open, -b.room, b.bin_count, b.position);
  }

  std::vector<Bin> LevelByLevel() const {
    std::vector<Item> items;
    AddChildren(top_, &items);
    for (int level : levels_) {
      KeepFewest(&items);
      std::vector<Item> below;
      for (const Item& item : items) {
        if (item.part >= 0 && parts_[item.part].level == level) {
          AddChildren(item.part, &below);
        } else {
          below.push_back(item);
        }
      }
      items = std::move(below);
    }
    std::vector<Bin> bins;
    for (const Item& item : items) bins.push_back(bins_[item.bin]);
    return FewestBins(std::move(bins), pods_);
  }

  void KeepFewest(std::vector<Item>* items) const {
    std::ranges::sort(*items, LargestFirst);
    size_t kept = 0;
    int64_t missing = pods_;
    while (missing > (*items)[kept].room) missing -= (*items)[kept++].room;
    // The last one no larger than it must be.
    auto last = items->begin() + static_cast<std::ptrdiff_t>(kept);
    if (!last->open) {
      auto after = std::partition_point(last, items->end(),
                                        [&](const Item& item) { return item.room >= missing; });
      const int64_t room = std::prev(after)->room;
      std::iter_swap(last, std::partition_point(
                               last, after, [&](const Item& item) { return item.room > room; }));
    }
    items->resize(kept + 1);
  }

  // True if at no level fewer would suffice of all there are.
  bool IsFewest(const TreeFill& fill) const {
    if (!open_.empty()) return false;
    for (size_t i = 0; i <= levels_.size(); ++i) {
      const int level = i < levels_.size() ? levels_[i] : nodes_level();
      std::vector<int64_t> rooms;
      for (size_t p = top_; p < parts_.size(); ++p) {
        if (parts_[p].level >= level) continue;
        for (int b : parts_[p].bins) rooms.push_back(bins_[b].fits);
        for (int child : parts_[p].children) {
          if (parts_[child].level >= level) rooms.push_back(parts_[child].room);
        }
      }
      std::ranges::sort(rooms, std::greater<>());
      int fewest = 0;
      for (int64_t missing = pods_; missing > 0; ++fewest) missing -= rooms[fewest];
      if (fill.domains[level] > fewest) return false;
    }
    return true;
  }

  // --- the answer ---

  TreeFill Filled(std::vector<Bin> chosen) const {
    TreeFill fill;
    std::ranges::sort(chosen, {},
                      [](const Bin& bin) { return std::pair(bin.cost.disfavour, bin.position); });
    for (Bin& bin : chosen) {
      bin.fits = std::min(bin.fits, pods_ - fill.placed);
      fill.placed += bin.fits;
      if (bin.fits > 0) fill.cost = fill.cost + bin.cost;
    }
    std::erase_if(chosen, [](const Bin& bin) { return bin.fits == 0; });
    std::ranges::sort(chosen, {}, &Bin::position);
    std::vector<int> domains;
    for (const Bin& bin : chosen) {
      fill.takes.push_back({bin.node, bin.fits});
      domains.push_back(bin.domain);
    }
    fill.domains = CountDomains(tree_, domains);
    return fill;
  }

  const Domains& tree_;
  std::vector<Bin> bins_;  // in the tree's order
  const int pods_;
  const std::vector<int>& open_;
  std::vector<Part> parts_;  // parents before their children
  int top_ = 0;              // the lowest that all bins are in
  std::vector<int> levels_;
};

}  // namespace

std::vector<int> CountDomains(const Domains& tree, const std::vector<int>& domains) {
  const int levels = static_cast<int>(tree.levels().size());
  std::vector<int> count(levels + 1, 0);
  count.back() = static_cast<int>(domains.size());
  std::vector<int> before(levels, -1);
  for (size_t n = 0; n < domains.size(); ++n) {
    int domain = domains[n];
    int lowest = -2 - static_cast<int>(n);  // the node itself
    for (int level = levels - 1; level >= 0; --level) {
      while (tree.domains()[domain].level > level) domain = tree.domains()[domain].parent;
      if (tree.domains()[domain].level == level) lowest = domain;
      if (std::exchange(before[level], lowest) != lowest) ++count[level];
    }
  }
  return count;
}

TreeFill FillTree(const Domains& tree, std::vector<Bin> bins, int pods,
                  const std::vector<int>& open) {
  return Filling(tree, std::move(bins), pods, open).Run();
}

}  // namespace muster::cluster
