#include "cluster/profile.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "cluster/predicates.h"
#include "cluster/test_objects.h"

namespace muster::cluster {
namespace {

using test::BoundTo;
using test::MakeNode;
using test::MakePod;
using test::With;
using Terms = std::optional<std::vector<kube::NodeSelectorTerm>>;

kube::NodeSelectorTerm TermInZone(const std::string& zone) {
  return {{{kube::kZoneLabel, kube::SelectorOperator::kIn, {zone}}}, {}};
}

Terms TermsOf(std::vector<kube::NodeSelectorTerm> terms) { return terms; }

struct AffinityCase {
  const char* name;
  Terms own;
  Terms added;
  std::vector<std::string> zones;  // where the pod may go
};

TEST(AddedAffinity, HoldsBesideThePodsOwn) {
  kube::NodeSelectorTerm by_name;
  by_name.match_fields = {{"metadata.name", kube::SelectorOperator::kIn, {"z2"}}};
  const kube::NodeSelectorTerm silent;
  const std::vector<AffinityCase> cases = {
      {"neither", {}, {}, {"z1", "z2", "z3"}},
      {"added alone", {}, TermsOf({TermInZone("z1"), TermInZone("z2")}), {"z1", "z2"}},
      {"own alone", TermsOf({TermInZone("z1")}), {}, {"z1"}},
      {"both",
       TermsOf({TermInZone("z2"), TermInZone("z3")}),
       TermsOf({TermInZone("z1"), TermInZone("z2")}),
       {"z2"}},
      {"one by name", TermsOf({by_name}), TermsOf({TermInZone("z1"), TermInZone("z2")}), {"z2"}},
      {"no node of both", TermsOf({TermInZone("z3")}), TermsOf({TermInZone("z1")}), {}},
      {"an own term that says nothing", TermsOf({silent}), TermsOf({TermInZone("z1")}), {}},
      {"an added term that says nothing",
       TermsOf({TermInZone("z1")}),
       TermsOf({silent, TermInZone("z1")}),
       {"z1"}},
      {"added without terms", {}, TermsOf({}), {}},
  };
  Snapshot snapshot;
  for (const char* zone : {"z1", "z2", "z3"}) snapshot.Upsert(MakeNode(zone, zone));
  for (const AffinityCase& c : cases) {
    kube::Pod pod =
        With(MakePod("p"), [&](kube::PodSpec& spec) { spec.affinity.required_node_terms = c.own; });
    const AddedAffinity added{c.added, {}};
    added.ApplyTo(&pod);
    std::vector<std::string> zones;
    for (const auto& [name, info] : snapshot.nodes()) {
      if (!CheckClass(snapshot, pod, info)) zones.push_back(name);
    }
    EXPECT_EQ(zones, c.zones) << c.name;
  }
}

TEST(AddedAffinity, DoesNotSayOverWhichNodesThePodsOwnTopologySpreadCounts) {
  Snapshot snapshot;
  for (const char* zone : {"z1", "z2", "z3"}) snapshot.Upsert(MakeNode(zone, zone));
  snapshot.Upsert(BoundTo(MakePod("q"), "z1"));
  kube::Pod pod = With(MakePod("p"), [](kube::PodSpec& spec) {
    spec.affinity.required_node_terms = TermsOf({TermInZone("z1"), TermInZone("z2")});
    kube::TopologySpreadConstraint spread;
    spread.topology_key = kube::kZoneLabel;
    spread.selector = kube::LabelSelector{{{"none", kube::SelectorOperator::kDoesNotExist, {}}}};
    spec.topology_spread = {spread};
  });
  AddedAffinity{TermsOf({TermInZone("z1"), TermInZone("z3")}), {}}.ApplyTo(&pod);
  EXPECT_EQ(CheckClass(snapshot, pod, *snapshot.FindNode("z1")), std::nullopt);
  EXPECT_EQ(CheckRelations(snapshot, pod, *snapshot.FindNode("z1"))->code,
            RejectionCode::kTopologySpread)
      << "z2 counts, too, and is empty";
}

TEST(AddedAffinity, PreferencesAddUp) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a", "z1"));
  kube::Pod pod = With(MakePod("p"), [](kube::PodSpec& spec) {
    spec.affinity.preferred_node_terms = {{5, TermInZone("z1")}};
  });
  AddedAffinity{{}, {{7, TermInZone("z1")}, {9, TermInZone("z2")}}}.ApplyTo(&pod);
  EXPECT_EQ(NodePreferenceScore(*pod.spec, *snapshot.FindNode("a")), 12);
}

TEST(ScoringStrategy, IsKubeSchedulersFormula) {
  using Type = ScoringStrategy::Type;
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));  // 96 cpu, 8 GPUs
  snapshot.Upsert(BoundTo(MakePod("q", {{"cpu", 24'000}, {"nvidia.com/gpu", 1}}), "a"));
  const NodeInfo& node = *snapshot.FindNode("a");
  const kube::Pod pod = MakePod("p", {{"cpu", 24'000}, {"nvidia.com/gpu", 1}});
  const std::vector<std::pair<std::string, int64_t>> both = {
      {"cpu", 1}, {"nvidia.com/gpu", 3}, {"none.com/x", 50}};
  EXPECT_EQ((ScoringStrategy{Type::kFewestDevicesLeft, both, {}}.ScoreOf(*pod.spec, node)), 0);
  EXPECT_EQ((ScoringStrategy{Type::kMostAllocated, both, {}}.ScoreOf(*pod.spec, node)),
            (50 + 3 * 25) / 4);
  EXPECT_EQ((ScoringStrategy{Type::kLeastAllocated, both, {}}.ScoreOf(*pod.spec, node)),
            (50 + 3 * 75) / 4);
  // cpu at 50: 10 + (40 - 10) * 50 / 100; GPUs at 25.
  EXPECT_EQ((ScoringStrategy{Type::kRequestedToCapacityRatio, both, {{0, 1}, {100, 4}}}.ScoreOf(
                *pod.spec, node)),
            19);
  // Of what scores 0 the weight doesn't count either.
  EXPECT_EQ(
      (ScoringStrategy{Type::kRequestedToCapacityRatio, both, {{25, 0}, {50, 8}, {80, 2}}}.ScoreOf(
          *pod.spec, node)),
      80);
  const kube::Pod large = MakePod("r", {{"cpu", 96'000}});
  EXPECT_EQ((ScoringStrategy{Type::kLeastAllocated, {{"cpu", 1}}, {}}.ScoreOf(*large.spec, node)),
            0);
  EXPECT_EQ((ScoringStrategy{Type::kMostAllocated, {{"cpu", 1}}, {}}.ScoreOf(*large.spec, node)),
            100);
}

}  // namespace
}  // namespace muster::cluster
