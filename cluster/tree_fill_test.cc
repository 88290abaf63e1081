// Held to brute force where that is possible, and to what is promised beyond.
#include "cluster/tree_fill.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "cluster/test_objects.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cluster {
namespace {

using Random = std::mt19937_64;
int Upto(Random& random, int most) { return static_cast<int>(random() % (most + 1)); }

// A tree of so many levels, with bins that hang anywhere in it. A node's path by level; "" where it
// lacks the label.
class RandomTree {
 public:
  RandomTree(Random& random, int levels, int nodes, int branches, bool ragged)
      : domains_(Domains::LevelsOf({"l0", "l1", "l2", "l3"})) {
    for (int n = 0; n < nodes; ++n) {
      kube::Node node = test::MakeNode(fmt::format("n{:05}", n));
      std::string value;
      for (int level = 0; level < 4; ++level) {
        value += fmt::format("{}", Upto(random, branches - 1));
        if (level >= levels || (ragged && Upto(random, 4) == 0)) continue;
        node.meta.labels[fmt::format("l{}", level)] = value;
      }
      snapshot_.Upsert(std::move(node));
    }
    domains_.Follow(snapshot_);
  }

  const Domains& domains() const { return domains_; }
  std::vector<Bin> Bins(Random& random, int most_fits) const {
    std::vector<Bin> bins;
    for (int slot : domains_.order()) {
      bins.push_back({.node = slot,
                      .fits = 1 + Upto(random, most_fits - 1),
                      .cost = {.virtual_nodes = Upto(random, 3) == 0 ? 1 : 0,
                               .devices = Upto(random, 8),
                               .disfavour = Upto(random, 2) - 1},
                      .position = domains_.PositionOf(slot),
                      .domain = domains_.DomainOf(slot)});
    }
    return bins;
  }

  // What is compared of a choice, counted label by label.
  std::vector<int64_t> PriceOf(const std::vector<Bin>& bins) const {
    std::vector<int64_t> price;
    for (int level = 0; level < 4; ++level) {
      std::set<std::string> used;
      for (const Bin& bin : bins) {
        std::string name;
        std::string path;
        for (int at = 0; at < 4; ++at) {
          const std::string* label =
              snapshot_.NodeIn(bin.node)->node->meta.Label(fmt::format("l{}", at));
          path += label == nullptr ? "-/" : *label + "/";
          if (at >= level && label != nullptr && name.empty()) name = path;
        }
        used.insert(name.empty() ? fmt::format("node {}", bin.node) : name);
      }
      price.push_back(static_cast<int64_t>(used.size()));
    }
    Bin::Cost cost;
    for (const Bin& bin : bins) cost = cost + bin.cost;
    price.push_back(static_cast<int64_t>(bins.size()));
    for (int64_t part : {cost.virtual_nodes, cost.devices, cost.disfavour}) price.push_back(part);
    return price;
  }

 private:
  Snapshot snapshot_;
  Domains domains_;
};

int64_t RoomOf(const std::vector<Bin>& bins) {
  return std::accumulate(bins.begin(), bins.end(), int64_t{0},
                         [](int64_t sum, const Bin& bin) { return sum + bin.fits; });
}

std::vector<Bin> UsedBy(const TreeFill& fill, const std::vector<Bin>& bins) {
  std::vector<Bin> used;
  for (const Bin& bin : bins) {
    const auto take = std::ranges::find(fill.takes, bin.node, &Take::node);
    if (take == fill.takes.end()) continue;
    EXPECT_LE(take->count, bin.fits);
    EXPECT_GT(take->count, 0);
    used.push_back(bin);
  }
  EXPECT_EQ(used.size(), fill.takes.size());
  return used;
}

TEST(TreeFill, IsTheBestOfAllChoices) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    Random random(seed);
    const RandomTree tree(random, Upto(random, 4), 1 + Upto(random, 9), 2, Upto(random, 1) == 0);
    const std::vector<Bin> bins = tree.Bins(random, 4);
    const int pods = 1 + Upto(random, static_cast<int>(RoomOf(bins)) - 1);
    const TreeFill fill = FillTree(tree.domains(), bins, pods);
    ASSERT_TRUE(fill.exact);
    ASSERT_EQ(fill.placed, pods) << "seed " << seed;
    std::vector<int64_t> best;
    for (uint32_t subset = 1; subset < (1u << bins.size()); ++subset) {
      std::vector<Bin> chosen;
      for (size_t b = 0; b < bins.size(); ++b) {
        if ((subset >> b & 1) != 0) chosen.push_back(bins[b]);
      }
      if (RoomOf(chosen) < pods) continue;
      std::vector<int64_t> price = tree.PriceOf(chosen);
      if (best.empty() || price < best) best = std::move(price);
    }
    const std::vector<Bin> used = UsedBy(fill, bins);
    ASSERT_THAT(tree.PriceOf(used), ::testing::ElementsAreArray(best)) << "seed " << seed;
    ASSERT_EQ(std::vector<int64_t>(fill.domains.begin(), fill.domains.end()),
              std::vector<int64_t>(best.begin(), best.begin() + 5));
  }
}

