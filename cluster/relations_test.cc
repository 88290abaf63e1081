#include "cluster/relations.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cluster/predicates.h"
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
    for (const auto& [name, info] : snapshot.nodes()) {
      if (info.is_virtual) continue;
      auto want = c.want.find(name);
      std::optional<Rejection> got = CheckRelations(snapshot, c.pod, info);
      EXPECT_EQ(got.has_value(), want != c.want.end())
          << c.name << ", " << name << (got ? ": " + got->detail : "");
      if (got && want != c.want.end()) {
        EXPECT_EQ(got->code, want->second) << c.name << ", " << name << ": " << got->detail;
      }
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

// Relations by the names of nodes.
class Related {
 public:
  Related(const Snapshot& snapshot, const std::vector<const kube::Pod*>& members,
          bool include_virtual = false)
      : relations_(snapshot, members, NodesOf(snapshot), include_virtual) {
    for (const auto& [name, info] : snapshot.nodes()) numbers_.emplace(name, numbers_.size());
  }

  std::optional<Rejection> Check(size_t member, const std::string& node) const {
    const int kind = relations_.KindOf(member);
    std::optional<Rejection> why_not = relations_.WhyNot(kind, numbers_.at(node));
    EXPECT_EQ(relations_.Allows(kind, numbers_.at(node)), !why_not.has_value());
    return why_not;
  }
  void Place(size_t member, const std::string& node) {
    relations_.Place(relations_.KindOf(member), numbers_.at(node));
  }
  void Remove(size_t member, const std::string& node) {
    relations_.Remove(relations_.KindOf(member), numbers_.at(node));
  }
  int64_t PreferenceScore(size_t member, const std::string& node) const {
    return relations_.PreferenceScore(member, numbers_.at(node));
  }
  bool between_members() const { return relations_.between_members(); }

 private:
  static std::vector<const NodeInfo*> NodesOf(const Snapshot& snapshot) {
    std::vector<const NodeInfo*> nodes;
    for (const auto& [name, info] : snapshot.nodes()) nodes.push_back(&info);
    return nodes;
  }

  Relations relations_;
  std::map<std::string, int> numbers_;
};

TEST(Relations, WithVirtualNodesThoseAreDomainsToo) {
  Snapshot snapshot;
  AddTwoZones(snapshot);
  kube::NodeClaim claim = MakeClaim("c");
  claim.meta.labels[kube::kZoneLabel] = "c";
  snapshot.Upsert(claim);
  snapshot.Upsert(BoundTo(App("x0", "x"), "a1"));
  snapshot.Upsert(BoundTo(App("x1", "x"), "b1"));
  kube::Pod pod = Spread({SpreadOver(kube::kZoneLabel)});
  const Related related(snapshot, {&pod}, /*include_virtual=*/true);
  EXPECT_EQ(related.Check(0, "a1")->code, kTopologySpread);
  EXPECT_EQ(related.Check(0, "nodeclaim/c"), std::nullopt);
}

TEST(Relations, CountWhatIsPlacedAndTakeItBack) {
  Snapshot snapshot;
  AddTwoZones(snapshot);
  // Members that stay in one zone, each on a node of its own.
  std::vector<kube::Pod> members;
  for (const char* name : {"m0", "m1", "m2"}) {
    members.push_back(Shuns(Wants(App(name, "job"), {TermFor("app", "job", kube::kZoneLabel)}),
                            {TermFor("app", "job", kube::kHostnameLabel)}));
  }
  Related related(snapshot, {&members[0], &members[1], &members[2]});
  EXPECT_TRUE(related.between_members());
  EXPECT_EQ(related.Check(0, "a1"), std::nullopt);
  related.Place(0, "a1");
  EXPECT_EQ(related.Check(1, "a1")->code, kPodAntiAffinity);
  EXPECT_EQ(related.Check(1, "b1")->code, kPodAffinity);
  EXPECT_EQ(related.Check(1, "a2"), std::nullopt);
  related.Place(1, "a2");
  for (const auto& [name, info] : snapshot.nodes()) {
    EXPECT_NE(related.Check(2, name), std::nullopt) << name;
  }
  related.Remove(1, "a2");
  related.Remove(0, "a1");
  EXPECT_EQ(related.Check(2, "b1"), std::nullopt);
}

TEST(Relations, AMembersAntiAffinityKeepsOtherMembersAway) {
  Snapshot snapshot;
  AddTwoZones(snapshot);
  kube::Pod leader = Shuns(App("leader", "l"), {TermFor("app", "w", kube::kHostnameLabel)});
  kube::Pod worker = App("worker", "w");
  Related related(snapshot, {&leader, &worker});
  related.Place(0, "a1");
  EXPECT_EQ(related.Check(1, "a1")->code, kExistingAntiAffinity);
  EXPECT_EQ(related.Check(1, "a2"), std::nullopt);
}

TEST(Relations, MembersThatStandInTheSnapshotDoNotCount) {
  Snapshot snapshot;
  AddTwoZones(snapshot);
  kube::Pod pod = Shuns(App("p", "x"), {TermFor("app", "x", kube::kHostnameLabel)});
  kube::Pod other = Shuns(App("q", "x"), {TermFor("app", "x", kube::kHostnameLabel)});
  snapshot.Upsert(BoundTo(pod, "a1"));
  Related related(snapshot, {&pod, &other});
  EXPECT_EQ(related.Check(1, "a1"), std::nullopt);
  related.Place(0, "a1");
  EXPECT_NE(related.Check(1, "a1"), std::nullopt);
}

TEST(Relations, AreNoneBetweenMembersThatNoTermSelects) {
  Snapshot snapshot;
  AddTwoZones(snapshot);
  snapshot.Upsert(BoundTo(App("db", "db"), "a1"));
  kube::Pod plain = App("p", "x");
  EXPECT_FALSE(Related(snapshot, {&plain}).between_members());
  kube::Pod beside_db = Wants(plain, {TermFor("app", "db", kube::kZoneLabel)});
  EXPECT_FALSE(Related(snapshot, {&beside_db}).between_members());
}

TEST(Relations, SayWhatStandsInTheWay) {
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
       "no pod that its affinity asks for in topology.kubernetes.io/zone=b"},
      {Wants(MakePod("p"), {TermFor("app", "db", kRack)}), "b1",
       "label rack of its pod affinity is missing"},
      {Shuns(MakePod("p"), {TermFor("app", "db", kube::kHostnameLabel)}), "a1",
       "kubernetes.io/hostname=a1 holds 1 pods that its anti-affinity keeps away from"},
      {App("p", "web"), "a2",
       "topology.kubernetes.io/zone=a holds 1 pods whose anti-affinity keeps it away"},
      {Spread({SpreadOver(kRack)}), "a1", "label rack of its topology spread is missing"},
  };
  for (const Message& message : messages) {
    EXPECT_EQ(CheckRelations(snapshot, message.pod, *snapshot.FindNode(message.node))->detail,
              message.want);
  }
}

