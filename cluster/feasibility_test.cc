#include "cluster/feasibility.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/test_objects.h"

namespace muster::cluster {
namespace {

using test::In;
using test::Labelled;
using test::MakeNode;
using test::MakePod;
using test::Resources;
using test::With;
using testing::HasSubstr;
using Verdict = Feasibility::Verdict;

kube::NodePool Pool(const std::string& name, std::vector<std::string> types) {
  kube::NodePool pool;
  pool.meta.name = name;
  pool.requirements = {In("node.kubernetes.io/instance-type", std::move(types))};
  return pool;
}

NodePools Pools(std::vector<kube::NodePool> list) {
  NodePools pools;
  for (kube::NodePool& pool : list) pools.emplace(pool.meta.name, pool);
  return pools;
}

Demand Pods(int64_t count, int64_t gpus) {
  return {MakePod("p", {{"nvidia.com/gpu", gpus}}).spec, count, 0, ""};
}

Feasibility JudgeWhole(const Demand& demand, const NodePools& pools,
                       const Snapshot& snapshot = {}) {
  return JudgeFeasibility(demand, pools, PoolLimits::kWhole, snapshot, InstanceTypes::BuiltIn());
}

TEST(Feasibility, OnePoolThatCanIsEnough) {
  const NodePools pools = Pools({Pool("cpu", {"m7i.large"}), Pool("gpu", {"p4d.24xlarge"})});
  const Feasibility found = JudgeWhole(Pods(4, 8), pools);
  EXPECT_EQ(found.verdict, Verdict::kFeasible);
  ASSERT_EQ(found.pools.size(), 2);
  EXPECT_TRUE(found.pools[0].refusal);
  EXPECT_FALSE(found.pools[1].refusal);
  EXPECT_EQ(found.pools[1].pods, 4);
}

TEST(Feasibility, TheReasonIsThatOfThePoolThatCameClosest) {
  const NodePools pools = Pools({Pool("cpu", {"m7i.large"}), Pool("gpu", {"p4d.24xlarge"})});
  const Feasibility found = JudgeWhole(Pods(4, 16), pools);
  EXPECT_EQ(found.verdict, Verdict::kInfeasible);
  EXPECT_EQ(found.refusal->obstacle, PoolObstacle::kGpuCount);
  EXPECT_THAT(found.refusal->why, HasSubstr("no NodePool can make a node for 4 pods: "));
  EXPECT_THAT(found.refusal->why, HasSubstr("p4d.24xlarge, has 8"));
  EXPECT_FALSE(found.refusal->fix.empty());
}

TEST(Feasibility, LimitsBelowTheGangAreTold) {
  kube::NodePool pool = Pool("gpu", {"p4d.24xlarge"});
  pool.limits = Resources({{"nvidia.com/gpu", 24}});
  const Feasibility found = JudgeWhole(Pods(4, 8), Pools({pool}));
  EXPECT_EQ(found.verdict, Verdict::kInfeasible);
  EXPECT_EQ(found.refusal->obstacle, PoolObstacle::kLimit);
  EXPECT_THAT(found.refusal->why, HasSubstr("NodePool gpu can make nodes for 3"));
  EXPECT_EQ(JudgeWhole(Pods(3, 8), Pools({pool})).verdict, Verdict::kFeasible);

  // What stands now goes again, so it counts against what remains only.
  pool.usage = Resources({{"nvidia.com/gpu", 16}});
  EXPECT_EQ(JudgeWhole(Pods(3, 8), Pools({pool})).verdict, Verdict::kFeasible);
  EXPECT_EQ(JudgeFeasibility(Pods(3, 8), Pools({pool}), PoolLimits::kRemaining, {},
                             InstanceTypes::BuiltIn())
                .refusal->obstacle,
            PoolObstacle::kLimit);
}

// Of which each holds as many pods as the largest type that is left.
TEST(Feasibility, NodesThatAPoolMayHaveBoundItsPods) {
  kube::NodePool pool = Pool("gpu", {"p4d.24xlarge", "g5.xlarge"});
  pool.limits = Resources({{"nodes", 2}});
  EXPECT_EQ(JudgeWhole(Pods(4, 4), Pools({pool})).verdict, Verdict::kFeasible);
  const Feasibility found = JudgeWhole(Pods(5, 4), Pools({pool}));
  EXPECT_EQ(found.verdict, Verdict::kInfeasible);
  EXPECT_EQ(found.refusal->obstacle, PoolObstacle::kLimit);
  EXPECT_THAT(found.refusal->why, HasSubstr("NodePool gpu can make nodes for 4 (nodes=2)"));

  pool.usage = Resources({{"nodes", 1}});
  EXPECT_EQ(JudgeFeasibility(Pods(4, 4), Pools({pool}), PoolLimits::kRemaining, {},
                             InstanceTypes::BuiltIn())
                .refusal->obstacle,
            PoolObstacle::kLimit);

  pool.limits = Resources({{"nodes", 0}});
  const Feasibility none = JudgeWhole(Pods(1, 4), Pools({pool}));
  EXPECT_EQ(none.verdict, Verdict::kInfeasible);
  EXPECT_THAT(none.refusal->why, HasSubstr("its limit is 0 nodes"));

  // What the table doesn't know may hold any number of them.
  pool.requirements = {In("node.kubernetes.io/instance-type", {"new.large"})};
  pool.limits = Resources({{"nodes", 1}});
  EXPECT_EQ(JudgeWhole(Pods(5, 4), Pools({pool})).verdict, Verdict::kFeasible);
}

TEST(Feasibility, NoPodMakesAStaticPoolBuyANode) {
  kube::NodePool pool = Pool("gpu", {"p4d.24xlarge"});
  pool.is_static = true;
  const Feasibility found = JudgeWhole(Pods(2, 8), Pools({pool}));
  EXPECT_EQ(found.verdict, Verdict::kUnknown);  // it may be given more nodes
  EXPECT_EQ(found.refusal->obstacle, PoolObstacle::kUnusable);
  EXPECT_THAT(found.refusal->why, HasSubstr("is static (spec.replicas)"));
}

TEST(Feasibility, NodesThatExistCountAsIfTheyWereEmpty) {
  const NodePools pools = Pools({Pool("gpu", {"g5.xlarge"})});
  Snapshot snapshot;
  for (int i = 0; i < 4; ++i) {
    kube::Node node = MakeNode("n" + std::to_string(i));
    node.meta.labels["karpenter.sh/nodepool"] = "old";
    node.meta.labels["karpenter.sh/registered"] = "true";
    node.meta.labels["karpenter.sh/initialized"] = "true";
    snapshot.Upsert(std::move(node));
  }
  EXPECT_EQ(JudgeWhole(Pods(4, 8), pools, snapshot).verdict, Verdict::kFeasible);
  const Feasibility found = JudgeWhole(Pods(5, 8), pools, snapshot);
  EXPECT_EQ(found.verdict, Verdict::kInfeasible);
  EXPECT_EQ(found.held, 4);
  EXPECT_THAT(found.refusal->why, HasSubstr("the nodes that exist can hold 4"));
}

// Whoever made such nodes may make more of them.
TEST(Feasibility, NodesOfAnotherAutoscalerMakeItUnknown) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("n"));
  const Feasibility found = JudgeWhole(Pods(2, 8), Pools({Pool("gpu", {"g5.xlarge"})}), snapshot);
  EXPECT_EQ(found.verdict, Verdict::kUnknown);
  EXPECT_EQ(found.refusal->obstacle, PoolObstacle::kGpuCount);
}

