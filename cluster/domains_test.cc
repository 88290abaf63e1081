#include "cluster/domains.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cluster/test_objects.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kLayer[] = "topology.k8s.aws/network-node-layer-";
constexpr char kClique[] = "nvidia.com/gpu.clique";

kube::Node NodeIn(const std::string& name, const std::string& zone,
                  const std::vector<std::string>& layers, const std::string& clique = "") {
  kube::Node node = test::MakeNode(name, zone);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].empty()) node.meta.labels[fmt::format("{}{}", kLayer, i + 1)] = layers[i];
  }
  if (!clique.empty()) node.meta.labels[kClique] = clique;
  return node;
}

// "zone a > layer-1 x", the last part of each label.
std::string PathOf(const Domains& domains, int domain) {
  if (domain == Domains::kRoot) return "";
  const Domains::Domain& here = domains.domains()[domain];
  const std::string& label = domains.levels()[here.level].label;
  const std::string above = PathOf(domains, here.parent);
  return fmt::format("{}{}{} {}", above, above.empty() ? "" : " > ",
                     label.substr(label.find_last_of("/.") + 1), here.value);
}

// All nodes in order, each with where it hangs.
std::vector<std::string> Tree(const Snapshot& snapshot, const Domains& domains) {
  std::vector<std::string> lines;
  for (int slot : domains.order()) {
    lines.push_back(fmt::format("{}: {}", snapshot.NodeIn(slot)->name(),
                                PathOf(domains, domains.DomainOf(slot))));
  }
  return lines;
}

std::vector<std::string> NodesUnder(const Snapshot& snapshot, const Domains& domains, int domain) {
  std::vector<std::string> names;
  for (int i = domains.domains()[domain].first; i < domains.domains()[domain].last; ++i) {
    names.push_back(snapshot.NodeIn(domains.order()[i])->name());
  }
  return names;
}

TEST(Domains, FollowLabelsToWhateverDepthTheyHave) {
  Snapshot snapshot;
  snapshot.Upsert(NodeIn("bare", "", {}));
  snapshot.Upsert(NodeIn("zoned", "a", {}));
  snapshot.Upsert(NodeIn("three", "a", {"s", "t", "u"}));
  snapshot.Upsert(NodeIn("four", "a", {"s", "t", "u", "v"}));
  snapshot.Upsert(NodeIn("fabric", "b", {"w", "", "x"}, "cluster.1"));
  Domains domains;
  domains.Follow(snapshot);
  EXPECT_THAT(
      Tree(snapshot, domains),
      ElementsAre("bare: ", "zoned: zone a",
                  "three: zone a > network-node-layer-1 s > network-node-layer-2 t > "
                  "network-node-layer-3 u",
                  "four: zone a > network-node-layer-1 s > network-node-layer-2 t > "
                  "network-node-layer-3 u > network-node-layer-4 v",
                  "fabric: zone b > network-node-layer-1 w > network-node-layer-3 x > clique "
                  "cluster.1"));
  EXPECT_THAT(domains.Contradictions(), IsEmpty());
  const int zone = domains.LevelOf(kube::kZoneLabel);
  const int leaf = domains.DomainOf(snapshot.FindNode("four")->slot);
  const int zone_a = domains.Above(leaf, zone);
  EXPECT_EQ(domains.domains()[zone_a].value, "a");
  EXPECT_THAT(NodesUnder(snapshot, domains, zone_a), ElementsAre("zoned", "three", "four"));
  EXPECT_EQ(domains.Above(leaf, 0), -1);  // no region
}