// kube-scheduler tries a node both with the pods that are nominated for it and without.
TEST(Relations, ANominatedPodIsNoCompanyAndIsKeptAwayFrom) {
  Snapshot snapshot;
  AddTwoZones(snapshot);
  const auto nominate = [&](kube::Pod pod) {
    pod.meta.uid = "pod-nominated";
    pod.nominated_node_name = "a1";
    snapshot.Upsert(pod);
  };
  const auto why_not = [&](const kube::Pod& pod, const char* node) -> std::optional<RejectionCode> {
    const auto rejection = CheckRelations(snapshot, pod, *snapshot.FindNode(node));
    return rejection ? std::optional(rejection->code) : std::nullopt;
  };
  nominate(App("n", "x"));
  EXPECT_EQ(why_not(Wants(App("p", "y"), {TermFor("app", "x", kube::kZoneLabel)}), "a1"),
            kPodAffinity)
      << "it may go elsewhere";
  const kube::Pod shy = Shuns(App("p", "y"), {TermFor("app", "x", kube::kZoneLabel)});
  EXPECT_EQ(why_not(shy, "a1"), kPodAntiAffinity);
  EXPECT_EQ(why_not(shy, "a2"), std::nullopt) << "on that node it is asked about alone";

  nominate(Shuns(App("n", "z"), {TermFor("app", "y", kube::kZoneLabel)}));
  EXPECT_EQ(why_not(shy, "a1"), kExistingAntiAffinity);
  EXPECT_EQ(why_not(App("p", "y"), "a1"), std::nullopt)
      << "where nothing that stands concerns a pod kube-scheduler doesn't look further";
  snapshot.Upsert(
      BoundTo(Shuns(App("stands", "z"), {TermFor("app", "y", kube::kHostnameLabel)}), "b1"));
  EXPECT_EQ(why_not(App("p", "y"), "a1"), kExistingAntiAffinity);

  nominate(App("n", "x"));
  const kube::Pod spread = With(App("p", "x"), [](kube::PodSpec& spec) {
    spec.topology_spread = {SpreadOver(kube::kZoneLabel)};
  });
  EXPECT_EQ(why_not(spread, "a1"), kTopologySpread);
  EXPECT_EQ(why_not(spread, "a2"), std::nullopt);
}

