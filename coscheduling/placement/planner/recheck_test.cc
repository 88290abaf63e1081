// A plan that is looked at again: which of its places no longer hold.
#include <string>

#include "coscheduling/placement/planner/planner.h"
#include "coscheduling/placement/planner/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {
namespace {

using testing::AddNodes;
using testing::Bound;
using testing::ClaimWith;
using testing::GangWorld;
using testing::NodeWith;
using testing::Occupy;
using testing::PodWith;
using testing::SpecWith;
using testing::Term;
using testing::WithAffinity;
using testing::WithAntiAffinity;

using Placements = cluster::PlaceMap;

std::string Broken(GangWorld& world, const Placements& placements) {
  auto broken = world.FirstBroken(placements);
  return broken ? broken->first + ": " + broken->second.detail : "";
}

TEST(FirstBroken, FindsNothingWhileNothingHasChanged) {
  GangWorld world;
  AddNodes(world, {"n1", "n2"}, "a", 8);
  world.AddMembers("w", 2, SpecWith(8));
  EXPECT_EQ(Broken(world, world.MakePlan().placements), "");
}

TEST(FirstBroken, NamesTheMemberWhoseNodeIsGone) {
  GangWorld world;
  AddNodes(world, {"n1", "n2"}, "a", 8);
  world.AddMembers("w", 2, SpecWith(8));
  Plan plan = world.MakePlan();
  world.snapshot().RemoveNode("n2");
  EXPECT_EQ(Broken(world, plan.placements), "uid-w-1: the node is gone");
}

TEST(FirstBroken, NamesTheMemberForWhichForeignPodsLeftNoRoom) {
  GangWorld world;
  AddNodes(world, {"n1"}, "a", 8);
  world.AddMembers("w", 2, SpecWith(4));
  Plan plan = world.MakePlan();
  Occupy(world, "n1", 1);
  EXPECT_EQ(Broken(world, plan.placements), "uid-w-1: nvidia.com/gpu: wants 4, 3 of 8 free");
}

TEST(FirstBroken, SeesTaintsAndMissingDevices) {
  GangWorld world;
  AddNodes(world, {"n1", "n2"}, "a", 8);
  world.AddMembers("w", 2, SpecWith(8));
  Plan plan = world.MakePlan();
  kube::Node tainted = NodeWith("n1", "a", 8);
  tainted.taints.push_back({"team", "x", kube::TaintEffect::kNoSchedule});
  world.Add(std::move(tainted));
  EXPECT_EQ(Broken(world, plan.placements), "uid-w-0: taint team=x:NoSchedule isn't tolerated");
  world.Add(NodeWith("n1", "a", 8));
  kube::Node partial = NodeWith("n2", "a", 8);
  partial.allocatable.Set("nvidia.com/gpu", 7);
  world.Add(std::move(partial));
  EXPECT_EQ(Broken(world, plan.placements), "uid-w-1: nvidia.com/gpu: 7 of 8 allocatable");
}

TEST(FirstBroken, SeesNodesThatHaveBeenExcludedOrAreOnlyComing) {
  GangWorld world;
  AddNodes(world, {"n1"}, "a", 8);
  world.Add(ClaimWith("c1", "a", 8));
  world.AddMembers("w", 2, SpecWith(8));
  world.request().include_virtual = true;
  Plan plan = world.MakePlan();
  EXPECT_EQ(Broken(world, plan.placements), "");
  world.request().include_virtual = false;
  EXPECT_THAT(Broken(world, plan.placements), ::testing::StartsWith("uid-w-1: launched"));
  world.request().include_virtual = true;
  world.request().excluded_nodes = {"n1"};
  EXPECT_EQ(Broken(world, plan.placements), "uid-w-0: left out for this gang");
}

TEST(FirstBroken, SeesHostPortsThatWereTaken) {
  GangWorld world;
  AddNodes(world, {"n1"}, "a", 8);
  kube::PodSpec spec = SpecWith(1);
  spec.host_ports = {{"", "TCP", 29500}};
  world.AddMembers("w", 1, spec);
  Plan plan = world.MakePlan();
  world.Add(Bound(PodWith("foreign", spec), "n1"));
  EXPECT_EQ(Broken(world, plan.placements),
            "uid-w-0: port 29500/TCP is used by pod default/foreign");
}

TEST(FirstBroken, SeesRelationsThatNoLongerHold) {
  GangWorld world;
  AddNodes(world, {"n1", "n2"}, "a", 8);
  world.AddMembers("w", 2, WithAntiAffinity(SpecWith(1), Term("job", "j", kube::kHostnameLabel)),
                   {{"job", "j"}});
  Plan plan = world.MakePlan();
  world.Add(Bound(PodWith("foreign", SpecWith(0), {{"job", "j"}}), "n2"));
  EXPECT_EQ(Broken(world, plan.placements),
            "uid-w-1: kubernetes.io/hostname=n2 holds 1 pods that its anti-affinity keeps away "
            "from");
}

TEST(FirstBroken, SeesThatADomainOfAffinityIsGone) {
  GangWorld world;
  AddNodes(world, {"n1"}, "a", 8);
  world.AddMembers("w", 2, WithAffinity(SpecWith(1), Term("job", "j", kube::kZoneLabel)),
                   {{"job", "j"}});
  const Placements placements = world.MakePlan().placements;
  EXPECT_EQ(Broken(world, placements), "");
  kube::Node node = NodeWith("n1", "a", 8);
  node.meta.labels.erase(kube::kZoneLabel);
  world.Add(std::move(node));
  EXPECT_EQ(Broken(world, placements),
            placements.begin()->first +
                ": label topology.kubernetes.io/zone of its pod affinity is missing");
}

TEST(FirstBroken, SeesMembersInTwoRequiredDomains) {
  GangWorld world;
  AddNodes(world, {"a1"}, "a", 8);
  AddNodes(world, {"b1"}, "b", 8);
  world.AddMembers("w", 2, SpecWith(8));
  world.request().required_topology_key = kube::kZoneLabel;
  EXPECT_EQ(Broken(world, {{"uid-w-0", "a1"}, {"uid-w-1", "b1"}}),
            "uid-w-1: topology.kubernetes.io/zone=b, the gang is beside a1");
}

TEST(FirstBroken, AssumesAllOfThePlanOrNothing) {
  GangWorld world;
  AddNodes(world, {"n1", "n2"}, "a", 8);
  world.AddMembers("w", 2, SpecWith(8));
  const Placements placements = world.MakePlan().placements;
  const auto assumed_on = [&](const std::string& uid) {
    const cluster::NodeInfo* info = world.snapshot().FindNodeOfPod(uid);
    return info == nullptr ? "" : info->name();
  };
  EXPECT_FALSE(Planner().FirstBroken(&world.snapshot(), world.request(), placements));
  for (const auto& [uid, node] : placements) EXPECT_EQ(assumed_on(uid), node);
  for (const auto& [uid, node] : placements) world.snapshot().Forget(uid);
  Occupy(world, placements.at("uid-w-1"), 1);
  EXPECT_TRUE(Planner().FirstBroken(&world.snapshot(), world.request(), placements));
  for (const auto& [uid, node] : placements) EXPECT_EQ(assumed_on(uid), "");
}

TEST(FirstBroken, LeavesOutMembersWithoutAPlacement) {
  GangWorld world;
  AddNodes(world, {"n1"}, "a", 8);
  world.AddMembers("w", 2, SpecWith(8));
  EXPECT_EQ(Broken(world, {{"uid-w-1", "n1"}}), "");
}

}  // namespace
}  // namespace muster::coscheduling
