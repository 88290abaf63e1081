#include "cluster/relation_index.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "cluster/test_objects.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

using namespace test;
using enum RejectionCode;

constexpr const char* kRack = "rack";

// Two zones of two nodes each: a1 a2 in zone a, b1 b2 in zone b.
void AddTwoZones(Snapshot& snapshot) {
  for (const char* name : {"a1", "a2"}) snapshot.Upsert(MakeNode(name, "a"));
  for (const char* name : {"b1", "b2"}) snapshot.Upsert(MakeNode(name, "b"));
}

kube::Pod App(const std::string& name, const std::string& app) {
  return Labelled(MakePod(name), "app", app);
}

kube::Pod InNamespace(kube::Pod pod, const std::string& name_space) {
  pod.meta.name_space = name_space;
  return pod;
}

void AddNamespace(Snapshot& snapshot, const std::string& name, kube::StringMap labels) {
  kube::Namespace name_space;
  name_space.meta.name = name;
  name_space.meta.labels = std::move(labels);
  snapshot.Upsert(name_space);
}

kube::Pod Wants(kube::Pod pod, std::vector<kube::PodAffinityTerm> terms) {
  return With(std::move(pod),
              [&](kube::PodSpec& spec) { spec.affinity.required_pod_affinity = terms; });
}

kube::Pod Shuns(kube::Pod pod, std::vector<kube::PodAffinityTerm> terms) {
  return With(std::move(pod),
              [&](kube::PodSpec& spec) { spec.affinity.required_pod_anti_affinity = terms; });
}

kube::TopologySpreadConstraint SpreadOver(const std::string& key, int max_skew = 1) {
  kube::TopologySpreadConstraint constraint;
  constraint.topology_key = key;
  constraint.max_skew = max_skew;
  constraint.selector = kube::LabelSelector{{In("app", {"x"})}};
  return constraint;
}

kube::Pod Spread(std::vector<kube::TopologySpreadConstraint> constraints) {
  return With(App("p", "x"), [&](kube::PodSpec& spec) { spec.topology_spread = constraints; });
}

struct RelationCase {
  const char* name;
  std::function<void(Snapshot&)> cluster;
  kube::Pod pod;
  // Node -> rejection; nodes that aren't named pass.
  std::map<std::string, RejectionCode> want;
};

void CheckCases(const std::vector<RelationCase>& cases) {
  for (const RelationCase& c : cases) {
    Snapshot snapshot;
    AddTwoZones(snapshot);
    c.cluster(snapshot);
    RelationIndex index(snapshot, {&c.pod}, /*include_virtual=*/false);
    for (const auto& [name, info] : snapshot.nodes()) {
      if (info.is_virtual) continue;
      auto want = c.want.find(name);
      std::optional<Rejection> got = index.Check(c.pod, info);
      EXPECT_EQ(got.has_value(), want != c.want.end())
          << c.name << ", " << name << (got ? ": " + got->detail : "");
      if (got && want != c.want.end()) {
        EXPECT_EQ(got->code, want->second) << c.name << ", " << name << ": " << got->detail;
      }
      EXPECT_EQ(CheckRelations(snapshot, c.pod, info), got) << c.name << ", " << name;
    }
  }
}

