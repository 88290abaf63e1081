#include "coscheduling/planner.h"

#include <algorithm>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "coscheduling/planner_testing.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {
namespace {

using testing::Bound;
using testing::ClaimWith;
using testing::GangWorld;
using testing::NodeWith;
using testing::PodWith;
using testing::SpecWith;
using testing::Spread;
using testing::Term;

// --- what a plan looks like ---

// The node of each member in rank order, "-" for those left over, then "!" unless complete.
std::string Shown(const PlanRequest& request, const Plan& plan) {
  std::string text;
  for (const kube::Pod* member : request.members) {
    auto it = plan.placements.find(member->meta.uid);
    if (!text.empty()) text += ' ';
    text += it == plan.placements.end() ? "-" : it->second;
  }
  return plan.complete ? text : text + " !";
}

struct Case {
  std::string name;
  std::function<void(GangWorld&)> given;
  std::string plan;
};

void PrintTo(const Case& test, std::ostream* os) { *os << test.name; }

class PlanTable : public ::testing::TestWithParam<Case> {};

TEST_P(PlanTable, Holds) {
  GangWorld world;
  GetParam().given(world);
  Plan plan = world.MakePlan();
  EXPECT_EQ(Shown(world.request(), plan), GetParam().plan);
  auto broken = FirstBroken(world.snapshot(), world.request(), plan.placements);
  EXPECT_FALSE(broken) << broken->first << ": " << broken->second.detail;
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  std::string name;
  bool upper = true;
  for (char c : info.param.name) {
    if (std::isalnum(static_cast<unsigned char>(c))) name += upper ? std::toupper(c) : c;
    upper = !std::isalnum(static_cast<unsigned char>(c));
  }
  return name;
}

#define PLAN_TABLE(table, ...) \
  INSTANTIATE_TEST_SUITE_P(table, PlanTable, ::testing::Values(__VA_ARGS__), CaseName)

void AddNodes(GangWorld& world, std::initializer_list<const char*> names, const std::string& zone,
              int64_t gpus) {
  for (const char* name : names) world.Add(NodeWith(name, zone, gpus));
}

// A standing pod that takes GPUs.
void Occupy(GangWorld& world, const std::string& node, int64_t gpus) {
  world.Add(Bound(PodWith("on-" + node, SpecWith(gpus)), node));
}

kube::PodSpec Tolerating(kube::PodSpec spec, const std::string& key) {
  spec.tolerations.push_back({key, true, "", std::nullopt});
  return spec;
}

PLAN_TABLE(Zones,
           Case{"one zone that holds all is taken before two that hold more",
                [](GangWorld& world) {
                  AddNodes(world, {"a1"}, "a", 8);
                  AddNodes(world, {"b1", "b2"}, "b", 4);
                  AddNodes(world, {"c1"}, "c", 4);
                  Occupy(world, "a1", 4);
                  world.AddMembers("w", 4, SpecWith(2));
                },
                "b1 b1 b2 b2"},
           Case{"of several zones that hold all the one with the fewest nodes is taken",
                [](GangWorld& world) {
                  AddNodes(world, {"a1", "a2"}, "a", 4);
                  AddNodes(world, {"b1"}, "b", 8);
                  world.AddMembers("w", 4, SpecWith(2));
                },
                "b1 b1 b1 b1"},
           Case{"several zones are used when no single one holds all",
                [](GangWorld& world) {
                  AddNodes(world, {"a1"}, "a", 4);
                  AddNodes(world, {"b1"}, "b", 4);
                  world.AddMembers("w", 4, SpecWith(2));
                },
                "a1 a1 b1 b1"},
           Case{"a surplus never draws the gang over zones",
                [](GangWorld& world) {
                  AddNodes(world, {"a1"}, "a", 4);
                  AddNodes(world, {"b1"}, "b", 8);
                  Occupy(world, "b1", 2);
                  world.AddMembers("w", 4, SpecWith(2));
                  world.request().required = 3;
                },
                "b1 b1 b1 -"},
           Case{"the zone where siblings stand comes first",
                [](GangWorld& world) {
                  AddNodes(world, {"a1", "a2"}, "a", 8);
                  AddNodes(world, {"b1", "b2", "b3"}, "b", 4);
                  world.AddMembers("w", 2, SpecWith(4));
                  world.request().sibling_nodes = {"b3"};
                },
                "b1 b2"},
           Case{"siblings in a full zone don't keep the gang waiting",
                [](GangWorld& world) {
                  AddNodes(world, {"a1"}, "a", 8);
                  AddNodes(world, {"b1"}, "b", 8);
                  Occupy(world, "b1", 8);
                  world.AddMembers("w", 2, SpecWith(4));
                  world.request().sibling_nodes = {"b1"};
                },
                "a1 a1"},
           Case{"nodes without a zone label count as one zone",
                [](GangWorld& world) {
                  AddNodes(world, {"n1", "n2"}, "", 2);
                  world.AddMembers("w", 2, SpecWith(2));
                },
                "n1 n2"});

PLAN_TABLE(Packing,
           Case{"the fewest nodes are used",
                [](GangWorld& world) {
                  AddNodes(world, {"n1", "n2"}, "a", 2);
                  AddNodes(world, {"n3"}, "a", 4);
                  world.AddMembers("w", 4, SpecWith(1));
                },
                "n3 n3 n3 n3"},
           Case{"among as few nodes those with the fewest GPUs left over",
                [](GangWorld& world) {
                  AddNodes(world, {"n1"}, "a", 8);
                  AddNodes(world, {"n2"}, "a", 4);
                  world.AddMembers("w", 2, SpecWith(2));
                },
                "n2 n2"},
           Case{"two smaller nodes beat the largest and a rest when that leaves fewer GPUs over",
                [](GangWorld& world) {
                  AddNodes(world, {"n1"}, "a", 7);
                  AddNodes(world, {"n2"}, "a", 5);
                  AddNodes(world, {"n3"}, "a", 3);
                  world.AddMembers("w", 8, SpecWith(1));
                },
                "n2 n2 n2 n2 n2 n3 n3 n3"},
           Case{"members without GPUs stay off GPU nodes",
                [](GangWorld& world) {
                  AddNodes(world, {"gpu1"}, "a", 8);
                  AddNodes(world, {"plain"}, "a", 0);
                  world.AddMembers("w", 2, SpecWith(0));
                },
                "plain plain"},
           Case{"what stands on a node is not available",
                [](GangWorld& world) {
                  AddNodes(world, {"n1", "n2"}, "a", 8);
                  Occupy(world, "n1", 1);
                  world.AddMembers("w", 1, SpecWith(8));
                },
                "n2"},
           Case{"a master without GPUs shares a worker's node",
                [](GangWorld& world) {
                  AddNodes(world, {"n1", "n2", "n3"}, "a", 8);
                  world.AddMembers("master", 1, SpecWith(0));
                  world.AddMembers("worker", 2, SpecWith(8));
                },
                "n1 n1 n2"},
           Case{"a large class isn't locked out by a small one",
                [](GangWorld& world) {
                  AddNodes(world, {"n1"}, "a", 8);
                  AddNodes(world, {"n2"}, "a", 4);
                  world.AddMembers("small", 2, SpecWith(2));
                  world.AddMembers("large", 1, SpecWith(8));
                },
                "n2 n2 n1"},
           Case{"classes that fit few nodes don't lose them to classes that fit all",
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
           Case{"resources in different proportions are packed across both",
                [](GangWorld& world) {
                  world.Add(NodeWith("n1", "a", 4, 10));
                  world.Add(NodeWith("n2", "a", 4, 10));
                  world.AddMembers("gpu", 2, SpecWith(3, 2));
                  world.AddMembers("cpu", 2, SpecWith(1, 8));
                },
                "n1 n2 n2 n1"},
           Case{"members with one host port each take a node of their own",
                [](GangWorld& world) {
                  AddNodes(world, {"n1", "n2", "n3"}, "a", 8);
                  kube::PodSpec spec = SpecWith(1);
                  spec.host_ports = {{"", "TCP", 29500}};
                  world.Add(Bound(PodWith("standing", spec), "n1"));
                  world.AddMembers("w", 2, spec);
                },
                "n2 n3"},
           Case{"preferences decide between nodes that are otherwise alike",
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
           Case{"preferences give way to fewer GPUs left over",
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
           Case{"a node that is preferred not to be used comes last among equals",
                [](GangWorld& world) {
                  kube::Node disliked = NodeWith("n1", "a", 8);
                  disliked.taints.push_back({"soft", "", kube::TaintEffect::kPreferNoSchedule});
                  world.Add(std::move(disliked));
                  AddNodes(world, {"n2"}, "a", 8);
                  world.AddMembers("w", 1, SpecWith(8));
                },
                "n2"});

PLAN_TABLE(Order,
           Case{"among equals names decide",
                [](GangWorld& world) {
                  AddNodes(world, {"n3", "n1", "n2"}, "a", 8);
                  world.AddMembers("w", 2, SpecWith(8));
                },
                "n1 n2"},
           Case{"neighbours in rank share nodes and go on to the next",
                [](GangWorld& world) {
                  AddNodes(world, {"n1", "n2"}, "a", 2);
                  world.AddMembers("w", 4, SpecWith(1));
                },
                "n1 n1 n2 n2"},
           Case{"nodes behind one network switch are neighbours whatever their names",
                [](GangWorld& world) {
                  for (const auto& [name, leaf] :
                       {std::pair("n1", "nn-2"), std::pair("n2", "nn-1"), std::pair("n3", "nn-2"),
                        std::pair("n4", "nn-1")}) {
                    kube::Node node = NodeWith(name, "a", 8);
                    node.meta.labels["topology.k8s.aws/network-node-layer-1"] = "nn-4";
                    node.meta.labels["topology.k8s.aws/network-node-layer-2"] = "nn-3";
                    node.meta.labels["topology.k8s.aws/network-node-layer-3"] = leaf;
                    world.Add(std::move(node));
                  }
                  world.AddMembers("w", 4, SpecWith(8));
                },
                "n2 n4 n1 n3"},
           Case{"ranks of several classes follow one another along the nodes",
                [](GangWorld& world) {
                  world.Add(NodeWith("n1", "a", 8, 3));
                  world.Add(NodeWith("n2", "a", 8, 5));
                  world.Add(NodeWith("n3", "a", 8, 3));
                  world.AddMembers("master", 1, SpecWith(0, 2));
                  world.AddMembers("worker", 3, SpecWith(8, 3));
                },
                "n2 n2 n3 n1"});

PLAN_TABLE(Surplus,
           Case{"surplus members are placed if they fit",
                [](GangWorld& world) {
                  AddNodes(world, {"n1"}, "a", 4);
                  world.AddMembers("w", 4, SpecWith(1));
                  world.request().required = 2;
                },
                "n1 n1 n1 n1"},
           Case{"the surplus that doesn't fit is left over, last in rank",
                [](GangWorld& world) {
                  AddNodes(world, {"n1"}, "a", 3);
                  world.AddMembers("w", 4, SpecWith(1));
                  world.request().required = 2;
                },
                "n1 n1 n1 -"},
           Case{"a surplus planned by itself goes beside its siblings",
                [](GangWorld& world) {
                  AddNodes(world, {"a1"}, "a", 8);
                  AddNodes(world, {"b1"}, "b", 8);
                  world.AddMembers("w", 2, SpecWith(1));
                  world.request().required = 0;
                  world.request().sibling_nodes = {"b1"};
                },
                "b1 b1"},
           Case{"a surplus planned by itself goes elsewhere when its siblings' zone is full",
                [](GangWorld& world) {
                  AddNodes(world, {"a1"}, "a", 8);
                  AddNodes(world, {"b1"}, "b", 8);
                  Occupy(world, "b1", 8);
                  world.AddMembers("w", 2, SpecWith(1));
                  world.request().required = 0;
                  world.request().sibling_nodes = {"b1"};
                },
                "a1 a1"},
           Case{"a partial plan places as many as it can and isn't complete",
                [](GangWorld& world) {
                  AddNodes(world, {"n1", "n2", "n3"}, "a", 8);
                  world.AddMembers("w", 4, SpecWith(8));
                },
                "n1 n2 n3 - !"},
           Case{"a partial plan spans zones if that places more",
                [](GangWorld& world) {
                  AddNodes(world, {"a1", "a2"}, "a", 8);
                  AddNodes(world, {"b1"}, "b", 8);
                  world.AddMembers("w", 4, SpecWith(8));
                },
                "a1 a2 b1 - !"},
           Case{"an empty gang is complete",
                [](GangWorld& world) { AddNodes(world, {"n1"}, "a", 8); }, ""},
           Case{"a member whose quantities can't be read is never placed",
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
           Case{"taints, selectors and cordons are respected",
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
           Case{"tolerated taints are no obstacle",
                [](GangWorld& world) {
                  kube::Node tainted = NodeWith("n1", "a", 8);
                  tainted.taints.push_back({"team", "x", kube::TaintEffect::kNoSchedule});
                  world.Add(std::move(tainted));
                  world.AddMembers("w", 1, Tolerating(SpecWith(8), "team"));
                },
                "n1"},
           Case{"a node with seven of eight GPUs registered isn't used even for seven",
                [](GangWorld& world) {
                  kube::Node partial = NodeWith("n1", "a", 8);
                  partial.allocatable.Set("nvidia.com/gpu", 7);
                  world.Add(std::move(partial));
                  world.AddMembers("w", 1, SpecWith(7));
                },
                "- !"},
           Case{"excluded nodes are left out",
                [](GangWorld& world) {
                  AddNodes(world, {"n1", "n2"}, "a", 8);
                  world.AddMembers("w", 1, SpecWith(8));
                  world.request().excluded_nodes = {"n1"};
                },
                "n2"},
           Case{"nodes that are coming aren't used unless asked for",
                [](GangWorld& world) {
                  AddNodes(world, {"n1"}, "a", 8);
                  world.Add(ClaimWith("c1", "a", 8));
                  world.AddMembers("w", 2, SpecWith(8));
                },
                "n1 - !"},
           Case{"nodes that are coming complete a plan when asked for",
                [](GangWorld& world) {
                  AddNodes(world, {"n1"}, "a", 8);
                  world.Add(ClaimWith("c1", "a", 8));
                  world.AddMembers("w", 2, SpecWith(8));
                  world.request().include_virtual = true;
                },
                "n1 nodeclaim/c1"},
           Case{"nodes that are there come before nodes that are coming",
                [](GangWorld& world) {
                  AddNodes(world, {"z1"}, "a", 8);
                  world.Add(ClaimWith("c1", "a", 4));
                  world.AddMembers("w", 2, SpecWith(2));
                  world.request().include_virtual = true;
                },
                "z1 z1"},
           Case{"all members go into one domain of the required topology key",
                [](GangWorld& world) {
                  for (const auto& [name, rack, gpus] :
                       {std::tuple("n1", "r1", 4), std::tuple("n2", "r2", 2),
                        std::tuple("n3", "r2", 2), std::tuple("n4", "r1", 1)}) {
                    kube::Node node = NodeWith(name, "a", gpus);
                    node.meta.labels["rack"] = rack;
                    world.Add(std::move(node));
                  }
                  AddNodes(world, {"n5"}, "a", 8);  // has no rack
                  Occupy(world, "n1", 2);
                  world.AddMembers("w", 4, SpecWith(1));
                  world.request().required_topology_key = "rack";
                },
                "n2 n2 n3 n3"},
           Case{"no domain of the required topology key is enough",
                [](GangWorld& world) {
                  AddNodes(world, {"n1", "n2"}, "a", 2);
                  world.AddMembers("w", 4, SpecWith(1));
                  world.request().required_topology_key = kube::kHostnameLabel;
                },
                "n1 n1 - - !"},
           Case{"the required domain is where the siblings stand",
                [](GangWorld& world) {
                  AddNodes(world, {"a1"}, "a", 8);
                  AddNodes(world, {"b1"}, "b", 2);
                  world.AddMembers("w", 2, SpecWith(2));
                  world.request().required_topology_key = kube::kZoneLabel;
                  world.request().sibling_nodes = {"b1"};
                },
                "b1 - !"});

kube::PodSpec WithAffinity(kube::PodSpec spec, kube::PodAffinityTerm term) {
  spec.affinity.required_pod_affinity.push_back(std::move(term));
  return spec;
}
kube::PodSpec WithAntiAffinity(kube::PodSpec spec, kube::PodAffinityTerm term) {
  spec.affinity.required_pod_anti_affinity.push_back(std::move(term));
  return spec;
}
kube::PodSpec WithSpread(kube::PodSpec spec, kube::TopologySpreadConstraint constraint) {
  spec.topology_spread.push_back(std::move(constraint));
  return spec;
}

PLAN_TABLE(
    Affinity,
    Case{"members that must share a host get the one that holds them all, not the first for one",
         [](GangWorld& world) {
           AddNodes(world, {"n1"}, "a", 2);
           AddNodes(world, {"n2"}, "a", 8);
           world.AddMembers("w", 4,
                            WithAffinity(SpecWith(2), Term("job", "j", kube::kHostnameLabel)),
                            {{"job", "j"}});
         },
         "n2 n2 n2 n2"},
    Case{"master and workers that must share a host get one that holds both",
         [](GangWorld& world) {
           world.Add(NodeWith("n1", "a", 8, 4));
           world.Add(NodeWith("n2", "a", 8, 12));
           world.AddMembers("master", 1,
                            WithAffinity(SpecWith(0, 6), Term("job", "j", kube::kHostnameLabel)),
                            {{"job", "j"}});
           world.AddMembers("worker", 4,
                            WithAffinity(SpecWith(2, 1), Term("job", "j", kube::kHostnameLabel)),
                            {{"job", "j"}});
         },
         "n2 n2 n2 n2 n2"},
    Case{"members that must share a zone get one that holds them all",
         [](GangWorld& world) {
           AddNodes(world, {"a1", "a2"}, "a", 1);
           AddNodes(world, {"b1", "b2", "b3"}, "b", 1);
           world.AddMembers("w", 3, WithAffinity(SpecWith(1), Term("job", "j", kube::kZoneLabel)),
                            {{"job", "j"}});
         },
         "b1 b2 b3"},
    Case{"members that must share a host that holds only some are not placed apart",
         [](GangWorld& world) {
           AddNodes(world, {"n1", "n2"}, "a", 4);
           world.AddMembers("w", 4,
                            WithAffinity(SpecWith(2), Term("job", "j", kube::kHostnameLabel)),
                            {{"job", "j"}});
         },
         "n1 n1 - - !"},
    Case{"members drawn to pods that stand go where those are",
         [](GangWorld& world) {
           AddNodes(world, {"n1", "n2"}, "a", 8);
           world.Add(Bound(PodWith("cache", SpecWith(0), {{"app", "cache"}}), "n2"));
           world.AddMembers("w", 2,
                            WithAffinity(SpecWith(2), Term("app", "cache", kube::kHostnameLabel)));
         },
         "n2 n2"},
    Case{"members drawn to a pod that is nowhere are not placed",
         [](GangWorld& world) {
           AddNodes(world, {"n1"}, "a", 8);
           world.AddMembers("w", 1,
                            WithAffinity(SpecWith(2), Term("app", "cache", kube::kHostnameLabel)));
         },
         "- !"},
    Case{"workers follow their master though the master doesn't ask for them",
         [](GangWorld& world) {
           AddNodes(world, {"a1"}, "a", 8);
           AddNodes(world, {"b1", "b2"}, "b", 8);
           world.AddMembers("worker", 2,
                            WithAffinity(SpecWith(8), Term("role", "master", kube::kZoneLabel)),
                            {{"role", "worker"}});
           world.AddMembers("master", 1, SpecWith(0), {{"role", "master"}});
         },
         "b1 b2 b1"},
    Case{"two groups that keep apart get a rack each",
         [](GangWorld& world) {
           for (const auto& [name, rack] : {std::pair("n1", "r1"), std::pair("n2", "r2"),
                                            std::pair("n3", "r1"), std::pair("n4", "r2")}) {
             kube::Node node = NodeWith(name, "a", 8);
             node.meta.labels["rack"] = rack;
             world.Add(std::move(node));
           }
           for (const char* group : {"g1", "g2"}) {
             std::string other = group == std::string("g1") ? "g2" : "g1";
             kube::PodSpec spec =
                 WithAntiAffinity(WithAffinity(SpecWith(8), Term("group", group, "rack")),
                                  Term("group", other, "rack"));
             world.AddMembers(group, 2, spec, {{"group", group}});
           }
         },
         "n1 n3 n4 n2"});

PLAN_TABLE(AntiAffinity,
           Case{"members that keep apart get a host each",
                [](GangWorld& world) {
                  AddNodes(world, {"n1", "n2", "n3"}, "a", 8);
                  world.AddMembers(
                      "w", 3, WithAntiAffinity(SpecWith(1), Term("job", "j", kube::kHostnameLabel)),
                      {{"job", "j"}});
                },
                "n1 n2 n3"},
           Case{"members that keep apart by zone use several",
                [](GangWorld& world) {
                  AddNodes(world, {"a1", "a2"}, "a", 8);
                  AddNodes(world, {"b1"}, "b", 8);
                  world.AddMembers(
                      "w", 2, WithAntiAffinity(SpecWith(1), Term("job", "j", kube::kZoneLabel)),
                      {{"job", "j"}});
                },
                "a1 b1"},
           Case{"pods that stand keep members away",
                [](GangWorld& world) {
                  AddNodes(world, {"n1", "n2"}, "a", 8);
                  world.Add(Bound(
                      PodWith("lonely", WithAntiAffinity(SpecWith(0),
                                                         Term("job", "j", kube::kHostnameLabel))),
                      "n1"));
                  world.AddMembers("w", 1, SpecWith(1), {{"job", "j"}});
                },
                "n2"},
           Case{"a master that nobody keeps away from shares a host with a worker",
                [](GangWorld& world) {
                  AddNodes(world, {"n1", "n2"}, "a", 8);
                  world.AddMembers("master", 1, SpecWith(0), {{"role", "master"}});
                  world.AddMembers(
                      "worker", 2,
                      WithAntiAffinity(SpecWith(1), Term("role", "worker", kube::kHostnameLabel)),
                      {{"role", "worker"}});
                },
                "n1 n1 n2"},
           Case{"a hostname that is another node's name makes one host of the two",
                [](GangWorld& world) {
                  for (const char* name : {"n1", "n2", "n3"}) {
                    kube::Node node = NodeWith(name, "a", 8);
                    if (name == std::string("n1")) node.meta.labels[kube::kHostnameLabel] = "n2";
                    world.Add(std::move(node));
                  }
                  world.AddMembers(
                      "w", 2, WithAntiAffinity(SpecWith(1), Term("job", "j", kube::kHostnameLabel)),
                      {{"job", "j"}});
                },
                "n1 n3"},
           Case{"a node without a hostname is no host that one could keep apart on",
                [](GangWorld& world) {
                  kube::Node node = NodeWith("n0", "a", 8);
                  node.meta.labels.erase(kube::kHostnameLabel);
                  world.Add(std::move(node));
                  AddNodes(world, {"n1", "n2"}, "a", 8);
                  world.Add(Bound(PodWith("lonely", SpecWith(0), {{"job", "j"}}), "n1"));
                  world.AddMembers(
                      "w", 2, WithAntiAffinity(SpecWith(8), Term("job", "j", kube::kHostnameLabel)),
                      {{"job", "j"}});
                },
                "n0 n2"});

PLAN_TABLE(
    Spreading,
    Case{"members are spread evenly over zones",
         [](GangWorld& world) {
           AddNodes(world, {"a1"}, "a", 8);
           AddNodes(world, {"b1"}, "b", 8);
           world.AddMembers("w", 4, WithSpread(SpecWith(1), Spread("job", "j", kube::kZoneLabel)),
                            {{"job", "j"}});
         },
         "a1 a1 b1 b1"},
    Case{"a zone that is nearly full limits the others",
         [](GangWorld& world) {
           AddNodes(world, {"a1"}, "a", 8);
           AddNodes(world, {"b1"}, "b", 1);
           world.AddMembers("w", 4, WithSpread(SpecWith(1), Spread("job", "j", kube::kZoneLabel)),
                            {{"job", "j"}});
         },
         "a1 a1 b1 - !"},
    Case{"the skew is used where that saves nodes",
         [](GangWorld& world) {
           AddNodes(world, {"a1", "a2"}, "a", 2);
           AddNodes(world, {"b1", "b2"}, "b", 2);
           world.AddMembers("w", 6,
                            WithSpread(SpecWith(1), Spread("job", "j", kube::kZoneLabel, 2)),
                            {{"job", "j"}});
         },
         "a1 a1 a2 a2 b1 b1"},
    Case{"pods that stand count for the balance",
         [](GangWorld& world) {
           AddNodes(world, {"a1"}, "a", 8);
           AddNodes(world, {"b1"}, "b", 8);
           world.Add(Bound(PodWith("old", SpecWith(0), {{"job", "j"}}), "a1"));
           world.AddMembers("w", 3, WithSpread(SpecWith(1), Spread("job", "j", kube::kZoneLabel)),
                            {{"job", "j"}});
         },
         "a1 b1 b1"},
    Case{"spread over hosts within spread over zones",
         [](GangWorld& world) {
           AddNodes(world, {"a1", "a2"}, "a", 8);
           AddNodes(world, {"b1", "b2"}, "b", 8);
           kube::PodSpec spec = WithSpread(SpecWith(1), Spread("job", "j", kube::kZoneLabel));
           world.AddMembers("w", 4, WithSpread(spec, Spread("job", "j", kube::kHostnameLabel)),
                            {{"job", "j"}});
         },
         "a1 a2 b1 b2"},
    Case{"fewer domains than asked for hold only the skew",
         [](GangWorld& world) {
           AddNodes(world, {"a1"}, "a", 8);
           kube::TopologySpreadConstraint constraint = Spread("job", "j", kube::kZoneLabel, 2);
           constraint.min_domains = 2;
           world.AddMembers("w", 3, WithSpread(SpecWith(1), constraint), {{"job", "j"}});
         },
         "a1 a1 - !"});

// --- why not ---

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

TEST(Plan, SaysWhenItCountsOnNodesThatAreComing) {
  GangWorld world;
  world.Add(ClaimWith("c1", "a", 8));
  world.AddMembers("w", 1, SpecWith(8));
  world.request().include_virtual = true;
  EXPECT_TRUE(world.MakePlan().uses_virtual);
  AddNodes(world, {"n1"}, "a", 8);
  EXPECT_FALSE(world.MakePlan().uses_virtual);
}

TEST(Plan, OfMembersThatAreAssumedAlreadyCountsTheirRoomAsFree) {
  GangWorld world;
  AddNodes(world, {"n1"}, "a", 8);
  world.AddMembers("w", 2, SpecWith(4));
  ASSERT_TRUE(world.snapshot().Assume("uid-w-0", "n1").ok());
  Plan plan = world.MakePlan();
  EXPECT_EQ(Shown(world.request(), plan), "n1 n1");
  EXPECT_FALSE(FirstBroken(world.snapshot(), world.request(), plan.placements));
}

// --- looking at a plan again ---

using Placements = std::map<std::string, std::string>;

std::string Broken(GangWorld& world, const Placements& placements) {
  auto broken = FirstBroken(world.snapshot(), world.request(), placements);
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
  EXPECT_EQ(Broken(world, plan.placements), "uid-w-0: a host port is taken by default/foreign");
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

TEST(FirstBroken, SeesMembersInTwoRequiredDomains) {
  GangWorld world;
  AddNodes(world, {"a1"}, "a", 8);
  AddNodes(world, {"b1"}, "b", 8);
  world.AddMembers("w", 2, SpecWith(8));
  world.request().required_topology_key = kube::kZoneLabel;
  EXPECT_EQ(Broken(world, {{"uid-w-0", "a1"}, {"uid-w-1", "b1"}}),
            "uid-w-1: topology.kubernetes.io/zone=b, the gang is in a");
}

TEST(FirstBroken, LeavesOutMembersWithoutAPlacement) {
  GangWorld world;
  AddNodes(world, {"n1"}, "a", 8);
  world.AddMembers("w", 2, SpecWith(8));
  EXPECT_EQ(Broken(world, {{"uid-w-1", "n1"}}), "");
}

}  // namespace
}  // namespace muster::coscheduling
