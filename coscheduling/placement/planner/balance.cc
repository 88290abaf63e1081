#include "coscheduling/placement/planner/balance.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace muster::coscheduling::planner {
namespace {

// Domains looked at while floors are tried. Many constraints with far floors end early, with what
// has been found by then.
constexpr int64_t kMostDomainsTried = 4'000'000;

// The domains of one topology key among the candidates, numbered densely. A candidate without the
// label is a domain of its own, without bounds.
struct Level {
  int key = 0;
  bool one_each = false;     // anti-affinity of the class to itself
  std::vector<int> spreads;  // constraints on this key
  std::vector<int> domain;   // of the key, by dense number; -1: no label
  std::vector<int> of_bin;   // dense number, by bin
  std::vector<int> parent;   // dense number in the next coarser level
  // Bounds on how many members each may take, and what it has taken, by dense number.
  std::vector<int64_t> at_least, at_most, taken;
  bool reachable = true;   // the bounds don't contradict each other
  size_t first_floor = 0;  // of its spreads, among all floors
  int size() const { return static_cast<int>(domain.size()); }
};

class Balance {
 public:
  Balance(const Problem& problem, const Room& room, const Relations& relations, int member_class,
          const std::vector<int>& candidates, int count)
      : relations_(relations),
        class_(member_class),
        kind_(problem.classes[member_class].kind),
        count_(count) {
    for (int node : candidates) {
      int fits = room.Fits(class_, node, count);
      if (fits == 0 || !CouldTake(node)) continue;
      bins_.push_back(MakeBin(problem, class_, node, fits));
      in_use_.push_back(room.Used(node));
    }
  }

  std::optional<Slots> Run() {
    FindLevels();
    if (!Nest()) return std::nullopt;
    ChooseFloors();
    Fill();
    Slots slots;
    for (size_t b = 0; b < bins_.size(); ++b) {
      if (taken_[b] > 0) slots.push_back({bins_[b].node, class_, taken_[b]});
    }
    return slots;
  }

 private:
  // Apart from the relations among members of this class.
  bool CouldTake(int node) const {
    if (!relations_.AllowsAntiAffinity(kind_, node) || !relations_.AllowsAffinity(kind_, node)) {
      return false;
    }
    for (int spread : relations_.PartsOf(kind_).own_spreads) {
      if (!OnItself(spread) && !relations_.AllowsSpread(kind_, node, spread)) return false;
    }
    return true;
  }

  bool OnItself(int spread) const { return relations_.spreads()[spread].selects[kind_]; }

  void FindLevels() {
    std::map<int, Level> by_key;
    for (int spread : relations_.PartsOf(kind_).own_spreads) {
      if (OnItself(spread)) by_key[relations_.spreads()[spread].key].spreads.push_back(spread);
    }
    for (int index : relations_.PartsOf(kind_).own_anti_affinities) {
      const Relations::AntiAffinity& anti = relations_.anti_affinities()[index];
      if (anti.selects[kind_]) by_key[anti.key].one_each = true;
    }
    for (auto& [key, level] : by_key) {
      level.key = key;
      Number(&level);
      levels_.push_back(std::move(level));
    }
    std::stable_sort(levels_.begin(), levels_.end(),
                     [](const Level& a, const Level& b) { return a.size() < b.size(); });
  }

  void Number(Level* level) const {
    const Relations::Key& key = relations_.keys()[level->key];
    std::vector<int> dense(key.values.size(), -1);
    for (const Bin& bin : bins_) {
      const int domain = key.domain[bin.node];
      int number = domain < 0 ? -1 : dense[domain];
      if (number < 0) {
        number = level->size();
        level->domain.push_back(domain);
        if (domain >= 0) dense[domain] = number;
      }
      level->of_bin.push_back(number);
    }
    level->at_least.resize(level->size());
    level->at_most.resize(level->size());
    level->taken.resize(level->size());
  }

  // True if each domain lies within one domain of the next coarser level.
  bool Nest() {
    for (size_t l = 1; l < levels_.size(); ++l) {
      Level& level = levels_[l];
      level.parent.assign(level.size(), -1);
      for (size_t b = 0; b < bins_.size(); ++b) {
        int& parent = level.parent[level.of_bin[b]];
        int coarser = levels_[l - 1].of_bin[b];
        if (parent >= 0 && parent != coarser) return false;
        parent = coarser;
      }
    }
    return true;
  }

  // --- floors ---

  struct FloorRange {
    size_t level = 0;
    int64_t first = 0, last = 0;
  };