TEST(CheckRelations, PodAffinity) {
  auto nothing = [](Snapshot&) {};
  auto db_on_a1 = [](Snapshot& snapshot) { snapshot.Upsert(BoundTo(App("db", "db"), "a1")); };
  kube::PodAffinityTerm everywhere = TermFor("app", "db", kube::kZoneLabel);
  everywhere.namespace_selector.emplace();
  kube::PodAffinityTerm labelled = TermFor("app", "db", kube::kZoneLabel);
  labelled.namespace_selector = kube::LabelSelector{{In("team", {"ml"})}};
  kube::PodAffinityTerm listed = TermFor("app", "db", kube::kZoneLabel);
  listed.namespaces = {"other"};
  kube::PodAffinityTerm nobody = TermFor("app", "db", kube::kZoneLabel);
  nobody.selector.reset();
  auto db_in_other = [](Snapshot& snapshot) {
    AddNamespace(snapshot, "other", {{"team", "ml"}});
    snapshot.Upsert(BoundTo(InNamespace(App("db", "db"), "other"), "a1"));
  };
  const std::map<std::string, RejectionCode> not_b = {{"b1", kPodAffinity}, {"b2", kPodAffinity}};
  const std::map<std::string, RejectionCode> none = {
      {"a1", kPodAffinity}, {"a2", kPodAffinity}, {"b1", kPodAffinity}, {"b2", kPodAffinity}};
  CheckCases({
      {"beside the pods it wants, in their zone", db_on_a1,
       Wants(MakePod("p"), {TermFor("app", "db", kube::kZoneLabel)}), not_b},
      {"on the very node",
       db_on_a1,
       Wants(MakePod("p"), {TermFor("app", "db", kube::kHostnameLabel)}),
       {{"a2", kPodAffinity}, {"b1", kPodAffinity}, {"b2", kPodAffinity}}},
      {"nobody to be beside", nothing,
       Wants(MakePod("p"), {TermFor("app", "db", kube::kZoneLabel)}), none},
      {"the first of a group passes everywhere",
       nothing,
       Wants(App("p", "db"), {TermFor("app", "db", kube::kZoneLabel)}),
       {}},
      {"the second of a group goes to the first", db_on_a1,
       Wants(App("p", "db"), {TermFor("app", "db", kube::kZoneLabel)}), not_b},
      {"the first of a group still needs the label of the domain", nothing,
       Wants(App("p", "db"), {TermFor("app", "db", kRack)}), none},
      {"a pod that matches one of two terms doesn't count for either", db_on_a1,
       Wants(MakePod("p"),
             {TermFor("app", "db", kube::kZoneLabel), TermFor("tier", "1", kube::kZoneLabel)}),
       none},
      {"all terms by the same pod",
       [](Snapshot& snapshot) {
         snapshot.Upsert(BoundTo(Labelled(App("db", "db"), "tier", "1"), "a1"));
       },
       Wants(MakePod("p"),
             {TermFor("app", "db", kube::kZoneLabel), TermFor("tier", "1", kube::kHostnameLabel)}),
       {{"a2", kPodAffinity}, {"b1", kPodAffinity}, {"b2", kPodAffinity}}},
      {"pods of another namespace don't count", db_in_other,
       Wants(MakePod("p"), {TermFor("app", "db", kube::kZoneLabel)}), none},
      {"a namespace by name", db_in_other, Wants(MakePod("p"), {listed}), not_b},
      {"a namespace by its labels", db_in_other, Wants(MakePod("p"), {labelled}), not_b},
      {"an empty namespace selector means all", db_in_other, Wants(MakePod("p"), {everywhere}),
       not_b},
      {"a selector of names leaves out one's own namespace", db_on_a1,
       Wants(MakePod("p"), {listed}), none},
      {"a term without selector matches no pod", db_on_a1, Wants(MakePod("p"), {nobody}), none},
      {"pods that are being deleted still count",
       [](Snapshot& snapshot) {
         kube::Pod db = BoundTo(App("db", "db"), "a1");
         db.meta.deletion_time = absl::UnixEpoch();
         snapshot.Upsert(db);
       },
       Wants(MakePod("p"), {TermFor("app", "db", kube::kZoneLabel)}), not_b},
      {"an assumed pod counts",
       [](Snapshot& snapshot) {
         snapshot.Upsert(App("db", "db"));
         ASSERT_TRUE(snapshot.Assume("pod-db", "a1").ok());
       },
       Wants(MakePod("p"), {TermFor("app", "db", kube::kZoneLabel)}), not_b},
      {"pods on an unusable node count",
       [](Snapshot& snapshot) {
         kube::Node node = MakeNode("a1", "a");
         node.ready = false;
         snapshot.Upsert(node);
         snapshot.Upsert(BoundTo(App("db", "db"), "a1"));
       },
       Wants(MakePod("p"), {TermFor("app", "db", kube::kZoneLabel)}), not_b},
  });
}

