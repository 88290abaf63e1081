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
using testing::Optional;

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

TEST(PoolForecast, APoolCanHoldWhatItSaysNothingAgainst) {
  EXPECT_EQ(WhyPoolCannotHold(Pool(), Asks(8)), std::nullopt);
}

TEST(PoolForecast, TheFirstThingThatRulesItOutIsNamed) {
  kube::PodSpec intolerant = Asks(8);
  intolerant.tolerations.clear();
  EXPECT_THAT(WhyPoolCannotHold(Pool(), intolerant), Optional(HasSubstr("nvidia.com/gpu")));

  kube::PodSpec elsewhere = Asks(8);
  elsewhere.node_selector["karpenter.sh/nodepool"] = "cpu";
  EXPECT_THAT(WhyPoolCannotHold(Pool(), elsewhere), Optional(HasSubstr("nodeSelector")));

  kube::PodSpec spot = Asks(8);
  spot.node_selector["karpenter.sh/capacity-type"] = "spot";
  EXPECT_THAT(WhyPoolCannotHold(Pool(), spot), Optional(HasSubstr("nodeSelector")));

  EXPECT_THAT(WhyPoolCannotHold(Pool(), Asks(32)), Optional(HasSubstr("limited to 16")));

  kube::NodePool ill = Pool();
  ill.ready = false;
  EXPECT_THAT(WhyPoolCannotHold(ill, Asks(8)), Optional(HasSubstr("isn't ready")));
}

// Which instance types a pool may take isn't known here: a zone that it doesn't mention may be had.
TEST(PoolForecast, WhatAPoolLeavesOpenRulesNothingOut) {
  kube::PodSpec zoned = Asks(8);
  zoned.node_selector["topology.kubernetes.io/zone"] = "us-west-2a";
  EXPECT_EQ(WhyPoolCannotHold(Pool(), zoned), std::nullopt);
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
