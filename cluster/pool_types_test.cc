#include "cluster/pool_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/test_objects.h"

namespace muster::cluster {
namespace {

using kube::SelectorOperator;
using test::In;
using test::MakePod;
using test::With;
using testing::ElementsAre;

std::vector<std::string> Names(const TypeSet& set) {
  std::vector<std::string> names;
  for (const InstanceType* type : set.known) names.push_back(type->name);
  return names;
}

TypeSet Types(const std::vector<kube::Requirement>& requirements, bool ec2 = true) {
  return TypesOf(requirements, ec2, InstanceTypes::BuiltIn());
}

TEST(PoolTypes, NamedTypesAreThoseAndNoOthers) {
  const TypeSet set = Types({In("node.kubernetes.io/instance-type", {"p4d.24xlarge", "g5.xlarge"}),
                             In("karpenter.k8s.aws/instance-category", {"p"})});
  EXPECT_THAT(Names(set), ElementsAre("p4d.24xlarge"));
  EXPECT_FALSE(set.unknown);
  EXPECT_FALSE(set.others);
}

TEST(PoolTypes, WhatTheTableDoesNotHaveMayHaveDevicesUnlessItIsKnownToHaveNone) {
  EXPECT_TRUE(Types({In("node.kubernetes.io/instance-type", {"p9.48xlarge"})}).unknown);
  EXPECT_TRUE(Types({In("node.kubernetes.io/instance-type", {"gpu-8"})}).unknown);
  const TypeSet plain = Types({In("node.kubernetes.io/instance-type", {"m7i.large"})});
  EXPECT_FALSE(plain.unknown);
  EXPECT_TRUE(plain.others);
}

TEST(PoolTypes, RequirementsOnDevicesLeaveOnlyTypesWithThem) {
  const TypeSet set = Types({In("karpenter.k8s.aws/instance-gpu-name", {"a100"}),
                             In("karpenter.k8s.aws/instance-family", {"p4d"})});
  EXPECT_THAT(Names(set), ElementsAre("p4d.24xlarge"));
  EXPECT_FALSE(set.others);
  const TypeSet many =
      Types({{"karpenter.k8s.aws/instance-gpu-count", SelectorOperator::kGt, {"7"}}});
  for (const InstanceType* type : many.known) EXPECT_GE(type->gpu, 8) << type->name;
  EXPECT_FALSE(many.known.empty());
}

TEST(PoolTypes, AnotherProvidersTypesAreKnownOnlyByName) {
  EXPECT_TRUE(Types({In("karpenter.sh/capacity-type", {"spot"})}, false).unknown);
  EXPECT_THAT(
      Names(Types({In("node.kubernetes.io/instance-type", {"p4d.24xlarge"})}, /*ec2=*/false)),
      ElementsAre("p4d.24xlarge"));
}

TEST(PoolTypes, ThePodsSelectorsNarrowThePoolsTypes) {
  kube::NodePool pool;
  pool.meta.name = "gpu";
  pool.requirements = {In("karpenter.k8s.aws/instance-family", {"g5", "p4d"})};
  auto types = [&](auto change) {
    return TypesOf(pool, *With(MakePod("p"), change).spec, InstanceTypes::BuiltIn());
  };
  EXPECT_THAT(Names(types([](auto& spec) {
                spec.node_selector["karpenter.k8s.aws/instance-gpu-count"] = "8";
              })),
              ElementsAre("g5.48xlarge", "p4d.24xlarge"));
  // Any one of the terms.
  EXPECT_THAT(Names(types([](auto& spec) {
                spec.affinity.required_node_terms = {
                    {{In("karpenter.k8s.aws/instance-size", {"xlarge"})}, {}},
                    {{In("karpenter.k8s.aws/instance-family", {"p4d"})}, {}}};
              })),
              ElementsAre("g5.xlarge", "p4d.24xlarge"));
  EXPECT_TRUE(types([](auto& spec) {
                spec.node_selector["karpenter.k8s.aws/instance-family"] = "p5";
              }).empty());
}

TEST(PoolTypes, AmountsAreInBaseUnits) {
  const InstanceType& p4d = *InstanceTypes::BuiltIn().Find("p4d.24xlarge");
  EXPECT_EQ(AmountOf(p4d, "nvidia.com/gpu"), 8);
  EXPECT_EQ(AmountOf(p4d, "vpc.amazonaws.com/efa"), 4);
  EXPECT_EQ(AmountOf(p4d, "cpu"), 96'000);
  EXPECT_EQ(AmountOf(p4d, "memory"), int64_t{1152} << 30);
  EXPECT_EQ(AmountOf(p4d, "example.com/fpga"), 0);
}

}  // namespace
}  // namespace muster::cluster