TEST(CheckRelations, PodAntiAffinity) {
  auto db_on_a1 = [](Snapshot& snapshot) { snapshot.Upsert(BoundTo(App("db", "db"), "a1")); };
  CheckCases({
      {"not in the zone of those it shuns",
       db_on_a1,
       Shuns(MakePod("p"), {TermFor("app", "db", kube::kZoneLabel)}),
       {{"a1", kPodAntiAffinity}, {"a2", kPodAntiAffinity}}},
      {"not on the node of those it shuns",
       db_on_a1,
       Shuns(MakePod("p"), {TermFor("app", "db", kube::kHostnameLabel)}),
       {{"a1", kPodAntiAffinity}}},
      {"a node without the label is no domain",
       db_on_a1,
       Shuns(MakePod("p"), {TermFor("app", "db", kRack)}),
       {}},
      {"any of several terms",
       [](Snapshot& snapshot) {
         snapshot.Upsert(BoundTo(App("db", "db"), "a1"));
         snapshot.Upsert(BoundTo(App("web", "web"), "b1"));
       },
       Shuns(MakePod("p"), {TermFor("app", "db", kube::kHostnameLabel),
                            TermFor("app", "web", kube::kHostnameLabel)}),
       {{"a1", kPodAntiAffinity}, {"b1", kPodAntiAffinity}}},
      {"the pod doesn't shun itself",
       [](Snapshot& snapshot) { snapshot.Upsert(BoundTo(App("p", "db"), "a1")); },
       Shuns(App("p", "db"), {TermFor("app", "db", kube::kHostnameLabel)}),
       {}},
  });
}

TEST(CheckRelations, AntiAffinityOfThoseThatStandThere) {
  kube::PodAffinityTerm by_namespace = TermFor("app", "x", kube::kZoneLabel);
  by_namespace.namespace_selector = kube::LabelSelector{{In("team", {"ml"})}};
  auto guard = [](const kube::PodAffinityTerm& term, const std::string& name_space) {
    return [term, name_space](Snapshot& snapshot) {
      AddNamespace(snapshot, "default", {{"team", "ml"}});
      snapshot.Upsert(BoundTo(InNamespace(Shuns(MakePod("guard"), {term}), name_space), "a1"));
    };
  };
  const std::map<std::string, RejectionCode> not_a = {{"a1", kExistingAntiAffinity},
                                                      {"a2", kExistingAntiAffinity}};
  CheckCases({
      {"keeps its zone free of those it selects",
       guard(TermFor("app", "x", kube::kZoneLabel), "default"), App("p", "x"), not_a},
      {"keeps its node free",
       guard(TermFor("app", "x", kube::kHostnameLabel), "default"),
       App("p", "x"),
       {{"a1", kExistingAntiAffinity}}},
      {"doesn't mind others",
       guard(TermFor("app", "x", kube::kZoneLabel), "default"),
       App("p", "y"),
       {}},
      {"selects in its own namespace only",
       guard(TermFor("app", "x", kube::kZoneLabel), "other"),
       App("p", "x"),
       {}},
      {"selects by labels of the namespace", guard(by_namespace, "other"), App("p", "x"), not_a},
  });
}

