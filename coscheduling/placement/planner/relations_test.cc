// Plans of members that must, or must not, share hosts and zones.
#include <string>

#include "coscheduling/placement/planner/test_table.h"
#include "coscheduling/placement/planner/testing.h"
#include "gtest/gtest.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {
namespace {

using testing::AddNodes;
using testing::Bound;
using testing::GangWorld;
using testing::NameOfPlanCase;
using testing::NodeWith;
using testing::PlanCase;
using testing::PlanTable;
using testing::PodWith;
using testing::SpecWith;
using testing::Spread;
using testing::Term;
using testing::WithAffinity;
using testing::WithAntiAffinity;
using testing::WithSpread;

PLAN_TABLE(
    Affinity,
    PlanCase{
        "members that must share a host get the one that holds them all, not the first for one",
        [](GangWorld& world) {
          AddNodes(world, {"n1"}, "a", 2);
          AddNodes(world, {"n2"}, "a", 8);
          world.AddMembers("w", 4,
                           WithAffinity(SpecWith(2), Term("job", "j", kube::kHostnameLabel)),
                           {{"job", "j"}});
        },
        "n2 n2 n2 n2"},
    PlanCase{
        "master and workers that must share a host get one that holds both",
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
    PlanCase{"members that must share a zone get one that holds them all",
             [](GangWorld& world) {
               AddNodes(world, {"a1", "a2"}, "a", 1);
               AddNodes(world, {"b1", "b2", "b3"}, "b", 1);
               world.AddMembers("w", 3,
                                WithAffinity(SpecWith(1), Term("job", "j", kube::kZoneLabel)),
                                {{"job", "j"}});
             },
             "b1 b2 b3"},
    PlanCase{"members that must share a host that holds only some are not placed apart",
             [](GangWorld& world) {
               AddNodes(world, {"n1", "n2"}, "a", 4);
               world.AddMembers("w", 4,
                                WithAffinity(SpecWith(2), Term("job", "j", kube::kHostnameLabel)),
                                {{"job", "j"}});
             },
             "n1 n1 - - !"},
    PlanCase{"members drawn to pods that stand go where those are",
             [](GangWorld& world) {
               AddNodes(world, {"n1", "n2"}, "a", 8);
               world.Add(Bound(PodWith("cache", SpecWith(0), {{"app", "cache"}}), "n2"));
               world.AddMembers(
                   "w", 2, WithAffinity(SpecWith(2), Term("app", "cache", kube::kHostnameLabel)));
             },
             "n2 n2"},
    PlanCase{"members drawn to a pod that is nowhere are not placed",
             [](GangWorld& world) {
               AddNodes(world, {"n1"}, "a", 8);
               world.AddMembers(
                   "w", 1, WithAffinity(SpecWith(2), Term("app", "cache", kube::kHostnameLabel)));
             },
             "- !"},
    PlanCase{"workers follow their master though the master doesn't ask for them",
             [](GangWorld& world) {
               AddNodes(world, {"a1"}, "a", 8);
               AddNodes(world, {"b1", "b2"}, "b", 8);
               world.AddMembers("worker", 2,
                                WithAffinity(SpecWith(8), Term("role", "master", kube::kZoneLabel)),
                                {{"role", "worker"}});
               world.AddMembers("master", 1, SpecWith(0), {{"role", "master"}});
             },
             "b1 b2 b1"},
    PlanCase{"two groups that keep apart get a rack each",
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

PLAN_TABLE(
    AntiAffinity,
    PlanCase{"members that keep apart get a host each",
             [](GangWorld& world) {
               AddNodes(world, {"n1", "n2", "n3"}, "a", 8);
               world.AddMembers(
                   "w", 3, WithAntiAffinity(SpecWith(1), Term("job", "j", kube::kHostnameLabel)),
                   {{"job", "j"}});
             },
             "n1 n2 n3"},
    PlanCase{"members that keep apart by zone use several",
             [](GangWorld& world) {
               AddNodes(world, {"a1", "a2"}, "a", 8);
               AddNodes(world, {"b1"}, "b", 8);
               world.AddMembers("w", 2,
                                WithAntiAffinity(SpecWith(1), Term("job", "j", kube::kZoneLabel)),
                                {{"job", "j"}});
             },
             "a1 b1"},
    PlanCase{"pods that stand keep members away",
             [](GangWorld& world) {
               AddNodes(world, {"n1", "n2"}, "a", 8);
               world.Add(Bound(
                   PodWith("lonely",
                           WithAntiAffinity(SpecWith(0), Term("job", "j", kube::kHostnameLabel))),
                   "n1"));
               world.AddMembers("w", 1, SpecWith(1), {{"job", "j"}});
             },
             "n2"},
    PlanCase{"a master that nobody keeps away from shares a host with a worker",
             [](GangWorld& world) {
               AddNodes(world, {"n1", "n2"}, "a", 8);
               world.AddMembers("master", 1, SpecWith(0), {{"role", "master"}});
               world.AddMembers(
                   "worker", 2,
                   WithAntiAffinity(SpecWith(1), Term("role", "worker", kube::kHostnameLabel)),
                   {{"role", "worker"}});
             },
             "n1 n1 n2"},
    PlanCase{"a hostname that is another node's name makes one host of the two",
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
    PlanCase{"a node without a hostname is no host that one could keep apart on",
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
    PlanCase{"members are spread evenly over zones",
             [](GangWorld& world) {
               AddNodes(world, {"a1"}, "a", 8);
               AddNodes(world, {"b1"}, "b", 8);
               world.AddMembers("w", 4,
                                WithSpread(SpecWith(1), Spread("job", "j", kube::kZoneLabel)),
                                {{"job", "j"}});
             },
             "a1 a1 b1 b1"},
    PlanCase{"a zone that is nearly full limits the others",
             [](GangWorld& world) {
               AddNodes(world, {"a1"}, "a", 8);
               AddNodes(world, {"b1"}, "b", 1);
               world.AddMembers("w", 4,
                                WithSpread(SpecWith(1), Spread("job", "j", kube::kZoneLabel)),
                                {{"job", "j"}});
             },
             "a1 a1 b1 - !"},
    PlanCase{"members are spread evenly though the skew would save nodes",
             [](GangWorld& world) {
               AddNodes(world, {"a1", "a2"}, "a", 2);
               AddNodes(world, {"b1", "b2"}, "b", 2);
               world.AddMembers("w", 6,
                                WithSpread(SpecWith(1), Spread("job", "j", kube::kZoneLabel, 2)),
                                {{"job", "j"}});
             },
             "a1 a1 a2 b1 b1 b2"},
    PlanCase{"pods that stand count for the balance",
             [](GangWorld& world) {
               AddNodes(world, {"a1"}, "a", 8);
               AddNodes(world, {"b1"}, "b", 8);
               world.Add(Bound(PodWith("old", SpecWith(0), {{"job", "j"}}), "a1"));
               world.AddMembers("w", 3,
                                WithSpread(SpecWith(1), Spread("job", "j", kube::kZoneLabel)),
                                {{"job", "j"}});
             },
             "a1 b1 b1"},
    PlanCase{"spread over hosts within spread over zones",
             [](GangWorld& world) {
               AddNodes(world, {"a1", "a2"}, "a", 8);
               AddNodes(world, {"b1", "b2"}, "b", 8);
               kube::PodSpec spec = WithSpread(SpecWith(1), Spread("job", "j", kube::kZoneLabel));
               world.AddMembers("w", 4, WithSpread(spec, Spread("job", "j", kube::kHostnameLabel)),
                                {{"job", "j"}});
             },
             "a1 a2 b1 b2"},
    PlanCase{"fewer domains than asked for hold only the skew",
             [](GangWorld& world) {
               AddNodes(world, {"a1"}, "a", 8);
               kube::TopologySpreadConstraint constraint = Spread("job", "j", kube::kZoneLabel, 2);
               constraint.min_domains = 2;
               world.AddMembers("w", 3, WithSpread(SpecWith(1), constraint), {{"job", "j"}});
             },
             "a1 a1 - !"});

}  // namespace
}  // namespace muster::coscheduling