  // The floor can't fall below what the least filled domain holds now, nor rise above what one of
  // them can reach.
  FloorRange RangeOf(const Level& level, int index) const {
    const Relations::Spread& spread = relations_.spreads()[index];
    FloorRange range{.first = spread.Floor(), .last = spread.Floor()};
    // With too few domains the floor is 0 whatever they hold.
    if (spread.domains < spread.min_domains) return range;
    std::vector<int64_t> reach(spread.matching.begin(), spread.matching.end());
    for (size_t b = 0; b < bins_.size(); ++b) {
      int domain = level.domain[level.of_bin[b]];
      if (domain >= 0) reach[domain] += bins_[b].fits;
    }
    range.last = spread.lowest + count_;
    for (size_t d = 0; d < reach.size(); ++d) {
      if (spread.taking_part[d]) range.last = std::min(range.last, reach[d]);
    }
    return range;
  }

  void ChooseFloors() {
    for (size_t l = 0; l < levels_.size(); ++l) {
      levels_[l].first_floor = ranges_.size();
      for (int spread : levels_[l].spreads) {
        ranges_.push_back(RangeOf(levels_[l], spread));
        ranges_.back().level = l;
      }
    }
    for (const FloorRange& range : ranges_) floors_.push_back(range.first);
    std::vector<int64_t> best = floors_;
    int64_t most = -1;
    int64_t domains = 1;
    for (const Level& level : levels_) domains += level.size();
    std::optional<size_t> changed = levels_.size();
    for (int64_t tries = kMostDomainsTried / domains + 1; tries > 0 && changed; --tries) {
      int64_t placed = Reach(*changed);
      if (placed > most) {
        most = placed;
        best = floors_;
      }
      if (most == count_) break;
      changed = NextFloors();
    }
    floors_ = best;
    Reach(levels_.size());
  }

  // Returns the finest level whose floors have changed; nullopt after the last.
  std::optional<size_t> NextFloors() {
    size_t finest = 0;
    for (size_t i = floors_.size(); i-- > 0;) {
      if (ranges_[i].first < ranges_[i].last) finest = std::max(finest, ranges_[i].level);
      if (floors_[i] < ranges_[i].last) {
        ++floors_[i];
        return finest;
      }
      floors_[i] = ranges_[i].first;
    }
    return std::nullopt;
  }

  // Sets the bounds of all domains for these floors, given that those of levels finer than `finest`
  // are set. Returns how many members can be placed, -1 if the floors can't be reached.
  int64_t Reach(size_t finest) {
    for (size_t l = levels_.size(); l-- > 0;) {
      if (l <= finest) levels_[l].reachable = Bound(l);
      if (!levels_[l].reachable) return -1;
    }
    int64_t least = 0, most = 0;
    if (levels_.empty()) {
      for (const Bin& bin : bins_) most += bin.fits;
    } else {
      for (int64_t n : levels_[0].at_least) least += n;
      for (int64_t n : levels_[0].at_most) most += n;
    }
    return least > count_ ? -1 : std::min<int64_t>(count_, most);
  }

  // From what the domains within each could take to what it may and must take itself.
  bool Bound(size_t l) {
    Level& level = levels_[l];
    std::fill(level.at_least.begin(), level.at_least.end(), 0);
    std::fill(level.at_most.begin(), level.at_most.end(), 0);
    if (l + 1 == levels_.size()) {
      for (size_t b = 0; b < bins_.size(); ++b) level.at_most[level.of_bin[b]] += bins_[b].fits;
    } else {
      const Level& finer = levels_[l + 1];
      for (int f = 0; f < finer.size(); ++f) {
        level.at_least[finer.parent[f]] += finer.at_least[f];
        level.at_most[finer.parent[f]] += finer.at_most[f];
      }
    }
    for (int d = 0; d < level.size(); ++d) {
      if (!BoundDomain(&level, d)) return false;
    }
    return true;
  }

  bool BoundDomain(Level* level, int d) const {
    if (level->domain[d] < 0) return true;
    int64_t& least = level->at_least[d];
    int64_t& most = level->at_most[d];
    if (level->one_each) most = std::min<int64_t>(most, 1);
    for (size_t s = 0; s < level->spreads.size(); ++s) {
      const Relations::Spread& spread = relations_.spreads()[level->spreads[s]];
      int64_t floor = floors_[level->first_floor + s];
      int64_t standing = spread.matching[level->domain[d]];
      least = std::max(least, floor - standing);
      most = std::min(most, std::max<int64_t>(0, floor + spread.max_skew - standing));
    }
    return least <= most;
  }

  // --- filling ---

  int Available(size_t b) const {
    int64_t most = bins_[b].fits - taken_[b];
    for (const Level& level : levels_) {
      int d = level.of_bin[b];
      most = std::min(most, level.at_most[d] - level.taken[d]);
    }
    return static_cast<int>(most);
  }

  void Add(size_t b, int count) {
    taken_[b] += count;
    for (Level& level : levels_) level.taken[level.of_bin[b]] += count;
  }

