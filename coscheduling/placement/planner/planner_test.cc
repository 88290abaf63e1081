#include <algorithm>
#include <string>
#include <vector>

#include "coscheduling/placement/planner/test_table.h"
#include "coscheduling/placement/planner/testing.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {
namespace {

using testing::AddNodes;
using testing::Bound;
using testing::ClaimWith;
using testing::GangWorld;
using testing::NameOfPlanCase;
using testing::NodeWith;
using testing::Occupy;
using testing::PlanCase;
using testing::PlanTable;
using testing::PodWith;
using testing::Shown;
using testing::SpecWith;
using testing::Spread;
using testing::Term;
using testing::WithAntiAffinity;
using testing::WithSpread;

TEST_P(PlanTable, Holds) {
  GangWorld world;
  GetParam().given(world);
  Plan plan = world.MakePlan();
  EXPECT_EQ(Shown(world.request(), plan), GetParam().plan);
  auto broken = world.FirstBroken(plan.placements);
  EXPECT_FALSE(broken) << broken->first << ": " << broken->second.detail;
}

kube::PodSpec Tolerating(kube::PodSpec spec, const std::string& key) {
  spec.tolerations.push_back({key, true, "", std::nullopt});
  return spec;
}

kube::Node NodeWithSevenOfEightGpus(const std::string& name) {
  kube::Node node = NodeWith(name, "a", 8);
  node.allocatable.Set("nvidia.com/gpu", 7);
  return node;
}

PLAN_TABLE(Zones,
           PlanCase{"one zone that holds all is taken before two that hold more",
                    [](GangWorld& world) {
                      AddNodes(world, {"a1"}, "a", 8);
                      AddNodes(world, {"b1", "b2"}, "b", 4);
                      AddNodes(world, {"c1"}, "c", 4);
                      Occupy(world, "a1", 4);
                      world.AddMembers("w", 4, SpecWith(2));
                    },
                    "b1 b1 b2 b2"},
           PlanCase{"of several zones that hold all the one with the fewest nodes is taken",
                    [](GangWorld& world) {
                      AddNodes(world, {"a1", "a2"}, "a", 4);
                      AddNodes(world, {"b1"}, "b", 8);
                      world.AddMembers("w", 4, SpecWith(2));
                    },
                    "b1 b1 b1 b1"},
           PlanCase{"several zones are used when no single one holds all",
                    [](GangWorld& world) {
                      AddNodes(world, {"a1"}, "a", 4);
                      AddNodes(world, {"b1"}, "b", 4);
                      world.AddMembers("w", 4, SpecWith(2));
                    },
                    "a1 a1 b1 b1"},
           PlanCase{"a surplus never draws the gang over zones",
                    [](GangWorld& world) {
                      AddNodes(world, {"a1"}, "a", 4);
                      AddNodes(world, {"b1"}, "b", 8);
                      Occupy(world, "b1", 2);
                      world.AddMembers("w", 4, SpecWith(2));
                      world.request().required = 3;
                    },
                    "b1 b1 b1 -"},
           PlanCase{"the zone where siblings stand comes first",
                    [](GangWorld& world) {
                      AddNodes(world, {"a1", "a2"}, "a", 8);
                      AddNodes(world, {"b1", "b2", "b3"}, "b", 4);
                      world.AddMembers("w", 2, SpecWith(4));
                      world.request().sibling_nodes = {"b3"};
                    },
                    "b1 b2"},
           PlanCase{"siblings in a full zone don't keep the gang waiting",
                    [](GangWorld& world) {
                      AddNodes(world, {"a1"}, "a", 8);
                      AddNodes(world, {"b1"}, "b", 8);
                      Occupy(world, "b1", 8);
                      world.AddMembers("w", 2, SpecWith(4));
                      world.request().sibling_nodes = {"b1"};
                    },
                    "a1 a1"},
           PlanCase{"nodes without a zone label count as one zone",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1", "n2"}, "", 2);
                      world.AddMembers("w", 2, SpecWith(2));
                    },
                    "n1 n2"});