TEST(TreeFill, PlacesWhatThereIsRoomFor) {
  Random random(1);
  const RandomTree tree(random, 2, 5, 2, false);
  const std::vector<Bin> bins = tree.Bins(random, 3);
  const TreeFill fill = FillTree(tree.domains(), bins, 1000);
  EXPECT_EQ(fill.placed, RoomOf(bins));
  EXPECT_EQ(fill.takes.size(), bins.size());
  EXPECT_EQ(FillTree(tree.domains(), {}, 3).placed, 0);
  EXPECT_EQ(FillTree(tree.domains(), bins, 0).placed, 0);
}

TEST(TreeFill, ADomainInUseIsTakenBeforeAnother) {
  Snapshot snapshot;
  for (const char* name : {"n1", "n2"}) {
    kube::Node node = test::MakeNode(name);
    node.meta.labels["rack"] = std::string("rack of ") + name;
    snapshot.Upsert(std::move(node));
  }
  Domains domains(Domains::LevelsOf({"rack"}));
  domains.Follow(snapshot);
  std::vector<Bin> bins;
  for (int slot : domains.order()) {
    bins.push_back({.node = slot,
                    .fits = 2,
                    .cost = {},
                    .position = domains.PositionOf(slot),
                    .domain = domains.DomainOf(slot)});
  }
  for (const Bin& in_use : bins) {
    std::vector<int> open(domains.domains().size());
    open[in_use.domain] = 1;
    EXPECT_EQ(FillTree(domains, bins, 1, open).takes.front().node, in_use.node);
  }
}

// The fewest items of these rooms that hold so many.
int Fewest(std::vector<int64_t> rooms, int64_t pods) {
  std::ranges::sort(rooms, std::greater<>());
  int fewest = 0;
  for (; pods > 0; ++fewest) pods -= rooms[fewest];
  return fewest;
}

// With far more nodes than brute force can look at: no level takes fewer domains than would suffice
// of all there are, the first exactly so many, and what is called exact is not beaten by these.
TEST(TreeFill, TakesTheFewestDomainsOfTheFirstLevelHoweverLargeTheTree) {
  int exact = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    const RandomTree tree(random, 3, 200 + Upto(random, 3000), 5, false);
    const std::vector<Bin> bins = tree.Bins(random, 8);
    const int pods = 1 + Upto(random, static_cast<int>(RoomOf(bins)) - 1);
    const TreeFill fill = FillTree(tree.domains(), bins, pods);
    ASSERT_EQ(fill.placed, pods);
    ASSERT_GE(RoomOf(UsedBy(fill, bins)), pods);
    for (int level = 0; level < 3; ++level) {
      std::map<int, int64_t> rooms;
      for (const Bin& bin : bins) rooms[tree.domains().Above(bin.domain, level)] += bin.fits;
      std::vector<int64_t> of_domains;
      for (const auto& [domain, room] : rooms) of_domains.push_back(room);
      const int fewest = Fewest(of_domains, pods);
      ASSERT_GE(fill.domains[level], fewest);
      if (level == 0) {
        ASSERT_EQ(fill.domains[0], fewest) << "seed " << seed;
      }
    }
    exact += fill.exact ? 1 : 0;
  }
  EXPECT_GE(exact, 10);
}

// --- without levels ---

// Fewest nodes, then least devices, over all subsets.
std::pair<int, int64_t> BestSubset(const std::vector<Bin>& bins, int pods) {
  std::pair<int, int64_t> best = {1000, 0};
  for (uint32_t subset = 0; subset < (1u << bins.size()); ++subset) {
    int room = 0;
    std::pair<int, int64_t> cost = {0, 0};
    for (size_t b = 0; b < bins.size(); ++b) {
      if ((subset >> b & 1) == 0) continue;
      room += bins[b].fits;
      ++cost.first;
      cost.second += bins[b].cost.devices;
    }
    if (room >= pods) best = std::min(best, cost);
  }
  return best;
}

TEST(FewestBins, AreTheFewestAndOfThoseTheCheapest) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Random random(seed);
    std::vector<Bin> bins(1 + Upto(random, 9));
    int room = 0;
    for (size_t b = 0; b < bins.size(); ++b) {
      bins[b].node = bins[b].position = static_cast<int>(b);
      bins[b].fits = 1 + Upto(random, 7);
      bins[b].cost.devices = Upto(random, 16);
      room += bins[b].fits;
    }
    const int pods = 1 + Upto(random, room - 1);
    int64_t holds = 0;
    std::pair<int, int64_t> cost = {0, 0};
    for (const Bin& bin : FewestBins(bins, pods)) {
      holds += bin.fits;
      ++cost.first;
      cost.second += bin.cost.devices;
    }
    ASSERT_GE(holds, pods) << "seed " << seed;
    ASSERT_EQ(cost, BestSubset(bins, pods)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace muster::cluster