  // First what every domain must have, from the finest level up, then the rest.
  void Fill() {
    taken_.assign(bins_.size(), 0);
    std::vector<size_t> all = LargestFirst();
    for (size_t l = levels_.size(); l-- > 0;) {
      Level& level = levels_[l];
      if (std::none_of(level.at_least.begin(), level.at_least.end(),
                       [](int64_t least) { return least > 0; })) {
        continue;
      }
      std::vector<std::vector<size_t>> bins_of(level.size());
      for (size_t b : all) bins_of[level.of_bin[b]].push_back(b);
      for (int d = 0; d < level.size(); ++d) {
        FillSome(bins_of[d], level.at_least[d] - level.taken[d]);
      }
    }
    int64_t placed = 0;
    for (int count : taken_) placed += count;
    FillSome(all, count_ - placed);
    ChooseCheaperNodes();
  }

  std::vector<size_t> LargestFirst() const {
    std::vector<size_t> order(bins_.size());
    std::vector<int> fits;
    for (size_t b = 0; b < order.size(); ++b) {
      order[b] = b;
      fits.push_back(Available(b));
    }
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::tie(fits[b], bins_[a].cost, bins_[a].position) <
             std::tie(fits[a], bins_[b].cost, bins_[b].position);
    });
    return order;
  }

  // Nodes in use first, then large ones; the last one is the cheapest of those that suffice.
  void FillSome(const std::vector<size_t>& bins, int64_t wanted) {
    for (size_t b : bins) {
      if (wanted <= 0) return;
      if (taken_[b] > 0 || in_use_[b]) wanted -= AddUpTo(b, wanted);
    }
    for (size_t i = 0; i < bins.size() && wanted > 0; ++i) {
      bool last = Available(bins[i]) >= wanted;
      wanted -= AddUpTo(last ? CheapestLast(bins, i, wanted) : bins[i], wanted);
    }
  }

  int64_t AddUpTo(size_t b, int64_t wanted) {
    int count = static_cast<int>(std::min<int64_t>(wanted, Available(b)));
    if (count > 0) Add(b, count);
    return count;
  }

  size_t CheapestLast(const std::vector<size_t>& bins, size_t from, int64_t wanted) const {
    size_t best = bins[from];
    for (size_t i = from + 1; i < bins.size(); ++i) {
      size_t b = bins[i];
      if (std::tie(bins_[b].cost, bins_[b].position) <
              std::tie(bins_[best].cost, bins_[best].position) &&
          Available(b) >= wanted) {
        best = b;
      }
    }
    return best;
  }

  // Once it is known how many members each domain takes, which of its nodes they use is free to
  // choose, unless domains within it have floors or bounds of their own.
  void ChooseCheaperNodes() {
    if (std::find(in_use_.begin(), in_use_.end(), 1) != in_use_.end()) return;
    std::vector<size_t> group_of(bins_.size());
    std::vector<int64_t> members_of = {0};
    std::vector<Bin> bins = bins_;
    int wide_levels = 0;
    for (const Level& level : levels_) {
      if (level.size() == static_cast<int>(bins_.size())) {
        for (size_t b = 0; b < bins.size(); ++b) {
          int d = level.of_bin[b];
          if (level.at_least[d] > 0) return;
          bins[b].fits = std::min<int64_t>(bins[b].fits, level.at_most[d]);
        }
      } else if (++wide_levels > 1) {
        return;
      } else {
        group_of.assign(level.of_bin.begin(), level.of_bin.end());
        members_of = level.taken;
      }
    }
    if (wide_levels == 0) {
      for (int count : taken_) members_of[0] += count;
    }
    Refill(bins, group_of, members_of);
  }

  void Refill(const std::vector<Bin>& bins, const std::vector<size_t>& group_of,
              const std::vector<int64_t>& members_of) {
    std::vector<std::vector<Bin>> groups(members_of.size());
    for (size_t b = 0; b < bins.size(); ++b) {
      if (bins[b].fits > 0) groups[group_of[b]].push_back(bins[b]);
    }
    std::fill(taken_.begin(), taken_.end(), 0);
    for (size_t g = 0; g < groups.size(); ++g) {
      for (const Take& take :
           FillFewestNodes(std::move(groups[g]), static_cast<int>(members_of[g]))) {
        // Bins are in the order of their nodes, as the candidates are.
        const auto bin = std::lower_bound(bins_.begin(), bins_.end(), take.node,
                                          [](const Bin& b, int node) { return b.node < node; });
        taken_[bin - bins_.begin()] = take.count;
      }
    }
  }

  const Relations& relations_;
  const int class_;
  const int kind_;
  const int count_;
  std::vector<Bin> bins_;
  std::vector<char> in_use_;        // by bin: the gang uses the node already
  std::vector<int> taken_;          // by bin
  std::vector<Level> levels_;       // coarsest first
  std::vector<FloorRange> ranges_;  // by level, then constraint
  std::vector<int64_t> floors_;     // by range
};

}  // namespace

std::optional<Slots> PlaceBalanced(const Problem& problem, const Room& room,
                                   const Relations& relations, int member_class,
                                   const std::vector<int>& candidates, int count) {
  return Balance(problem, room, relations, member_class, candidates, count).Run();
}

}  // namespace muster::coscheduling::planner
