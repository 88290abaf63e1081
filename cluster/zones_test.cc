#include "cluster/zones.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/test_objects.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

kube::NodePool PoolIn(std::vector<std::string> zones) {
  kube::NodePool pool;
  if (!zones.empty()) {
    pool.requirements.push_back({kube::kZoneLabel, kube::SelectorOperator::kIn, std::move(zones)});
  }
  return pool;
}

TEST(Zones, AreThoseThatPoolsName) {
  NodePools pools = {{"a", PoolIn({"z2", "z1"})}, {"b", PoolIn({"z3"})}};
  EXPECT_THAT(ZonesOf(pools, {}), ElementsAre("z1", "z2", "z3"));
  pools["any"] = PoolIn({});
  NodeInfo there;
  kube::Node node;
  node.meta.labels[kube::kZoneLabel] = "z4";
  there.node = std::make_shared<const kube::Node>(node);
  EXPECT_THAT(ZonesOf(pools, {&there}), ElementsAre("z1", "z2", "z3", "z4"));
  EXPECT_THAT(ZonesOf({}, {&there}), IsEmpty());
  EXPECT_EQ(ZoneOf(&there), "z4");
  EXPECT_EQ(ZoneOf(nullptr), "");
}

TEST(Zones, OfAClassAreThoseOfItsSubnets) {
  kube::NodeClass node_class;
  node_class.zones = {"z2", "z3"};
  NodePools pools = {{"any", PoolIn({})}, {"some", PoolIn({"z1", "z2"})}};
  for (auto& [name, pool] : pools) {
    pool.node_class = std::make_shared<const kube::NodeClass>(node_class);
  }
  EXPECT_THAT(ZonesOf(pools, {}), ElementsAre("z2", "z3"));
  pools.erase("any");
  EXPECT_THAT(ZonesOf(pools, {}), ElementsAre("z2"));
}

TEST(Zones, ComeInOneOrder) {
  const absl::Time now = absl::UnixEpoch() + absl::Hours(10);
  std::vector<Zone> zones = {
      {.name = "failed", .room = 9, .suffices = true, .failed_until = now},
      {.name = "refused", .room = 9, .suffices = true, .refused_at = now},
      {.name = "small", .room = 9, .makeable = 1, .needed = 12},
      {.name = "fair", .room = 1, .suffices = true},
      {.name = "best", .room = 2, .suffices = true},
  };
  Order(&zones);
  std::vector<std::string> names;
  for (const Zone& zone : zones) names.push_back(zone.name);
  EXPECT_THAT(names, ElementsAre("best", "fair", "refused", "small", "failed"));
  std::vector<std::string> open;
  for (const Zone& zone : zones) {
    if (IsOpen(zone)) open.push_back(zone.name);
  }
  EXPECT_THAT(open, ElementsAre("best", "fair", "refused"));
  std::vector<std::string> lacks;
  for (const Zone& zone : zones) lacks.push_back(LackOf(zone));
  EXPECT_THAT(lacks, ElementsAre("", "", "refused at 10:00:00Z",
                                 "room for 9 of 12 members, and NodePools make nodes for 1 more",
                                 "failed, not before 10:00:00Z"));
}

TEST(Zones, SourcesOfNodesAreToldAsTheyAreTried) {
  const NodeSource zone = {.zone = "z", .flavor = "f", .is_open = true};
  EXPECT_EQ(NodeSourcesText({}), "");
  EXPECT_EQ(NodeSourcesText({zone}), "; nodes are made in zone z");
  EXPECT_EQ(NodeSourcesText({zone,
                             {.zone = "y", .flavor = "f", .lacking = "refused", .is_open = true},
                             {.flavor = "g", .is_open = true},
                             {.zone = "x", .flavor = "f", .lacking = "failed"}}),
            "; nodes are made in zone z, next zone y, flavor g, zone x (failed)");
  const NodeSource flavor = {.flavor = "f", .is_open = true};
  EXPECT_EQ(NodeSourcesText({flavor, flavor, flavor, flavor, flavor, flavor}),
            "; nodes are made on flavor f, next flavor f, flavor f, flavor f, 2 more");
}

TEST(Zones, WhatIsTriedComesFirstAndWhatLacksSomethingLast) {
  const std::vector<Zone> zones = {{.name = "full", .needed = 1},
                                   {.name = "own", .needed = 1},
                                   {.name = "fair", .suffices = true}};
  const NodeSource spot = {.flavor = "spot", .is_open = true};
  const auto sources =
      InOrder(SourcesIn(zones, "own"), "a", {{.flavor = "b", .lacking = "l"}, spot});
  std::vector<std::string> names;
  for (const NodeSource& source : sources) names.push_back(source.flavor + " " + source.zone);
  EXPECT_THAT(names, ElementsAre("a own", "a fair", "spot ", "a full", "b "));
  EXPECT_EQ(NextOf(sources), sources.begin() + 1);

  EXPECT_TRUE(InOrder({}, "a", {}).empty());
  const auto flavors = InOrder({}, "a", {spot});
  ASSERT_EQ(flavors.size(), 2);
  EXPECT_EQ(flavors[0].flavor, "a");
  EXPECT_EQ(NextOf(flavors), flavors.begin() + 1);
  const auto alone = SourcesIn({}, "gone");  // nobody makes nodes there any more
  ASSERT_EQ(alone.size(), 1);
  EXPECT_EQ(alone[0].zone, "gone");
  EXPECT_EQ(NextOf(alone), alone.end());
}

TEST(Zones, AGangOverSeveralSaysWhatOneWouldHaveNeeded) {
  const auto node = [](const char* zone, const char* leaf) {
    kube::Node made;
    if (*zone != 0) made.meta.labels[kube::kZoneLabel] = zone;
    if (*leaf != 0) made.meta.labels["leaf"] = leaf;
    return made;
  };
  const kube::Node a = node("za", "l1"), b = node("zb", "l2"), c = node("zb", ""),
                   bare = node("", "");
  EXPECT_EQ(BeyondOneText({}, {&a, &a}), "");
  EXPECT_EQ(BeyondOneText({}, {&bare, &bare}), "");
  EXPECT_EQ(
      BeyondOneText({}, {&a, &b, &b}),
      "; over 2 domains of topology.kubernetes.io/zone: zb (2), za (1); one would have needed "
      "room for all 3");
  kube::TopologyAsked leaf;
  leaf.annotation = kube::kPreferredTopology;
  leaf.preferred = "leaf";
  EXPECT_EQ(BeyondOneText(leaf, {&a, &a}), "");
  EXPECT_EQ(BeyondOneText(leaf, {&a, &b, &c, &a}),
            "; over 3 domains of leaf, which annotation kueue.x-k8s.io/podset-preferred-topology "
            "prefers: l1 (2), l2 (1), nodes without that label (1); one would have needed room for "
            "all 4");
  EXPECT_EQ(BeyondOneText(leaf, {&bare}),
            "; none of their nodes has label leaf, which annotation "
            "kueue.x-k8s.io/podset-preferred-topology prefers");
  kube::TopologyAsked other;
  other.annotation = kube::kUnconstrainedTopology;
  EXPECT_EQ(BeyondOneText(other, {&a, &b}), "");
  kube::TopologyAsked efa;
  efa.required = kube::kZoneLabel;
  EXPECT_EQ(BeyondOneText(efa, {&a, &b}), "");
}

}  // namespace
}  // namespace muster::cluster
