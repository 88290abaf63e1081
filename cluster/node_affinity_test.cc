#include "cluster/node_affinity.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "cluster/snapshot.h"
#include "cluster/test_objects.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

using namespace test;
using enum kube::SelectorOperator;

using Terms = std::vector<kube::NodeSelectorTerm>;

struct AffinityCase {
  const char* name;
  std::function<void(kube::PodSpec&)> ask;
  bool want;
};

TEST(MatchesNodeAffinity, DecidesAsKubeScheduler) {
  auto terms = [](const Terms& terms) {
    return [terms](kube::PodSpec& spec) { spec.affinity.required_node_terms = terms; };
  };
  kube::Node node = MakeNode("a", "z1");
  node.meta.labels["gpus"] = "8";
  const std::vector<AffinityCase> cases = {
      {"nothing asked", [](kube::PodSpec&) {}, true},
      {"nodeSelector met",
       [](kube::PodSpec& spec) { spec.node_selector = {{kube::kZoneLabel, "z1"}}; }, true},
      {"nodeSelector with another value",
       [](kube::PodSpec& spec) { spec.node_selector = {{kube::kZoneLabel, "z2"}}; }, false},
      {"nodeSelector on a missing label",
       [](kube::PodSpec& spec) { spec.node_selector = {{"x", ""}}; }, false},
      {"no terms match nothing", terms({}), false},
      {"an empty term matches nothing", terms({{}}), false},
      {"an empty term beside one that matches", terms({{}, {{In(kube::kZoneLabel, {"z1"})}, {}}}),
       true},
      {"terms are alternatives",
       terms({{{In(kube::kZoneLabel, {"z2"})}, {}}, {{In(kube::kZoneLabel, {"z1"})}, {}}}), true},
      {"expressions of a term are all needed",
       terms({{{In(kube::kZoneLabel, {"z1"}), In("gpus", {"4"})}, {}}}), false},
      {"NotIn", terms({{{{kube::kZoneLabel, kNotIn, {"z2"}}}, {}}}), true},
      {"NotIn on a missing label", terms({{{{"x", kNotIn, {"y"}}}, {}}}), true},
      {"Exists", terms({{{{"gpus", kExists, {}}}, {}}}), true},
      {"DoesNotExist", terms({{{{"gpus", kDoesNotExist, {}}}, {}}}), false},
      {"Gt", terms({{{{"gpus", kGt, {"7"}}}, {}}}), true},
      {"Lt", terms({{{{"gpus", kLt, {"8"}}}, {}}}), false},
      {"metadata.name In", terms({{{}, {In("metadata.name", {"a"})}}}), true},
      {"metadata.name In, another node", terms({{{}, {In("metadata.name", {"b"})}}}), false},
      {"metadata.name NotIn", terms({{{}, {{"metadata.name", kNotIn, {"b"}}}}}), true},
      {"metadata.name NotIn itself", terms({{{}, {{"metadata.name", kNotIn, {"a"}}}}}), false},
      {"metadata.name In two values is invalid", terms({{{}, {In("metadata.name", {"a", "b"})}}}),
       false},
      {"metadata.name Exists is invalid", terms({{{}, {{"metadata.name", kExists, {}}}}}), false},
      {"another field never matches", terms({{{}, {In("spec.providerID", {"x"})}}}), false},
      {"fields and expressions are both needed",
       terms({{{In(kube::kZoneLabel, {"z2"})}, {In("metadata.name", {"a"})}}}), false},
      {"nodeSelector and affinity are both needed",
       [](kube::PodSpec& spec) {
         spec.node_selector = {{kube::kZoneLabel, "z2"}};
         spec.affinity.required_node_terms = Terms{{{In(kube::kZoneLabel, {"z1"})}, {}}};
       },
       false},
  };
  for (const AffinityCase& c : cases) {
    kube::PodSpec spec;
    c.ask(spec);
    EXPECT_EQ(MatchesNodeAffinity(spec, node), c.want) << c.name;
  }
}

struct OpenCase {
  const char* name;
  std::vector<kube::Requirement> claim;
  std::vector<kube::Requirement> pod;
  bool want;
  bool launched = false;
};