TEST(Relations, PreferredTermsCountTheirWeightWhereTheyAreMet) {
  Snapshot snapshot;
  AddTwoZones(snapshot);
  snapshot.Upsert(BoundTo(App("db0", "db"), "a1"));
  snapshot.Upsert(BoundTo(App("db1", "db"), "a1"));
  kube::Pod pod = With(MakePod("p"), [](kube::PodSpec& spec) {
    spec.affinity.preferred_pod_affinity = {{7, TermFor("app", "db", kube::kZoneLabel)},
                                            {9, TermFor("app", "web", kube::kZoneLabel)}};
    spec.affinity.preferred_pod_anti_affinity = {{2, TermFor("app", "db", kube::kHostnameLabel)}};
  });
  kube::Pod plain = App("q", "db");
  const Related related(snapshot, {&plain, &pod});
  EXPECT_EQ(related.PreferenceScore(1, "a1"), 7 - 2);
  EXPECT_EQ(related.PreferenceScore(1, "a2"), 7);
  EXPECT_EQ(related.PreferenceScore(1, "b1"), 0);
  EXPECT_EQ(related.PreferenceScore(0, "a1"), 0);
  EXPECT_FALSE(related.between_members());
}

TEST(Relations, SoftSpreadCountsTheSkewAgainst) {
  Snapshot snapshot;
  AddTwoZones(snapshot);
  for (int i = 0; i < 3; ++i) {
    snapshot.Upsert(BoundTo(App("x" + std::to_string(i), "x"), "a1"));
  }
  kube::TopologySpreadConstraint soft = SpreadOver(kube::kZoneLabel);
  soft.do_not_schedule = false;
  kube::TopologySpreadConstraint by_rack = SpreadOver(kRack);
  by_rack.do_not_schedule = false;
  kube::Pod pod = Spread({soft});
  kube::Pod not_selected = pod;
  not_selected.meta.labels.clear();
  kube::Pod without_label = Spread({by_rack});
  const Related related(snapshot, {&pod, &not_selected, &without_label});
  EXPECT_EQ(related.PreferenceScore(0, "a1"), -3);
  EXPECT_EQ(related.PreferenceScore(0, "b1"), 0);
  EXPECT_EQ(related.PreferenceScore(1, "a1"), -2);
  EXPECT_EQ(related.PreferenceScore(2, "a1"), -100);
  EXPECT_EQ(related.Check(0, "a1"), std::nullopt);
}

// Members with terms of every sort on random nodes: what was placed, and what was taken back, is to
// the next one as if it stood there, or not.
TEST(Relations, WhatIsPlacedCountsAsWhatStands) {
  std::mt19937_64 random(1);
  auto one_in = [&](size_t n) { return random() % n == 0; };
  const std::vector<std::string> keys = {kube::kZoneLabel, kube::kHostnameLabel, kRack};
  auto key = [&] { return keys[random() % keys.size()]; };
  auto app = [&] { return std::string(one_in(2) ? "x" : "y"); };
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    Snapshot snapshot;
    std::vector<std::string> nodes;
    for (int n = 0; n < 5; ++n) {
      kube::Node node = MakeNode("n" + std::to_string(n), one_in(2) ? "a" : "b");
      if (!one_in(4)) node.meta.labels[kRack] = one_in(2) ? "r" : "s";
      snapshot.Upsert(node);
      nodes.push_back(node.meta.name);
    }
    std::vector<kube::Pod> pods;
    for (int p = 0; p < 6; ++p) {
      pods.push_back(With(App("p" + std::to_string(p), app()), [&](kube::PodSpec& spec) {
        if (one_in(3)) spec.affinity.required_pod_affinity = {TermFor("app", app(), key())};
        if (one_in(3)) spec.affinity.required_pod_anti_affinity = {TermFor("app", app(), key())};
        if (one_in(3)) spec.topology_spread = {SpreadOver(key(), 1 + random() % 2)};
        if (one_in(3)) spec.node_selector = {{kube::kZoneLabel, "a"}};
      }));
    }
    std::vector<const kube::Pod*> members;
    for (const kube::Pod& pod : pods) {
      members.push_back(&pod);
      snapshot.Upsert(pod);
    }
    Related related(snapshot, members);
    for (size_t p = 0; p + 1 < pods.size(); ++p) {
      const std::string& passing = nodes[random() % nodes.size()];
      related.Place(p, passing);
      if (one_in(3)) {
        related.Remove(p, passing);
      } else {
        ASSERT_TRUE(snapshot.Assume(pods[p].meta.uid, passing).ok());
      }
      for (const std::string& node : nodes) {
        const auto want = CheckRelations(snapshot, pods.back(), *snapshot.FindNode(node));
        EXPECT_EQ(related.Check(pods.size() - 1, node), want) << "round " << round << " " << node;
        refused += want.has_value();
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace muster::cluster
