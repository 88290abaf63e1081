#include "cluster/node_families.h"

#include <gtest/gtest.h>

#include <vector>

#include "cluster/predicates.h"
#include "cluster/snapshot.h"
#include "cluster/test_objects.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

using namespace test;

// Each differs from all others by more than names.
std::vector<kube::Node> DifferentNodes() {
  std::vector<kube::Node> nodes = {MakeNode("n"), MakeNode("n", "a"), MakeNode("n", "b")};
  kube::Node node = MakeNode("n");
  node.unschedulable = true;
  nodes.push_back(node);
  node = MakeNode("n");
  node.meta.labels["last"] = "";
  nodes.push_back(node);
  node = MakeNode("n");
  node.meta.labels["a"] = "x";
  nodes.push_back(node);
  for (auto effect : {kube::TaintEffect::kNoSchedule, kube::TaintEffect::kNoExecute}) {
    node = MakeNode("n");
    node.taints = {{"x", "y", effect}};
    nodes.push_back(node);
  }
  node.taints = {{"x", "y", kube::TaintEffect::kNoExecute}, {"z", "", {}}};
  nodes.push_back(node);
  node = MakeNode("n");
  node.allocatable.Set("example.com/x", 0);
  nodes.push_back(node);
  return nodes;
}

TEST(NodeFamilies, TellApartByAllButNames) {
  NodeFamilies families;
  std::vector<kube::Node> nodes = DifferentNodes();
  for (size_t a = 0; a < nodes.size(); ++a) {
    EXPECT_EQ(families.Join(nodes[a]), static_cast<int>(a));
    for (size_t b = 0; b < nodes.size(); ++b) {
      kube::Node other = nodes[b];
      other.meta.name = "other";
      for (const char* hostname : {"n", "other", ""}) {
        other.meta.labels[kube::kHostnameLabel] = hostname;
        EXPECT_EQ(NodeFamilies::Alike(nodes[a], other), a == b) << a << " and " << b;
      }
      other.meta.labels.erase(kube::kHostnameLabel);
      EXPECT_EQ(NodeFamilies::Alike(nodes[a], other), a == b) << a << " and " << b;
    }
  }
  for (size_t a = 0; a < nodes.size(); ++a) {
    nodes[a].meta.labels[kube::kHostnameLabel] = "other";
    EXPECT_EQ(families.Join(nodes[a]), static_cast<int>(a));
  }
}

TEST(NodeFamilies, DoNotTellApartByAmounts) {
  kube::Node other = MakeNode("n");
  other.allocatable.Set("cpu", 1);
  EXPECT_TRUE(NodeFamilies::Alike(MakeNode("n"), other));
}

TEST(NodeFamilies, GiveTheNumberOfAFamilyThatDiedOutAgain) {
  NodeFamilies families;
  EXPECT_EQ(families.Join(MakeNode("a", "x")), 0);
  EXPECT_EQ(families.Join(MakeNode("b", "x")), 0);
  EXPECT_EQ(families.Join(MakeNode("c", "y")), 1);
  families.Leave(0);
  EXPECT_EQ(families.Join(MakeNode("d", "z")), 2);
  families.Leave(0);
  EXPECT_EQ(families.Join(MakeNode("e", "w")), 0);
  EXPECT_EQ(families.Join(MakeNode("f", "x")), 3);
}

TEST(NodeFamilies, FollowANodeThatChanges) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a", "x"));
  snapshot.Upsert(MakeNode("b", "x"));
  auto family = [&](const char* name) { return snapshot.FindNode(name)->family; };
  EXPECT_EQ(family("a"), family("b"));
  kube::Node cordoned = MakeNode("b", "x");
  cordoned.unschedulable = true;
  snapshot.Upsert(cordoned);
  EXPECT_NE(family("a"), family("b"));
  snapshot.Upsert(MakeNode("b", "x"));
  EXPECT_EQ(family("a"), family("b"));
  snapshot.RemoveNode("a");
  snapshot.Upsert(MakeNode("c", "x"));
  EXPECT_EQ(family("b"), family("c"));
}

TEST(ClassCheck, JudgesNodesOfOneFamilyByTheirNamesWhereAPodAsksForThem) {
  Snapshot snapshot;
  for (const char* name : {"a", "b", "c"}) snapshot.Upsert(MakeNode(name, "x"));
  kube::Node far = MakeNode("far", "y");
  snapshot.Upsert(far);
  auto check = [&](const kube::Pod& pod) {
    ClassCheck checks(snapshot, pod);
    std::string allowed;
    for (const auto& [name, info] : snapshot.nodes()) {
      auto rejection = checks.Check(info);
      EXPECT_EQ(rejection, CheckClass(snapshot, pod, info));
      auto code_only = checks.Check(info, Detail::kOmitted);
      EXPECT_EQ(rejection.has_value(), code_only.has_value());
      if (!rejection) allowed += name + " ";
      if (!rejection || !code_only) continue;
      EXPECT_EQ(rejection->code, code_only->code);
      EXPECT_EQ(code_only->detail, "");
    }
    return allowed;
  };
  auto asking = [](const kube::NodeSelectorTerm& term) {
    return With(MakePod("p"), [&](kube::PodSpec& spec) {
      spec.affinity.required_node_terms.emplace().push_back(term);
    });
  };
  EXPECT_EQ(check(MakePod("p")), "a b c far ");
  EXPECT_EQ(
      check(With(MakePod("p"), [](auto& spec) { spec.node_selector[kube::kZoneLabel] = "x"; })),
      "a b c ");
  EXPECT_EQ(
      check(With(MakePod("p"), [](auto& spec) { spec.node_selector[kube::kHostnameLabel] = "b"; })),
      "b ");
  EXPECT_EQ(check(asking({{{kube::kHostnameLabel, kube::SelectorOperator::kNotIn, {"b"}}}, {}})),
            "a c far ");
  EXPECT_EQ(check(asking({{}, {{"metadata.name", kube::SelectorOperator::kIn, {"c"}}}})), "c ");
}

}  // namespace
}  // namespace muster::cluster