TEST(Domains, ANodeMovesWhenItsLabelsComeAndGo) {
  Snapshot snapshot;
  Domains domains;
  snapshot.Upsert(NodeIn("n", "a", {}));
  domains.Follow(snapshot);
  const uint64_t shape = domains.shape();
  snapshot.Upsert(test::BoundTo(test::MakePod("p", {{"cpu", 1}}), "n"));
  domains.Follow(snapshot);
  EXPECT_EQ(domains.shape(), shape) << "a pod moves no node";
  snapshot.Upsert(NodeIn("n", "a", {"s"}, "c.1"));
  domains.Follow(snapshot);
  EXPECT_THAT(Tree(snapshot, domains), ElementsAre("n: zone a > network-node-layer-1 s > clique "
                                                   "c.1"));
  snapshot.Upsert(NodeIn("n", "a", {"s"}));
  domains.Follow(snapshot);
  EXPECT_THAT(Tree(snapshot, domains), ElementsAre("n: zone a > network-node-layer-1 s"));
  snapshot.RemoveNode("n");
  domains.Follow(snapshot);
  EXPECT_THAT(Tree(snapshot, domains), IsEmpty());
}

TEST(Domains, ANodeThatIsComingHangsWhereItsClaimSays) {
  Snapshot snapshot;
  kube::NodeClaim claim = test::MakeClaim("c");
  claim.meta.labels[kube::kZoneLabel] = "a";
  snapshot.Upsert(std::move(claim));
  Domains domains;
  domains.Follow(snapshot);
  EXPECT_THAT(Tree(snapshot, domains), ElementsAre("nodeclaim/c: zone a"));
}

TEST(Domains, AHostInTwoLeavesIsTold) {
  Snapshot snapshot;
  snapshot.Upsert(NodeIn("n1", "a", {"s", "t"}));
  snapshot.Upsert(NodeIn("n2", "a", {"s", "u"}));
  Domains domains;
  domains.Follow(snapshot);
  EXPECT_THAT(domains.Contradictions(), IsEmpty());
  kube::Node twin = NodeIn("n2", "a", {"s", "u"});
  twin.meta.labels[kube::kHostnameLabel] = "n1";
  snapshot.Upsert(std::move(twin));
  domains.Follow(snapshot);
  EXPECT_THAT(domains.Contradictions(),
              ElementsAre("kubernetes.io/hostname=n1 lies in 2 domains, "
                          "topology.k8s.aws/network-node-layer-2=t and "
                          "topology.k8s.aws/network-node-layer-2=u among them"));
  snapshot.RemoveNode("n2");
  domains.Follow(snapshot);
  EXPECT_THAT(domains.Contradictions(), IsEmpty());
}

TEST(Domains, ALeafInTwoSpinesIsToldOnceWhereItParts) {
  Snapshot snapshot;
  snapshot.Upsert(NodeIn("n1", "a", {"s", "t", "u"}));
  snapshot.Upsert(NodeIn("n2", "b", {"s", "t", "u"}));
  Domains domains;
  domains.Follow(snapshot);
  EXPECT_THAT(domains.Contradictions(),
              ElementsAre(HasSubstr("topology.k8s.aws/network-node-layer-1=s lies in 2 domains")));
  EXPECT_NE(domains.DomainOf(snapshot.FindNode("n1")->slot),
            domains.DomainOf(snapshot.FindNode("n2")->slot));
}

TEST(Domains, ARackOfATopologyMayHaveItsNameInEveryBlock) {
  Snapshot snapshot;
  for (const char* block : {"b1", "b2"}) {
    kube::Node node = test::MakeNode(fmt::format("n-{}", block));
    node.meta.labels["block"] = block;
    node.meta.labels["rack"] = "r1";
    snapshot.Upsert(std::move(node));
  }
  Domains domains(Domains::LevelsOf({"block", "rack", kube::kHostnameLabel}));
  domains.Follow(snapshot);
  EXPECT_THAT(Tree(snapshot, domains),
              ElementsAre("n-b1: block b1 > rack r1", "n-b2: block b2 > rack r1"));
  EXPECT_THAT(domains.Contradictions(), IsEmpty());
  EXPECT_EQ(domains.LevelOf(kube::kHostnameLabel), 2);
}

