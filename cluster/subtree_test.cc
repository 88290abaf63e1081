// Where equal pods go in a tree of domains: examples, and all choices there are of small trees.
#include "cluster/subtree.h"

#include <algorithm>
#include <optional>
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

using ::testing::ElementsAre;

constexpr char kNetwork[] = "topology.k8s.aws/network-node-layer-";

kube::Node GpuNode(const std::string& name, int64_t gpus, const std::string& zone,
                   const std::vector<std::string>& layers) {
  kube::Node node = test::MakeNode(name, zone);
  node.allocatable.Set("nvidia.com/gpu", gpus);
  node.capacity = node.allocatable;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].empty()) node.meta.labels[fmt::format("{}{}", kNetwork, i + 1)] = layers[i];
  }
  return node;
}

struct SubtreeWorld {
  Snapshot snapshot;
  Domains domains;
  ShapeRooms rooms;

  std::optional<TreeFill> Fill(SubtreeQuery query, int64_t gpus = 1) {
    domains.Follow(snapshot);
    const kube::Pod shape = test::MakePod("shape", {{"nvidia.com/gpu", gpus}});
    TreeFill fill = FillLowestSubtree(domains, *rooms.Of(shape, snapshot, domains), query);
    if (fill.placed < query.least) return std::nullopt;
    return fill;
  }
  // "n1:2 n2:1"
  std::vector<std::string> Shown(const SubtreeQuery& query, int64_t gpus = 1) {
    const auto fill = Fill(query, gpus);
    std::vector<std::string> takes;
    if (!fill) return {"refused"};
    for (const Take& take : fill->takes) {
      takes.push_back(fmt::format("{}:{}", snapshot.NodeIn(take.node)->name(), take.count));
    }
    return takes;
  }
};

TEST(LowestSubtree, IsTheLeafThatHoldsAllThoughAnotherIsFirstByName) {
  SubtreeWorld world;
  world.snapshot.Upsert(GpuNode("a1", 8, "z", {"s1", "l1"}));
  for (const char* name : {"b1", "b2", "b3", "b4"}) {
    world.snapshot.Upsert(GpuNode(name, 8, "z", {"s2", "l2"}));
  }
  for (const char* name : {"c1", "c2", "c3"}) {
    world.snapshot.Upsert(GpuNode(name, 8, "z", {"s3", "l3"}));
  }
  EXPECT_THAT(world.Shown({.pods = 4, .least = 4}, 8), ElementsAre("b1:1", "b2:1", "b3:1", "b4:1"));
  // The smallest leaf that is enough leaves the larger one whole.
  EXPECT_THAT(world.Shown({.pods = 3, .least = 3}, 8), ElementsAre("c1:1", "c2:1", "c3:1"));
  // No leaf holds five: the fewest spines.
  EXPECT_THAT(world.Shown({.pods = 5, .least = 5}, 8),
              ElementsAre("a1:1", "b1:1", "b2:1", "b3:1", "b4:1"));
}

TEST(LowestSubtree, CountsNodesThatAreComingIfToldTo) {
  SubtreeWorld world;
  world.snapshot.Upsert(GpuNode("n1", 8, "a", {}));
  world.snapshot.Upsert(GpuNode("n2", 8, "b", {}));
  kube::NodeClaim claim = test::MakeClaim("c");
  claim.meta.labels[kube::kZoneLabel] = "a";
  world.snapshot.Upsert(std::move(claim));
  EXPECT_THAT(world.Shown({.pods = 2, .least = 2}, 8), ElementsAre("n1:1", "n2:1"));
  EXPECT_THAT(world.Shown({.pods = 2, .least = 2, .include_coming = true}, 8),
              ElementsAre("n1:1", "nodeclaim/c:1"));
}