PLAN_TABLE(Packing,
           PlanCase{"the fewest nodes are used",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1", "n2"}, "a", 2);
                      AddNodes(world, {"n3"}, "a", 4);
                      world.AddMembers("w", 4, SpecWith(1));
                    },
                    "n3 n3 n3 n3"},
           PlanCase{"among as few nodes those with the fewest GPUs left over",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1"}, "a", 8);
                      AddNodes(world, {"n2"}, "a", 4);
                      world.AddMembers("w", 2, SpecWith(2));
                    },
                    "n2 n2"},
           PlanCase{
               "two smaller nodes beat the largest and a rest when that leaves fewer GPUs over",
               [](GangWorld& world) {
                 AddNodes(world, {"n1"}, "a", 7);
                 AddNodes(world, {"n2"}, "a", 5);
                 AddNodes(world, {"n3"}, "a", 3);
                 world.AddMembers("w", 8, SpecWith(1));
               },
               "n2 n2 n2 n2 n2 n3 n3 n3"},
           PlanCase{"members without GPUs stay off GPU nodes",
                    [](GangWorld& world) {
                      AddNodes(world, {"gpu1"}, "a", 8);
                      AddNodes(world, {"plain"}, "a", 0);
                      world.AddMembers("w", 2, SpecWith(0));
                    },
                    "plain plain"},
           PlanCase{"what stands on a node is not available",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1", "n2"}, "a", 8);
                      Occupy(world, "n1", 1);
                      world.AddMembers("w", 1, SpecWith(8));
                    },
                    "n2"},
           PlanCase{"a master without GPUs shares a worker's node",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1", "n2", "n3"}, "a", 8);
                      world.AddMembers("master", 1, SpecWith(0));
                      world.AddMembers("worker", 2, SpecWith(8));
                    },
                    "n1 n1 n2"},
           PlanCase{"a large class isn't locked out by a small one",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1"}, "a", 8);
                      AddNodes(world, {"n2"}, "a", 4);
                      world.AddMembers("small", 2, SpecWith(2));
                      world.AddMembers("large", 1, SpecWith(8));
                    },
                    "n2 n2 n1"},
           PlanCase{"classes that fit few nodes don't lose them to classes that fit all",
                    [](GangWorld& world) {
                      kube::Node only = NodeWith("n1", "a", 8);
                      only.meta.labels["pool"] = "x";
                      world.Add(std::move(only));
                      AddNodes(world, {"n2"}, "a", 8);
                      kube::PodSpec picky = SpecWith(8);
                      picky.node_selector["pool"] = "x";
                      world.AddMembers("any", 1, SpecWith(8));
                      world.AddMembers("picky", 1, picky);
                    },
                    "n2 n1"},
           PlanCase{"resources in different proportions are packed across both",
                    [](GangWorld& world) {
                      world.Add(NodeWith("n1", "a", 4, 10));
                      world.Add(NodeWith("n2", "a", 4, 10));
                      world.AddMembers("gpu", 2, SpecWith(3, 2));
                      world.AddMembers("cpu", 2, SpecWith(1, 8));
                    },
                    "n1 n2 n2 n1"},
           PlanCase{"members with one host port each take a node of their own",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1", "n2", "n3"}, "a", 8);
                      kube::PodSpec spec = SpecWith(1);
                      spec.host_ports = {{"", "TCP", 29500}};
                      world.Add(Bound(PodWith("standing", spec), "n1"));
                      world.AddMembers("w", 2, spec);
                    },
                    "n2 n3"},
           PlanCase{
               "members with resource claims, which aren't counted, each take a node of their own",
               [](GangWorld& world) {
                 AddNodes(world, {"n1", "n2", "n3"}, "a", 8);
                 kube::PodSpec spec = SpecWith(1);
                 spec.uses_resource_claims = true;
                 world.Add(Bound(PodWith("standing", spec), "n1"));
                 world.AddMembers("w", 2, spec);
                 world.AddMembers("plain", 1, SpecWith(1));
               },
               "n1 n2 n1"},
           PlanCase{"preferences decide between nodes that are otherwise alike",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1"}, "a", 8);
                      kube::Node liked = NodeWith("n2", "a", 8);
                      liked.meta.labels["disk"] = "fast";
                      world.Add(std::move(liked));
                      kube::PodSpec spec = SpecWith(8);
                      spec.affinity.preferred_node_terms.push_back(
                          {10, {{{"disk", kube::SelectorOperator::kIn, {"fast"}}}, {}}});
                      world.AddMembers("w", 1, spec);
                    },
                    "n2"},
           PlanCase{"preferences give way to fewer GPUs left over",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1"}, "a", 4);
                      kube::Node liked = NodeWith("n2", "a", 8);
                      liked.meta.labels["disk"] = "fast";
                      world.Add(std::move(liked));
                      kube::PodSpec spec = SpecWith(4);
                      spec.affinity.preferred_node_terms.push_back(
                          {10, {{{"disk", kube::SelectorOperator::kIn, {"fast"}}}, {}}});
                      world.AddMembers("w", 1, spec);
                    },
                    "n1"},
           PlanCase{"a node that is preferred not to be used comes last among equals",
                    [](GangWorld& world) {
                      kube::Node disliked = NodeWith("n1", "a", 8);
                      disliked.taints.push_back({"soft", "", kube::TaintEffect::kPreferNoSchedule});
                      world.Add(std::move(disliked));
                      AddNodes(world, {"n2"}, "a", 8);
                      world.AddMembers("w", 1, SpecWith(8));
                    },
                    "n2"});