TEST(Feasibility, WhatIsNotKnownIsNotCertain) {
  EXPECT_EQ(JudgeWhole(Pods(2, 8), {}).verdict, Verdict::kUnknown);
  EXPECT_FALSE(JudgeWhole(Pods(2, 8), {}).refusal);
  kube::NodePool ill = Pool("gpu", {"p4d.24xlarge"});
  ill.ready = false;
  const Feasibility found = JudgeWhole(Pods(2, 8), Pools({ill}));
  EXPECT_EQ(found.verdict, Verdict::kUnknown);
  EXPECT_EQ(found.refusal->obstacle, PoolObstacle::kUnusable);
}

// The workshop's job: every pod wants to be where the others are, on nodes with one GPU.
TEST(Feasibility, PodsThatMustShareANodeAskForTheirSum) {
  auto together = [](auto& spec) {
    kube::PodAffinityTerm term;
    term.selector = kube::LabelSelector{{In("app", {"pytorch-dist-job"})}};
    term.topology_key = "kubernetes.io/hostname";
    spec.affinity.required_pod_affinity = {term};
  };
  std::vector<kube::Pod> pods;
  for (int i = 0; i < 4; ++i) {
    pods.push_back(
        Labelled(With(MakePod("p" + std::to_string(i), {{"nvidia.com/gpu", 1}}), together), "app",
                 "pytorch-dist-job"));
    pods.back().spec = pods.front().spec;
  }
  const std::vector<const kube::Pod*> members = {&pods[0], &pods[1], &pods[2], &pods[3]};
  const Snapshot snapshot;
  const std::vector<Demand> demands = DemandsOf(snapshot, members, 4);
  ASSERT_EQ(demands.size(), 2);
  EXPECT_EQ(demands[0].count, 4);
  EXPECT_EQ(demands[1].pods_on_one_node, 4);
  EXPECT_EQ(demands[1].spec->requests.Get("nvidia.com/gpu"), 4);

  const NodePools small = Pools({Pool("gpu", {"g5.2xlarge"})});
  EXPECT_EQ(JudgeWhole(demands[0], small).verdict, Verdict::kFeasible);
  const Feasibility found = JudgeWhole(demands[1], small);
  EXPECT_EQ(found.verdict, Verdict::kInfeasible);
  EXPECT_EQ(found.refusal->obstacle, PoolObstacle::kOneNode);
  EXPECT_THAT(found.refusal->why,
              HasSubstr("required podAffinity on kubernetes.io/hostname puts 4 pods on one node"));
  EXPECT_THAT(found.refusal->why, HasSubstr("g5.2xlarge, has 1"));
  EXPECT_EQ(JudgeWhole(demands[1], Pools({Pool("gpu", {"g5.12xlarge"})})).verdict,
            Verdict::kFeasible);
}

// What a gang needs to start is asked for, and what is drawn to other pods is no sum of its own.
TEST(Feasibility, OnlyWhatIsRequiredIsAskedFor) {
  const kube::Pod a = MakePod("a", {{"nvidia.com/gpu", 1}});
  kube::Pod b = MakePod("b");
  b.spec = a.spec;
  const kube::Pod launcher = MakePod("c", {{"cpu", 1000}});
  const Snapshot snapshot;
  const std::vector<Demand> demands = DemandsOf(snapshot, {&launcher, &a, &b}, 2);
  ASSERT_EQ(demands.size(), 2);
  EXPECT_EQ(demands[0].count, 1);
  EXPECT_EQ(demands[1].count, 1);
}

}  // namespace
}  // namespace muster::cluster