TEST(LowestSubtree, OfARequiredLevelRefusesExactlyWhenNoDomainHoldsAll) {
  SubtreeWorld world;
  for (const char* name : {"n1", "n2"}) {
    world.snapshot.Upsert(GpuNode(name, 4, "z", {"s", name == std::string("n1") ? "l1" : "l2"}));
  }
  world.domains.Follow(world.snapshot);
  const int leaf = world.domains.LevelOf(fmt::format("{}2", kNetwork));
  EXPECT_THAT(world.Shown({.pods = 4, .least = 4, .required_level = leaf}), ElementsAre("n1:4"));
  EXPECT_THAT(world.Shown({.pods = 5, .least = 5, .required_level = leaf}), ElementsAre("refused"));
  EXPECT_THAT(world.Shown({.pods = 5, .least = 0, .required_level = leaf}), ElementsAre("n1:4"));
  const int host = world.domains.LevelOf(kube::kHostnameLabel);
  EXPECT_THAT(world.Shown({.pods = 4, .least = 4, .required_level = host}), ElementsAre("n1:4"));
  EXPECT_THAT(world.Shown({.pods = 5, .least = 5, .required_level = host}), ElementsAre("refused"));
  EXPECT_THAT(world.Shown({.pods = 5, .least = 4, .required_level = leaf}), ElementsAre("n1:4"));
  const int slot = world.snapshot.FindNode("n1")->slot;
  EXPECT_THAT(world.Shown({.pods = 4, .least = 4, .excluded = {slot}, .required_level = leaf}),
              ElementsAre("n2:4"));
}

TEST(LowestSubtree, SurplusStaysInOneZone) {
  SubtreeWorld world;
  world.snapshot.Upsert(GpuNode("a1", 4, "a", {"s"}));
  world.snapshot.Upsert(GpuNode("a2", 2, "a", {"t"}));
  world.snapshot.Upsert(GpuNode("b1", 5, "b", {}));
  EXPECT_THAT(world.Shown({.pods = 8, .least = 4}), ElementsAre("a1:4", "a2:2"));
  EXPECT_THAT(world.Shown({.pods = 8, .least = 7}), ElementsAre("a1:4", "b1:4"));
  EXPECT_THAT(world.Shown({.pods = 20, .least = 12}), ElementsAre("refused"));
  EXPECT_THAT(world.Shown({.pods = 20, .least = 0}, 9), ElementsAre());
}

// --- every choice there is ---

struct Price {
  bool refused = true;
  int outside_one_zone = 0;
  int left_over = 0;
  std::vector<int> domains;
  Bin::Cost cost;
  auto operator<=>(const Price&) const = default;
};

class Brute {
 public:
  Brute(const Snapshot& snapshot, const SubtreeQuery& query, const std::string& required)
      : query_(query), required_(required) {
    for (const auto& [name, info] : snapshot.nodes()) {
      any_zone_ |= info.node->meta.Label(kube::kZoneLabel) != nullptr;
      nodes_.push_back(&info);
    }
  }

  Price Best() const {
    Price best;
    for (uint32_t subset = 0; subset < (1u << nodes_.size()); ++subset) {
      best = std::min(best, PriceOf(subset));
    }
    return best;
  }