PLAN_TABLE(Order,
           PlanCase{"among equals names decide",
                    [](GangWorld& world) {
                      AddNodes(world, {"n3", "n1", "n2"}, "a", 8);
                      world.AddMembers("w", 2, SpecWith(8));
                    },
                    "n1 n2"},
           PlanCase{"neighbours in rank share nodes and go on to the next",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1", "n2"}, "a", 2);
                      world.AddMembers("w", 4, SpecWith(1));
                    },
                    "n1 n1 n2 n2"},
           PlanCase{"nodes behind one network switch are neighbours whatever their names",
                    [](GangWorld& world) {
                      for (const auto& [name, leaf] :
                           {std::pair("n1", "nn-2"), std::pair("n2", "nn-1"),
                            std::pair("n3", "nn-2"), std::pair("n4", "nn-1")}) {
                        kube::Node node = NodeWith(name, "a", 8);
                        node.meta.labels["topology.k8s.aws/network-node-layer-1"] = "nn-4";
                        node.meta.labels["topology.k8s.aws/network-node-layer-2"] = "nn-3";
                        node.meta.labels["topology.k8s.aws/network-node-layer-3"] = leaf;
                        world.Add(std::move(node));
                      }
                      world.AddMembers("w", 4, SpecWith(8));
                    },
                    "n2 n4 n1 n3"},
           PlanCase{"ranks of several classes follow one another along the nodes",
                    [](GangWorld& world) {
                      world.Add(NodeWith("n1", "a", 8, 3));
                      world.Add(NodeWith("n2", "a", 8, 5));
                      world.Add(NodeWith("n3", "a", 8, 3));
                      world.AddMembers("master", 1, SpecWith(0, 2));
                      world.AddMembers("worker", 3, SpecWith(8, 3));
                    },
                    "n2 n2 n3 n1"});

