#include "cluster/pool_forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/test_objects.h"

namespace muster::cluster {
namespace {

using test::In;
using test::MakePod;
using test::Resources;
using test::With;
using testing::HasSubstr;
using testing::StartsWith;

kube::NodePool Pool() {
  kube::NodePool pool;
  pool.meta.name = "gpu";
  pool.labels["team"] = "ml";
  pool.requirements = {In("karpenter.sh/capacity-type", {"on-demand"})};
  pool.taints = {{"nvidia.com/gpu", "", kube::TaintEffect::kNoSchedule}};
  pool.limits = Resources({{"nvidia.com/gpu", 16}});
  pool.usage = Resources({{"nvidia.com/gpu", 10}});
  return pool;
}

kube::PodSpec Asks(int64_t gpus) {
  return *With(MakePod("p", {{"nvidia.com/gpu", gpus}}), [](auto& spec) {
            spec.tolerations.push_back({"nvidia.com/gpu", true, "", std::nullopt});
            spec.node_selector = {{"karpenter.sh/nodepool", "gpu"}, {"team", "ml"}};
          }).spec;
}

std::optional<PoolRefusal> Refusal(const kube::NodePool& pool, const kube::PodSpec& spec) {
  return WhyPoolCannotHold(pool, spec, InstanceTypes::BuiltIn());
}

// The obstacle of a refusal that says `why`; kUnusable where it says something else.
PoolObstacle ObstacleOf(const kube::NodePool& pool, const kube::PodSpec& spec,
                        std::string_view why) {
  const std::optional<PoolRefusal> refusal = Refusal(pool, spec);
  EXPECT_TRUE(refusal);
  if (!refusal) return PoolObstacle::kUnusable;
  EXPECT_THAT(refusal->why, HasSubstr(std::string(why)));
  EXPECT_THAT(refusal->why, StartsWith("NodePool gpu: "));
  EXPECT_EQ(refusal->IsCertain(), refusal->obstacle != PoolObstacle::kUnusable);
  return refusal->obstacle;
}

TEST(PoolForecast, APoolCanHoldWhatItSaysNothingAgainst) { EXPECT_FALSE(Refusal(Pool(), Asks(8))); }

TEST(PoolForecast, TheFirstThingThatRulesItOutIsNamed) {
  kube::PodSpec intolerant = Asks(8);
  intolerant.tolerations.clear();
  EXPECT_EQ(ObstacleOf(Pool(), intolerant, "taint nvidia.com/gpu:NoSchedule isn't tolerated"),
            PoolObstacle::kTaint);

  kube::PodSpec elsewhere = Asks(8);
  elsewhere.node_selector["karpenter.sh/nodepool"] = "cpu";
  EXPECT_EQ(ObstacleOf(Pool(), elsewhere, "select karpenter.sh/nodepool=cpu"),
            PoolObstacle::kOtherPool);

  kube::PodSpec spot = Asks(8);
  spot.node_selector["karpenter.sh/capacity-type"] = "spot";
  EXPECT_EQ(ObstacleOf(Pool(), spot,
                       "select karpenter.sh/capacity-type=spot, it offers "
                       "karpenter.sh/capacity-type=on-demand"),
            PoolObstacle::kCapacityType);

  kube::PodSpec other_team = Asks(8);
  other_team.node_selector["team"] = "web";
  EXPECT_EQ(ObstacleOf(Pool(), other_team, "select team=web, its nodes have ml"),
            PoolObstacle::kLabel);

  kube::NodePool small = Pool();
  small.limits = Resources({{"nvidia.com/gpu", 4}});
  EXPECT_EQ(
      ObstacleOf(small, Asks(8), "limit is 4 nvidia.com/gpu, one pod asks for 8 nvidia.com/gpu"),
      PoolObstacle::kLimit);
}

TEST(PoolForecast, WhatMayPassIsToldAfterWhatDoesNot) {
  kube::NodePool ill = Pool();
  ill.ready = false;
  EXPECT_EQ(ObstacleOf(ill, Asks(8), "isn't ready"), PoolObstacle::kUnusable);
  kube::PodSpec elsewhere = Asks(8);
  elsewhere.node_selector["karpenter.sh/nodepool"] = "cpu";
  EXPECT_EQ(ObstacleOf(ill, elsewhere, "nodepool=cpu"), PoolObstacle::kOtherPool);
  // Of a NodePool that can't be read nothing is certain.
  ill.error = "spec.template.spec.requirements[0].operator: unknown operator";
  EXPECT_EQ(ObstacleOf(ill, elsewhere, "unknown operator"), PoolObstacle::kUnusable);
}

TEST(PoolForecast, TheNumbersOfTheLargestTypeAreTold) {
  kube::NodePool pool = Pool();
  pool.limits.reset();
  pool.requirements.push_back(
      In("node.kubernetes.io/instance-type", {"p4d.24xlarge", "g5.2xlarge"}));
  EXPECT_FALSE(Refusal(pool, Asks(8)));
  EXPECT_EQ(ObstacleOf(pool, Asks(16),
                       "one pod asks for 16 nvidia.com/gpu, the largest instance type that is "
                       "left, p4d.24xlarge, has 8"),
            PoolObstacle::kGpuCount);

  // Of the types that have the GPUs.
  kube::PodSpec efa = Asks(8);
  efa.requests.Set("vpc.amazonaws.com/efa", 32);
  EXPECT_EQ(ObstacleOf(pool, efa, "p4d.24xlarge, has 4"), PoolObstacle::kEfaCount);
  efa.requests.Set("vpc.amazonaws.com/efa", 4);
  EXPECT_FALSE(Refusal(pool, efa));

  kube::PodSpec large = Asks(8);
  large.requests.Set("cpu", 97'000);
  EXPECT_EQ(ObstacleOf(pool, large, "one pod asks for 97 cpu"), PoolObstacle::kSize);

  kube::PodSpec none = Asks(1);
  none.node_selector["node.kubernetes.io/instance-type"] = "g5.2xlarge";
  none.requests.Set("vpc.amazonaws.com/efa", 1);
  EXPECT_EQ(ObstacleOf(pool, none, "none of its instance types has any (g5.2xlarge)"),
            PoolObstacle::kNoEfa);

  kube::PodSpec other_type = Asks(1);
  other_type.node_selector["karpenter.k8s.aws/instance-family"] = "p5";
  EXPECT_EQ(ObstacleOf(pool, other_type, "no instance type meets both"),
            PoolObstacle::kInstanceType);
}

// A zone that the pool doesn't mention may be had, and so may types that nothing is known of.
TEST(PoolForecast, WhatAPoolLeavesOpenRulesNothingOut) {
  kube::PodSpec zoned = Asks(8);
  zoned.node_selector["topology.kubernetes.io/zone"] = "us-west-2a";
  EXPECT_FALSE(Refusal(Pool(), zoned));

  kube::NodePool pool = Pool();
  pool.limits.reset();
  pool.requirements.push_back(In("node.kubernetes.io/instance-type", {"p4d.24xlarge", "p9.huge"}));
  EXPECT_FALSE(Refusal(pool, Asks(16)));
  kube::NodePool foreign = Pool();
  foreign.limits.reset();
  foreign.node_class_group = "karpenter.kwok.sh";
  EXPECT_FALSE(Refusal(foreign, Asks(16)));
}

// Whichever term comes closest.
TEST(PoolForecast, OfAlternativesTheClosestIsTold) {
  kube::PodSpec spec = Asks(8);
  spec.affinity.required_node_terms = {{{In("team", {"web"})}, {}},
                                       {{In("karpenter.sh/capacity-type", {"spot"})}, {}}};
  EXPECT_EQ(ObstacleOf(Pool(), spec, "capacity-type=spot"), PoolObstacle::kCapacityType);
}

kube::NodePool WithClass(kube::NodePool pool, kube::NodeClass node_class) {
  pool.node_class_name = "efa";
  pool.node_class = std::make_shared<const kube::NodeClass>(std::move(node_class));
  return pool;
}

TEST(PoolForecast, NodesComeWhereItsClassHasSubnets) {
  kube::NodeClass node_class;
  node_class.zones = {"z1", "z2"};
  kube::NodePool pool = WithClass(Pool(), node_class);
  kube::PodSpec spec = Asks(8);
  spec.node_selector["topology.kubernetes.io/zone"] = "z1";
  EXPECT_FALSE(Refusal(pool, spec));
  spec.node_selector["topology.kubernetes.io/zone"] = "z3";
  EXPECT_EQ(ObstacleOf(pool, spec, "the subnets of its EC2NodeClass efa are in z1, z2"),
            PoolObstacle::kZone);
  pool.requirements.push_back(In("topology.kubernetes.io/zone", {"z2", "z3"}));
  EXPECT_EQ(ObstacleOf(pool, spec, "the subnets of"), PoolObstacle::kZone);
  spec.node_selector["topology.kubernetes.io/zone"] = "z1";
  EXPECT_TRUE(Refusal(pool, spec));
  spec.node_selector["topology.kubernetes.io/zone"] = "z2";
  EXPECT_FALSE(Refusal(pool, spec));
}

TEST(PoolForecast, AGangOnACapacityBlockIsToldItsEnd) {
  kube::NodeClass node_class;
  node_class.reservations = {{.id = "cr-1",
                              .instance_type = "p5.48xlarge",
                              .zone = "z1",
                              .is_block = true,
                              .end = absl::FromUnixSeconds(1'700'000'000)},
                             {.id = "cr-2",
                              .instance_type = "p5.48xlarge",
                              .zone = "z1",
                              .end = absl::FromUnixSeconds(1'700'000'000)}};
  const NodePools pools = {{"a", WithClass(Pool(), node_class)},
                           {"b", WithClass(Pool(), node_class)}};
  const auto node_of = [](const char* id) {
    kube::Node node;
    if (*id != 0) node.meta.labels[kube::kReservationIdLabel] = id;
    return node;
  };
  const kube::Node bought = node_of(""), block = node_of("cr-1"), kept = node_of("cr-2"),
                   other = node_of("cr-3");
  EXPECT_FALSE(IsReserved(bought));
  EXPECT_TRUE(IsReserved(other));
  EXPECT_EQ(BlocksEndText(pools, {&bought, &kept, &other}), "");
  EXPECT_EQ(
      BlocksEndText(pools, {&block, &bought, &block}),
      "; capacity block cr-1 of p5.48xlarge in z1 ends at 2023-11-14T22:13:20Z, and Karpenter "
      "takes its nodes back 40 min before: 2 members are on its nodes");
}

TEST(PoolForecast, OfReservedCapacityOnlyThatOfItsClassCounts) {
  kube::NodeClass::Reservation block{
      .id = "cr-1", .instance_type = "p5.48xlarge", .zone = "z1", .is_block = true, .end = {}};
  kube::NodePool pool = Pool();
  pool.requirements = {In("karpenter.sh/capacity-type", {"reserved"}),
                       In("node.kubernetes.io/instance-type", {"p5.48xlarge"})};
  const auto with = [&](std::vector<kube::NodeClass::Reservation> reservations) {
    kube::NodeClass node_class;
    node_class.reservations = std::move(reservations);
    return WithClass(pool, node_class);
  };
  EXPECT_FALSE(Refusal(pool, Asks(8)));  // its class isn't known
  EXPECT_FALSE(Refusal(with({block}), Asks(8)));
  EXPECT_EQ(
      ObstacleOf(with({}), Asks(8), "its EC2NodeClass efa has no capacity reservation for it"),
      PoolObstacle::kCapacityType);
  kube::NodeClass::Reservation other = block;
  other.instance_type = "p4d.24xlarge";
  EXPECT_TRUE(Refusal(with({other}), Asks(8)));

  block.expiring = true;
  block.end = absl::FromUnixSeconds(1'700'000'000);
  EXPECT_EQ(ObstacleOf(with({other, block}), Asks(8),
                       "capacity block cr-1 of p5.48xlarge in z1 ends at 2023-11-14T22:13:20Z, and "
                       "Karpenter takes its nodes back 40 min before"),
            PoolObstacle::kCapacityType);
  block.is_block = false;
  EXPECT_EQ(ObstacleOf(with({block}), Asks(8), "capacity reservation cr-1"),
            PoolObstacle::kCapacityType);

  // Where other capacity is allowed too, only who selects it is refused.
  pool.requirements[0] = In("karpenter.sh/capacity-type", {"on-demand", "reserved"});
  EXPECT_FALSE(Refusal(with({}), Asks(8)));
  kube::PodSpec spec = Asks(8);
  spec.node_selector["karpenter.sh/capacity-type"] = "reserved";
  EXPECT_TRUE(Refusal(with({}), spec));
}

TEST(PoolForecast, APoolWhoseClassIsNotReadySaysWhatThatLacks) {
  kube::NodeClass node_class;
  node_class.not_ready = "PlacementGroupReady: no placement group train";
  kube::NodePool pool = WithClass(Pool(), node_class);
  pool.ready = false;
  EXPECT_EQ(ObstacleOf(pool, Asks(8),
                       "isn't ready: its EC2NodeClass efa has PlacementGroupReady: no placement "
                       "group train"),
            PoolObstacle::kUnusable);
}

TEST(PoolForecast, RemainingLimitsNeverFallBelowZero) {
  kube::NodePool pool = Pool();
  EXPECT_EQ(RemainingLimits(pool), Resources({{"nvidia.com/gpu", 6}}));
  pool.usage.Set("nvidia.com/gpu", 20);
  EXPECT_EQ(RemainingLimits(pool), Resources({{"nvidia.com/gpu", 0}}));
  pool.limits.reset();
  EXPECT_TRUE(RemainingLimits(pool).empty());
}

}  // namespace
}  // namespace muster::cluster