TEST(CheckRelations, TopologySpread) {
  auto standing = [](const std::vector<std::string>& nodes) {
    return [nodes](Snapshot& snapshot) {
      int number = 0;
      for (const std::string& node : nodes) {
        snapshot.Upsert(BoundTo(App("x" + std::to_string(number++), "x"), node));
      }
    };
  };
  const std::map<std::string, RejectionCode> not_a = {{"a1", kTopologySpread},
                                                      {"a2", kTopologySpread}};
  const std::map<std::string, RejectionCode> none = {{"a1", kTopologySpread},
                                                     {"a2", kTopologySpread},
                                                     {"b1", kTopologySpread},
                                                     {"b2", kTopologySpread}};
  auto changed = [](auto change) {
    kube::TopologySpreadConstraint constraint = SpreadOver(kube::kZoneLabel);
    change(constraint);
    return constraint;
  };
  kube::Pod only_zone_a = With(Spread({SpreadOver(kube::kZoneLabel)}), [](kube::PodSpec& spec) {
    spec.node_selector = {{kube::kZoneLabel, "a"}};
  });
  kube::Pod affinity_ignored = With(only_zone_a, [](kube::PodSpec& spec) {
    spec.topology_spread[0].honor_node_affinity = false;
  });
  auto taint_b = [&](Snapshot& snapshot) {
    for (const char* name : {"b1", "b2"}) {
      kube::Node node = MakeNode(name, "b");
      node.taints = {{"t", "", kube::TaintEffect::kNoSchedule}};
      snapshot.Upsert(node);
    }
    standing({"a1"})(snapshot);
  };
  CheckCases({
      {"nobody stands: anywhere", standing({}), Spread({SpreadOver(kube::kZoneLabel)}), {}},
      {"the fuller zone is closed", standing({"a1"}), Spread({SpreadOver(kube::kZoneLabel)}),
       not_a},
      {"a larger skew is allowed", standing({"a1"}), Spread({SpreadOver(kube::kZoneLabel, 2)}), {}},
      {"even zones are both open",
       standing({"a1", "b2"}),
       Spread({SpreadOver(kube::kZoneLabel)}),
       {}},
      {"a pod that its own selector doesn't match may come once more",
       standing({"a1"}),
       [] {
         kube::Pod pod = Spread({SpreadOver(kube::kZoneLabel)});
         pod.meta.labels.clear();
         return pod;
       }(),
       {}},
      {"a soft constraint refuses nothing",
       standing({"a1", "a2"}),
       Spread({changed([](auto& constraint) { constraint.do_not_schedule = false; })}),
       {}},
      {"a node without the label", standing({}), Spread({SpreadOver(kRack)}), none},
      {"nodes without all the keys don't take part",
       [&](Snapshot& snapshot) {
         for (const char* name : {"a1", "a2"}) {
           kube::Node node = MakeNode(name, "a");
           node.meta.labels[kRack] = std::string("r-") + name;
           snapshot.Upsert(node);
         }
         standing({"a1"})(snapshot);
       },
       // Zone b lacks racks, so zone a is the least of its kind, and rack r-a1 the fuller.
       Spread({SpreadOver(kube::kZoneLabel), SpreadOver(kRack)}),
       {{"a1", kTopologySpread}, {"b1", kTopologySpread}, {"b2", kTopologySpread}}},
      {"fewer domains than minDomains: the least is 0", standing({"a1", "b1"}),
       Spread({changed([](auto& constraint) { constraint.min_domains = 3; })}), none},
      {"as many domains as minDomains",
       standing({"a1", "b1"}),
       Spread({changed([](auto& constraint) { constraint.min_domains = 2; })}),
       {}},
      {"domains that the pod can't go to don't count", standing({"a1"}), only_zone_a, {}},
      {"unless nodeAffinityPolicy is Ignore", standing({"a1"}), affinity_ignored, not_a},
      {"tainted domains count by default", taint_b, Spread({SpreadOver(kube::kZoneLabel)}), not_a},
      {"unless nodeTaintsPolicy is Honor",
       taint_b,
       Spread({changed([](auto& constraint) { constraint.honor_node_taints = true; })}),
       {}},
      {"pods that are being deleted don't count",
       [](Snapshot& snapshot) {
         kube::Pod pod = BoundTo(App("x0", "x"), "a1");
         pod.meta.deletion_time = absl::UnixEpoch();
         snapshot.Upsert(pod);
       },
       Spread({SpreadOver(kube::kZoneLabel)}),
       {}},
      {"pods of another namespace don't count",
       [](Snapshot& snapshot) {
         snapshot.Upsert(BoundTo(InNamespace(App("x0", "x"), "other"), "a1"));
       },
       Spread({SpreadOver(kube::kZoneLabel)}),
       {}},
      {"an empty selector counts nobody",
       standing({"a1", "a1", "a1"}),
       Spread({changed([](auto& constraint) { constraint.selector.emplace(); })}),
       {}},
      {"no selector counts nobody",
       standing({"a1", "a1", "a1"}),
       Spread({changed([](auto& constraint) { constraint.selector.reset(); })}),
       {}},
      {"an unusable node is a domain like any other",
       [&](Snapshot& snapshot) {
         for (const char* name : {"b1", "b2"}) {
           kube::Node node = MakeNode(name, "b");
           node.ready = false;
           snapshot.Upsert(node);
         }
         standing({"a1"})(snapshot);
       },
       Spread({SpreadOver(kube::kZoneLabel)}), not_a},
      {"a claim without a Node is no domain",
       [&](Snapshot& snapshot) {
         kube::NodeClaim claim = MakeClaim("c");
         claim.meta.labels[kube::kZoneLabel] = "c";
         snapshot.Upsert(claim);
         standing({"a1", "b1"})(snapshot);
       },
       Spread({SpreadOver(kube::kZoneLabel)}),
       {}},
  });
}