TEST(CouldMatchNodeAffinity, LeavesOpenWhatTheClaimLeavesOpen) {
  const std::string type = "node.kubernetes.io/instance-type";
  const std::vector<OpenCase> cases = {
      {"the claim's only value",
       {In(kube::kZoneLabel, {"z1"})},
       {In(kube::kZoneLabel, {"z1"})},
       true},
      {"not the claim's only value",
       {In(kube::kZoneLabel, {"z1"})},
       {In(kube::kZoneLabel, {"z2"})},
       false},
      {"one of several values", {In(type, {"p4d", "p5"})}, {In(type, {"p5"})}, true},
      {"none of several values", {In(type, {"p4d", "p5"})}, {In(type, {"g5"})}, false},
      {"two asks that no single value meets",
       {In(type, {"p4d", "p5"})},
       {In(type, {"p5"}), {type, kNotIn, {"p5"}}},
       false},
      {"two asks that one value meets",
       {In(type, {"p4d", "p5"})},
       {In(type, {"p4d", "p5"}), {type, kNotIn, {"p5"}}},
       true},
      {"Exists on a key that will be there",
       {In(type, {"p4d", "p5"})},
       {{type, kExists, {}}},
       true},
      {"DoesNotExist on a key that will be there",
       {In(type, {"p4d", "p5"})},
       {{type, kDoesNotExist, {}}},
       false},
      {"Gt met by one of several values",
       {In("karpenter.k8s.aws/instance-gpu-count", {"4", "8"})},
       {{"karpenter.k8s.aws/instance-gpu-count", kGt, {"4"}}},
       true},
      {"Gt met by none",
       {In("karpenter.k8s.aws/instance-gpu-count", {"4", "8"})},
       {{"karpenter.k8s.aws/instance-gpu-count", kGt, {"8"}}},
       false},
      {"bounds that leave a number", {{"gen", kGt, {"3"}}}, {{"gen", kLt, {"5"}}}, true},
      {"bounds that leave none", {{"gen", kGt, {"3"}}}, {{"gen", kLt, {"4"}}}, false},
      {"a value that the claim rules out", {{type, kNotIn, {"p5"}}}, {In(type, {"p5"})}, false},
      {"a value that the claim doesn't rule out",
       {{type, kNotIn, {"p5"}}},
       {In(type, {"p4d"})},
       true},
      {"a key that the claim says won't be there",
       {{"spot", kDoesNotExist, {}}},
       {{"spot", kDoesNotExist, {}}},
       true},
      {"a value for a key that won't be there",
       {{"spot", kDoesNotExist, {}}},
       {In("spot", {"yes"})},
       false},
      {"a well-known key that isn't mentioned", {}, {In(kube::kZoneLabel, {"z1"})}, true},
      {"a provider's key that isn't mentioned",
       {},
       {In("karpenter.k8s.aws/instance-family", {"p5"})},
       true},
      {"a well-known key under its old name",
       {In(kube::kZoneLabel, {"z1", "z2"})},
       {In("failure-domain.beta.kubernetes.io/zone", {"z3"})},
       false},
      {"a key of one's own that isn't mentioned", {}, {In("team", {"ml"})}, false},
      {"NotIn on a key of one's own that isn't mentioned", {}, {{"team", kNotIn, {"ml"}}}, true},
      {"once launched, a well-known key that is missing stays missing",
       {},
       {In(kube::kZoneLabel, {"z1"})},
       false,
       true},
  };
  for (const OpenCase& c : cases) {
    for (bool as_selector : {false, true}) {
      kube::NodeClaim claim = MakeClaim("c");
      claim.requirements = c.claim;
      if (c.launched) SetTrue(claim, "Launched");
      Snapshot snapshot;
      snapshot.Upsert(claim);
      kube::PodSpec spec;
      std::vector<kube::Requirement> expressions = c.pod;
      if (as_selector) {
        // The first ask as a nodeSelector must give the same verdict.
        if (c.pod[0].op != kIn || c.pod[0].values.size() != 1) continue;
        spec.node_selector = {{c.pod[0].key, c.pod[0].values[0]}};
        expressions.erase(expressions.begin());
      }
      if (!expressions.empty()) spec.affinity.required_node_terms = Terms{{expressions, {}}};
      EXPECT_EQ(CouldMatchNodeAffinity(spec, *snapshot.FindNode("nodeclaim/c")), c.want) << c.name;
    }
  }
}

TEST(CouldMatchNodeAffinity, IsExactOnceTheNodeIsRegistered) {
  kube::NodeClaim claim = Launched(MakeClaim("c"), "id");
  claim.requirements = {In("team", {"ml", "web"})};
  Snapshot snapshot;
  snapshot.Upsert(claim);
  kube::PodSpec spec;
  spec.node_selector = {{"team", "ml"}};
  snapshot.Upsert(MakeEarlyNode("a", "id"));
  EXPECT_TRUE(CouldMatchNodeAffinity(spec, *snapshot.FindNode("a")));
  snapshot.Upsert(Registered(MakeEarlyNode("a", "id")));
  EXPECT_FALSE(CouldMatchNodeAffinity(spec, *snapshot.FindNode("a")));
}

TEST(CouldMatchNodeAffinity, NoOneKnowsTheNameOfANodeThatIsComing) {
  Snapshot snapshot;
  snapshot.Upsert(MakeClaim("c"));
  kube::PodSpec spec;
  spec.affinity.required_node_terms = Terms{{{}, {In("metadata.name", {"a"})}}};
  EXPECT_FALSE(CouldMatchNodeAffinity(spec, *snapshot.FindNode("nodeclaim/c")));
  spec.affinity.required_node_terms = Terms{{{}, {{"metadata.name", kNotIn, {"a"}}}}};
  EXPECT_TRUE(CouldMatchNodeAffinity(spec, *snapshot.FindNode("nodeclaim/c")));
}

}  // namespace
}  // namespace muster::cluster