// What a reader can see.
std::vector<std::string> Picture(const Snapshot& snapshot, const Domains& domains) {
  std::vector<std::string> lines = Tree(snapshot, domains);
  for (const std::string& sentence : domains.Contradictions()) lines.push_back(sentence);
  std::map<std::string, std::vector<std::string>> under;
  for (size_t slot = 0; slot < static_cast<size_t>(snapshot.slot_count()); ++slot) {
    if (snapshot.NodeIn(static_cast<int>(slot)) == nullptr) continue;
    const int leaf = domains.DomainOf(static_cast<int>(slot));
    EXPECT_EQ(domains.order()[domains.PositionOf(static_cast<int>(slot))], static_cast<int>(slot));
    for (int domain = leaf; domain >= 0; domain = domains.domains()[domain].parent) {
      under[PathOf(domains, domain)] = NodesUnder(snapshot, domains, domain);
    }
  }
  for (const auto& [path, names] : under) {
    lines.push_back(fmt::format("{} has {}", path, fmt::join(names, " ")));
  }
  return lines;
}

TEST(Domains, KeptByChangesAreThoseBuiltAnew) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    auto upto = [&](int most) { return static_cast<int>(random() % (most + 1)); };
    auto any = [&](const std::string& prefix) { return fmt::format("{}{}", prefix, upto(2)); };
    Snapshot snapshot;
    Domains domains;
    for (int step = 0; step < 120; ++step) {
      const std::string name = fmt::format("n{}", upto(11));
      switch (upto(5)) {
        case 0:
          snapshot.RemoveNode(name);
          break;
        case 1:
          snapshot.Upsert(
              test::BoundTo(test::MakePod(fmt::format("p{}", upto(9)), {{"cpu", 1}}), name));
          break;
        case 2: {
          kube::NodeClaim claim = test::MakeClaim(fmt::format("c{}", upto(3)));
          if (upto(1) == 0) claim.meta.labels[kube::kZoneLabel] = any("z");
          if (upto(1) == 0) claim.node_name = name;
          snapshot.Upsert(std::move(claim));
          break;
        }
        default: {
          std::vector<std::string> layers;
          for (int depth = upto(3); depth > 0; --depth) {
            layers.push_back(upto(4) == 0 ? "" : any("l"));
          }
          kube::Node node =
              NodeIn(name, upto(3) == 0 ? "" : any("z"), layers, upto(2) == 0 ? any("q.") : "");
          if (upto(6) == 0) node.meta.labels[kube::kHostnameLabel] = fmt::format("n{}", upto(11));
          snapshot.Upsert(std::move(node));
        }
      }
      if (upto(2) == 0) continue;  // several changes at once
      domains.Follow(snapshot);
      Domains anew;
      anew.Follow(snapshot);
      ASSERT_EQ(Picture(snapshot, domains), Picture(snapshot, anew)) << "seed " << seed;
    }
  }
}

TEST(NodeLog, SaysOnceWhatWasNotedSince) {
  NodeLog log;
  EXPECT_THAT(log.Since(0), ElementsAre());
  log.Note(3);
  log.Note(5);
  log.Note(3);
  EXPECT_THAT(log.Since(0), ElementsAre(5, 3)) << "in the order of the last time";
  const uint64_t later = log.end();
  EXPECT_THAT(log.Since(later), ElementsAre());
  log.Note(5);
  EXPECT_THAT(log.Since(later), ElementsAre(5));
  EXPECT_THAT(log.Since(0), ElementsAre(3, 5));
}

TEST(NodeLog, ForgetsNothingHoweverLongItGrows) {
  NodeLog log;
  std::mt19937_64 random(7);
  std::vector<uint64_t> last(50);
  uint64_t recent = 0;
  for (int i = 0; i < 100'000; ++i) {
    const auto slot = random() % last.size();
    log.Note(static_cast<int>(slot));
    last[slot] = log.end();
    if (i % 997 != 0) continue;
    const std::vector<int> since = log.Since(recent);
    const auto expected = std::ranges::count_if(last, [&](uint64_t at) { return at > recent; });
    ASSERT_EQ(since.size(), static_cast<size_t>(expected));
    ASSERT_TRUE(std::ranges::is_sorted(since, {}, [&](int one) { return last[one]; }));
    recent = log.end() - random() % (i + 1);
  }
}

}  // namespace
}  // namespace muster::cluster