TEST(RelationIndex, WithVirtualNodesThoseAreDomainsToo) {
  Snapshot snapshot;
  AddTwoZones(snapshot);
  kube::NodeClaim claim = MakeClaim("c");
  claim.meta.labels[kube::kZoneLabel] = "c";
  snapshot.Upsert(claim);
  snapshot.Upsert(BoundTo(App("x0", "x"), "a1"));
  snapshot.Upsert(BoundTo(App("x1", "x"), "b1"));
  kube::Pod pod = Spread({SpreadOver(kube::kZoneLabel)});
  RelationIndex index(snapshot, {&pod}, /*include_virtual=*/true);
  EXPECT_EQ(index.Check(pod, *snapshot.FindNode("a1"))->code, kTopologySpread);
  EXPECT_EQ(index.Check(pod, *snapshot.FindNode("nodeclaim/c")), std::nullopt);
}

TEST(RelationIndex, CountsWhatIsAddedAndTakesItBack) {
  Snapshot snapshot;
  AddTwoZones(snapshot);
  // Members that stay in one zone, each on a node of its own.
  std::vector<kube::Pod> members;
  for (const char* name : {"m0", "m1", "m2"}) {
    members.push_back(Shuns(Wants(App(name, "job"), {TermFor("app", "job", kube::kZoneLabel)}),
                            {TermFor("app", "job", kube::kHostnameLabel)}));
  }
  RelationIndex index(snapshot, {&members[0], &members[1], &members[2]}, false);
  EXPECT_FALSE(index.AlwaysPasses());
  const NodeInfo& a1 = *snapshot.FindNode("a1");
  const NodeInfo& a2 = *snapshot.FindNode("a2");
  const NodeInfo& b1 = *snapshot.FindNode("b1");
  EXPECT_EQ(index.Check(members[0], a1), std::nullopt);
  index.Add(members[0], a1);
  EXPECT_EQ(index.Check(members[1], a1)->code, kPodAntiAffinity);
  EXPECT_EQ(index.Check(members[1], b1)->code, kPodAffinity);
  EXPECT_EQ(index.Check(members[1], a2), std::nullopt);
  index.Add(members[1], a2);
  for (const auto& [name, info] : snapshot.nodes()) {
    EXPECT_NE(index.Check(members[2], info), std::nullopt) << name;
  }
  index.Remove(members[1], a2);
  index.Remove(members[0], a1);
  EXPECT_EQ(index.Check(members[2], b1), std::nullopt);
}

TEST(RelationIndex, AMembersAntiAffinityKeepsOtherMembersAway) {
  Snapshot snapshot;
  AddTwoZones(snapshot);
  kube::Pod leader = Shuns(App("leader", "l"), {TermFor("app", "w", kube::kHostnameLabel)});
  kube::Pod worker = App("worker", "w");
  RelationIndex index(snapshot, {&leader, &worker}, false);
  index.Add(leader, *snapshot.FindNode("a1"));
  EXPECT_EQ(index.Check(worker, *snapshot.FindNode("a1"))->code, kExistingAntiAffinity);
  EXPECT_EQ(index.Check(worker, *snapshot.FindNode("a2")), std::nullopt);
}