PLAN_TABLE(Surplus,
           PlanCase{"surplus members are placed if they fit",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1"}, "a", 4);
                      world.AddMembers("w", 4, SpecWith(1));
                      world.request().required = 2;
                    },
                    "n1 n1 n1 n1"},
           PlanCase{"the surplus that doesn't fit is left over, last in rank",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1"}, "a", 3);
                      world.AddMembers("w", 4, SpecWith(1));
                      world.request().required = 2;
                    },
                    "n1 n1 n1 -"},
           PlanCase{"a surplus planned by itself goes beside its siblings",
                    [](GangWorld& world) {
                      AddNodes(world, {"a1"}, "a", 8);
                      AddNodes(world, {"b1"}, "b", 8);
                      world.AddMembers("w", 2, SpecWith(1));
                      world.request().required = 0;
                      world.request().sibling_nodes = {"b1"};
                    },
                    "b1 b1"},
           PlanCase{"a surplus planned by itself goes elsewhere when its siblings' zone is full",
                    [](GangWorld& world) {
                      AddNodes(world, {"a1"}, "a", 8);
                      AddNodes(world, {"b1"}, "b", 8);
                      Occupy(world, "b1", 8);
                      world.AddMembers("w", 2, SpecWith(1));
                      world.request().required = 0;
                      world.request().sibling_nodes = {"b1"};
                    },
                    "a1 a1"},
           PlanCase{"a partial plan places as many as it can and isn't complete",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1", "n2", "n3"}, "a", 8);
                      world.AddMembers("w", 4, SpecWith(8));
                    },
                    "n1 n2 n3 - !"},
           PlanCase{"a partial plan spans zones if that places more",
                    [](GangWorld& world) {
                      AddNodes(world, {"a1", "a2"}, "a", 8);
                      AddNodes(world, {"b1"}, "b", 8);
                      world.AddMembers("w", 4, SpecWith(8));
                    },
                    "a1 a2 b1 - !"},
           PlanCase{"an empty gang is complete",
                    [](GangWorld& world) { AddNodes(world, {"n1"}, "a", 8); }, ""},
           PlanCase{"a member whose quantities can't be read is never placed",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1"}, "a", 8);
                      world.AddMembers("w", 1, SpecWith(1));
                      kube::Pod bad = PodWith("bad", SpecWith(1));
                      bad.spec_error =
                          "spec.containers[0].resources.requests.cpu: 99999999999E is too large";
                      world.AddMember(std::move(bad));
                    },
                    "n1 - !"});

PLAN_TABLE(Nodes,
           PlanCase{"taints, selectors and cordons are respected",
                    [](GangWorld& world) {
                      kube::Node tainted = NodeWith("n1", "a", 8);
                      tainted.taints.push_back({"team", "x", kube::TaintEffect::kNoSchedule});
                      world.Add(std::move(tainted));
                      kube::Node cordoned = NodeWith("n2", "a", 8);
                      cordoned.unschedulable = true;
                      world.Add(std::move(cordoned));
                      AddNodes(world, {"n3"}, "a", 8);
                      kube::Node fit = NodeWith("n4", "a", 8);
                      fit.meta.labels["pool"] = "x";
                      world.Add(std::move(fit));
                      kube::PodSpec spec = SpecWith(8);
                      spec.node_selector["pool"] = "x";
                      world.AddMembers("w", 1, spec);
                    },
                    "n4"},
           PlanCase{"tolerated taints are no obstacle",
                    [](GangWorld& world) {
                      kube::Node tainted = NodeWith("n1", "a", 8);
                      tainted.taints.push_back({"team", "x", kube::TaintEffect::kNoSchedule});
                      world.Add(std::move(tainted));
                      world.AddMembers("w", 1, Tolerating(SpecWith(8), "team"));
                    },
                    "n1"},
           PlanCase{"a node with seven of eight GPUs is used for who asks for seven",
                    [](GangWorld& world) {
                      world.Add(NodeWithSevenOfEightGpus("n1"));
                      world.AddMembers("w", 1, SpecWith(7));
                    },
                    "n1"},
           PlanCase{"a node with seven of eight GPUs isn't used for who takes whole nodes",
                    [](GangWorld& world) {
                      world.Add(NodeWithSevenOfEightGpus("n1"));
                      AddNodes(world, {"n2"}, "a", 8);
                      world.AddMembers("w", 2, SpecWith(8));
                    },
                    "n2 - !"},
           PlanCase{"excluded nodes are left out",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1", "n2"}, "a", 8);
                      world.AddMembers("w", 1, SpecWith(8));
                      world.request().excluded_nodes = {"n1"};
                    },
                    "n2"},
           PlanCase{"nodes that are coming aren't used unless asked for",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1"}, "a", 8);
                      world.Add(ClaimWith("c1", "a", 8));
                      world.AddMembers("w", 2, SpecWith(8));
                    },
                    "n1 - !"},
           PlanCase{"nodes that are coming complete a plan when asked for",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1"}, "a", 8);
                      world.Add(ClaimWith("c1", "a", 8));
                      world.AddMembers("w", 2, SpecWith(8));
                      world.request().include_virtual = true;
                    },
                    "n1 nodeclaim/c1"},
           PlanCase{"nodes that are there come before nodes that are coming",
                    [](GangWorld& world) {
                      AddNodes(world, {"z1"}, "a", 8);
                      world.Add(ClaimWith("c1", "a", 4));
                      world.AddMembers("w", 2, SpecWith(2));
                      world.request().include_virtual = true;
                    },
                    "z1 z1"},
           PlanCase{"all members go into one domain of the required topology key",
                    [](GangWorld& world) {
                      for (const auto& [name, rack, gpus] :
                           {std::tuple("n1", "r1", 4), std::tuple("n2", "r2", 2),
                            std::tuple("n3", "r2", 2), std::tuple("n4", "r1", 1)}) {
                        kube::Node node = NodeWith(name, "a", gpus);
                        node.meta.labels["topology.k8s.aws/network-node-layer-1"] = rack;
                        world.Add(std::move(node));
                      }
                      AddNodes(world, {"n5"}, "a", 8);  // has no rack
                      Occupy(world, "n1", 2);
                      world.AddMembers("w", 4, SpecWith(1));
                      world.request().required_topology_key =
                          "topology.k8s.aws/network-node-layer-1";
                    },
                    "n2 n2 n3 n3"},
           PlanCase{"no domain of the required topology key is enough",
                    [](GangWorld& world) {
                      AddNodes(world, {"n1", "n2"}, "a", 2);
                      world.AddMembers("w", 4, SpecWith(1));
                      world.request().required_topology_key = kube::kHostnameLabel;
                    },
                    "n1 n1 - - !"},
           PlanCase{"the required domain is where the siblings stand",
                    [](GangWorld& world) {
                      AddNodes(world, {"a1"}, "a", 8);
                      AddNodes(world, {"b1"}, "b", 2);
                      world.AddMembers("w", 2, SpecWith(2));
                      world.request().required_topology_key = kube::kZoneLabel;
                      world.request().sibling_nodes = {"b1"};
                    },
                    "b1 - !"});

