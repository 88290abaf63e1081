// Why a plan isn't complete.
#include <string>
#include <vector>

#include "coscheduling/placement/planner/planner.h"
#include "coscheduling/placement/planner/testing.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {
namespace {

using testing::AddNodes;
using testing::Bound;
using testing::GangWorld;
using testing::NodeWith;
using testing::Occupy;
using testing::PodWith;
using testing::SpecWith;
using testing::Term;
using testing::WithAffinity;

std::vector<std::string> Causes(const Plan& plan) {
  std::vector<std::string> causes;
  for (const auto& cause : plan.shortfall.causes) {
    causes.push_back(fmt::format("{}x {}", cause.nodes, cause.example));
  }
  return causes;
}

TEST(PlanShortfall, CountsNodesPerCauseMostFirstWithAnExampleInNumbers) {
  GangWorld world;
  AddNodes(world, {"n1", "n2"}, "a", 4);
  for (const char* name : {"t1", "t2", "t3"}) {
    kube::Node tainted = NodeWith(name, "a", 8);
    tainted.taints.push_back({"team", "x", kube::TaintEffect::kNoSchedule});
    world.Add(std::move(tainted));
  }
  kube::Node partial = NodeWith("p1", "a", 8);
  partial.allocatable.Set("nvidia.com/gpu", 7);
  world.Add(std::move(partial));
  Occupy(world, "n1", 1);
  AddNodes(world, {"x1"}, "a", 8);
  world.request().excluded_nodes = {"x1"};
  world.AddMembers("w", 1, SpecWith(8));
  Plan plan = world.MakePlan();
  EXPECT_FALSE(plan.complete);
  EXPECT_EQ(plan.shortfall.placeable, 0u);
  EXPECT_THAT(Causes(plan), ::testing::ElementsAre("3x t1: taint team=x:NoSchedule isn't tolerated",
                                                   "2x n1: nvidia.com/gpu: wants 8, 3 of 4 free",
                                                   "1x p1: nvidia.com/gpu: 7 of 8 allocatable",
                                                   "1x x1: left out for this gang"));
}

TEST(PlanShortfall, NodesFilledByThePlanCountTooButAreNoExampleIfThereIsAnother) {
  GangWorld world;
  AddNodes(world, {"n1", "n2"}, "a", 8);
  AddNodes(world, {"n3"}, "a", 4);
  world.AddMembers("w", 3, SpecWith(8));
  Plan plan = world.MakePlan();
  EXPECT_EQ(plan.shortfall.placeable, 2u);
  EXPECT_THAT(Causes(plan), ::testing::ElementsAre("3x n3: nvidia.com/gpu: wants 8, 4 of 4 free"));
}

TEST(PlanShortfall, NamesTheHostThatCannotHoldAllMembersThatMustShareOne) {
  GangWorld world;
  AddNodes(world, {"n1", "n2"}, "a", 4);
  world.AddMembers("w", 4, WithAffinity(SpecWith(2), Term("job", "j", kube::kHostnameLabel)),
                   {{"job", "j"}});
  EXPECT_THAT(Causes(world.MakePlan()),
              ::testing::ElementsAre(
                  "1x n1: nvidia.com/gpu: wants 2, 0 of 4 free",
                  "1x n2: no pod that its affinity asks for in kubernetes.io/hostname=n2"));
}

TEST(PlanShortfall, NamesTheDomainsThatAreTooSmall) {
  GangWorld world;
  AddNodes(world, {"a1"}, "a", 2);
  AddNodes(world, {"b1"}, "b", 2);
  AddNodes(world, {"n1"}, "", 8);
  world.AddMembers("w", 3, SpecWith(1));
  world.request().required_topology_key = kube::kZoneLabel;
  EXPECT_THAT(
      Causes(world.MakePlan()),
      ::testing::ElementsAre("2x b1: topology.kubernetes.io/zone=b can't hold 3 members together",
                             "1x n1: label topology.kubernetes.io/zone is missing"));
}

TEST(PlanShortfall, NamesTheSameOfSeveralAntiAffinitiesEachTime) {
  for (int round = 0; round < 20; ++round) {
    GangWorld world;
    AddNodes(world, {"n1"}, "a", 8);
    kube::PodSpec by_zone = SpecWith(0);
    by_zone.affinity.required_pod_anti_affinity = {Term("job", "j", kube::kZoneLabel)};
    kube::PodSpec by_host = SpecWith(0);
    by_host.affinity.required_pod_anti_affinity = {Term("job", "j", kube::kHostnameLabel)};
    world.Add(Bound(PodWith("first", by_zone), "n1"));
    world.Add(Bound(PodWith("second", by_host), "n1"));
    world.AddMembers("w", 1, SpecWith(1), {{"job", "j"}});
    EXPECT_THAT(Causes(world.MakePlan()),
                ::testing::ElementsAre("1x n1: topology.kubernetes.io/zone=a holds 1 pods whose "
                                       "anti-affinity keeps it away"));
  }
}

TEST(PlanShortfall, IsEmptyForACompletePlan) {
  GangWorld world;
  AddNodes(world, {"n1"}, "a", 8);
  world.AddMembers("w", 2, SpecWith(4));
  EXPECT_TRUE(world.MakePlan().shortfall.causes.empty());
}

}  // namespace
}  // namespace muster::coscheduling