TEST(RelationIndex, SubjectsThatStandInTheSnapshotDoNotCount) {
  Snapshot snapshot;
  AddTwoZones(snapshot);
  kube::Pod pod = Shuns(App("p", "x"), {TermFor("app", "x", kube::kHostnameLabel)});
  kube::Pod other = Shuns(App("q", "x"), {TermFor("app", "x", kube::kHostnameLabel)});
  snapshot.Upsert(BoundTo(pod, "a1"));
  RelationIndex index(snapshot, {&pod, &other}, false);
  EXPECT_EQ(index.Check(other, *snapshot.FindNode("a1")), std::nullopt);
  index.Add(pod, *snapshot.FindNode("a1"));
  EXPECT_NE(index.Check(other, *snapshot.FindNode("a1")), std::nullopt);
}

TEST(RelationIndex, AlwaysPassesWhereNothingIsRelated) {
  Snapshot snapshot;
  AddTwoZones(snapshot);
  kube::Pod plain = App("p", "x");
  EXPECT_TRUE(RelationIndex(snapshot, {&plain}, false).AlwaysPasses());
  snapshot.Upsert(BoundTo(Shuns(MakePod("guard"), {TermFor("app", "y", kube::kZoneLabel)}), "a1"));
  EXPECT_TRUE(RelationIndex(snapshot, {&plain}, false).AlwaysPasses());
  snapshot.Upsert(BoundTo(Shuns(MakePod("guard"), {TermFor("app", "x", kube::kZoneLabel)}), "a1"));
  EXPECT_FALSE(RelationIndex(snapshot, {&plain}, false).AlwaysPasses());
}

TEST(RelationIndex, SaysWhatStandsInTheWay) {
  Snapshot snapshot;
  AddTwoZones(snapshot);
  snapshot.Upsert(BoundTo(Shuns(App("db", "db"), {TermFor("app", "web", kube::kZoneLabel)}), "a1"));
  struct Message {
    kube::Pod pod;
    std::string node;
    std::string want;
  };
  const std::vector<Message> messages = {
      {Wants(MakePod("p"), {TermFor("app", "db", kube::kZoneLabel)}), "b1",
       "wants pods with app=db in topology.kubernetes.io/zone=b, where there is none"},
      {Wants(MakePod("p"), {TermFor("app", "db", kRack)}), "b1",
       "the node has no label rack, which pod affinity needs"},
      {Shuns(MakePod("p"), {TermFor("app", "db", kube::kHostnameLabel)}), "a1",
       "wants no pods with app=db in kubernetes.io/hostname=a1, where there are 1"},
      {App("p", "web"), "a2",
       "pods like default/db keep pods with app=web out of topology.kubernetes.io/zone=a"},
  };
  for (const Message& message : messages) {
    EXPECT_EQ(CheckRelations(snapshot, message.pod, *snapshot.FindNode(message.node))->detail,
              message.want);
  }
}

TEST(RelationIndex, ScoresSoftSpreadBySkew) {
  Snapshot snapshot;
  AddTwoZones(snapshot);
  for (int i = 0; i < 3; ++i) {
    snapshot.Upsert(BoundTo(App("x" + std::to_string(i), "x"), "a1"));
  }
  kube::TopologySpreadConstraint soft = SpreadOver(kube::kZoneLabel);
  soft.do_not_schedule = false;
  kube::Pod pod = Spread({soft});
  RelationIndex index(snapshot, {&pod}, false);
  EXPECT_TRUE(index.AlwaysPasses());
  EXPECT_EQ(index.Score(pod, *snapshot.FindNode("a1")), -3);
  EXPECT_EQ(index.Score(pod, *snapshot.FindNode("b1")), 0);
}

}  // namespace
}  // namespace muster::cluster