// --- the same input, the same plan ---

TEST(Plan, DoesNotDependOnTheOrderInWhichTheClusterBecameKnown) {
  std::vector<std::string> plans;
  std::vector<int> order = {0, 1, 2, 3, 4, 5};
  for (int round = 0; round < 20; ++round) {
    GangWorld world;
    for (int i : order) {
      world.Add(NodeWith(fmt::format("n{}", i), i % 2 == 0 ? "a" : "b", 2 + i % 3));
      world.Add(Bound(
          PodWith(fmt::format("lonely-{}", i),
                  WithAntiAffinity(SpecWith(0), Term("role", "master", kube::kHostnameLabel))),
          fmt::format("n{}", i / 2)));
    }
    world.AddMembers("master", 1, SpecWith(0), {{"role", "master"}});
    world.AddMembers("worker", 4,
                     WithSpread(SpecWith(1), Spread("role", "worker", kube::kHostnameLabel, 2)),
                     {{"role", "worker"}});
    plans.push_back(Shown(world.request(), world.MakePlan()));
    std::next_permutation(order.begin(), order.end());
    std::rotate(order.begin(), order.begin() + round % 5, order.end());
  }
  EXPECT_THAT(plans, ::testing::Each(plans[0]));
}

TEST(Plan, PrefersNodesThatAreThereToThoseThatAreComing) {
  GangWorld world;
  world.Add(ClaimWith("c1", "a", 8));
  world.AddMembers("w", 1, SpecWith(8));
  world.request().include_virtual = true;
  EXPECT_EQ(Shown(world.request(), world.MakePlan()), "nodeclaim/c1");
  AddNodes(world, {"n1"}, "a", 8);
  EXPECT_EQ(Shown(world.request(), world.MakePlan()), "n1");
}

}  // namespace
}  // namespace muster::coscheduling