  Price PriceOf(const TreeFill& fill) const {
    uint32_t subset = 0;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      const auto take = std::ranges::find(fill.takes, nodes_[n]->slot, &Take::node);
      if (take == fill.takes.end()) continue;
      EXPECT_LE(take->count, nodes_[n]->Free("nvidia.com/gpu"));
      subset |= 1u << n;
    }
    return PriceOf(subset);
  }

 private:
  static const std::vector<std::string>& Levels() {
    static const auto* levels = new std::vector<std::string>(
        {kube::kZoneLabel, fmt::format("{}1", kNetwork), fmt::format("{}2", kNetwork)});
    return *levels;
  }

  bool Usable(const NodeInfo& info) const {
    const bool there = info.UsableNow() || (query_.include_coming && info.Coming());
    return there && !query_.excluded.contains(info.slot) && info.Free("nvidia.com/gpu") > 0 &&
           (required_.empty() || info.node->meta.Label(required_) != nullptr);
  }

  // The domain of a level that the node is in, by the names of all above it.
  static std::string DomainOf(const NodeInfo& info, size_t level) {
    std::string path;
    for (size_t at = 0; at < Levels().size(); ++at) {
      const std::string* value = info.node->meta.Label(Levels()[at]);
      path += value == nullptr ? "-/" : *value + "/";
      if (at >= level && value != nullptr) return fmt::format("{} {}", at, path);
    }
    return "node " + info.name();
  }

  Price PriceOf(uint32_t subset) const {
    Price price;
    int64_t room = 0;
    std::set<std::string> required_domains;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if ((subset >> n & 1) == 0) continue;
      const NodeInfo& info = *nodes_[n];
      if (!Usable(info)) return Price{};
      room += info.Free("nvidia.com/gpu");
      price.cost.virtual_nodes += info.is_virtual;
      price.cost.devices += info.Free("nvidia.com/gpu");
      if (!required_.empty()) {
        const size_t at = std::ranges::find(Levels(), required_) - Levels().begin();
        required_domains.insert(DomainOf(info, at));
      }
    }
    if (required_domains.size() > 1) return Price{};
    const auto placed = static_cast<int>(std::min<int64_t>(room, query_.pods));
    price.refused = placed < query_.least;
    price.left_over = query_.pods - placed;
    for (size_t level = 0; level <= Levels().size(); ++level) {
      std::set<std::string> used;
      for (size_t n = 0; n < nodes_.size(); ++n) {
        if ((subset >> n & 1) != 0) used.insert(DomainOf(*nodes_[n], level));
      }
      price.domains.push_back(static_cast<int>(used.size()));
    }
    price.outside_one_zone = any_zone_ && price.domains[0] != 1 ? 1 : 0;
    return price;
  }

  const SubtreeQuery& query_;
  const std::string required_;
  std::vector<const NodeInfo*> nodes_;
  bool any_zone_ = false;
};

TEST(LowestSubtree, IsTheBestOfAllChoicesInSmallTrees) {
  int refused = 0;
  int in_parts = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    std::mt19937_64 random(seed);
    auto upto = [&](int most) { return static_cast<int>(random() % (most + 1)); };
    SubtreeWorld world;
    const int nodes = 1 + upto(8);
    const bool ragged = upto(1) == 0;
    for (int n = 0; n < nodes; ++n) {
      const std::string zone = ragged && upto(4) == 0 ? "" : fmt::format("z{}", upto(1));
      std::vector<std::string> layers = {zone + fmt::format("s{}", upto(1))};
      layers.push_back(layers[0] + fmt::format("l{}", upto(1)));
      if (ragged && upto(3) == 0) layers[upto(1)].clear();
      if (ragged && upto(3) == 0) layers.pop_back();
      if (upto(5) > 0) {
        world.snapshot.Upsert(GpuNode(fmt::format("n{}", n), upto(4), zone, layers));
        continue;
      }
      kube::NodeClaim claim = test::MakeClaim(fmt::format("n{}", n));
      if (!zone.empty()) claim.meta.labels[kube::kZoneLabel] = zone;
      claim.requests.Set("nvidia.com/gpu", 1 + upto(3));
      world.snapshot.Upsert(std::move(claim));
    }
    SubtreeQuery query{.pods = 1 + upto(9), .include_coming = upto(1) == 0};
    query.least = upto(2) == 0 ? upto(query.pods) : query.pods;
    if (upto(3) == 0) query.excluded.insert(upto(nodes - 1));
    std::string required;
    if (upto(2) == 0) {
      required = upto(1) == 0 ? kube::kZoneLabel : fmt::format("{}2", kNetwork);
      query.required_level = world.domains.LevelOf(required);
    }
    const auto fill = world.Fill(query);
    const Brute brute(world.snapshot, query, required);
    const Price best = brute.Best();
    ASSERT_EQ(!fill, best.refused) << "seed " << seed;
    if (!fill) {
      ++refused;
      continue;
    }
    int placed = 0;
    for (const Take& take : fill->takes) placed += take.count;
    ASSERT_EQ(placed, query.pods - best.left_over) << "seed " << seed;
    const Price got = brute.PriceOf(*fill);
    ASSERT_EQ(got.domains, best.domains) << "seed " << seed;
    ASSERT_EQ(got, best) << "seed " << seed;
    in_parts += best.domains.front() > 1 ? 1 : 0;
  }
  EXPECT_GT(refused, 150);
  EXPECT_GT(in_parts, 100);
}

}  // namespace
}  // namespace muster::cluster
