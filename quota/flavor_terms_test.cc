#include "quota/flavor_terms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace muster::quota {
namespace {

using kube::NodeSelectorTerm;
using kube::Requirement;
using kube::ResourceFlavor;
using kube::SelectorOperator;

ResourceFlavor Labelled(const std::string& name, kube::StringMap labels) {
  ResourceFlavor flavor;
  flavor.meta.name = name;
  flavor.node_labels = std::move(labels);
  return flavor;
}

// As Kueue does (flavorSelector): only keys that the flavor has count, and a term that is left
// without any matches it.
bool Matches(const NodeTerms& terms, const ResourceFlavor& flavor) {
  if (!terms) return true;
  for (const NodeSelectorTerm& term : *terms) {
    bool meets = true;
    for (const Requirement& requirement : term.match_expressions) {
      const auto label = flavor.node_labels.find(requirement.key);
      if (label != flavor.node_labels.end()) meets &= requirement.Matches(&label->second);
    }
    if (meets) return true;
  }
  return false;
}

Requirement In(const std::string& key, const std::string& value) {
  return {key, SelectorOperator::kIn, {value}};
}

TEST(FlavorTerms, AFlavorIsNamedByItsLabels) {
  const ResourceFlavor a = Labelled("a", {{"pool", "a"}});
  const ResourceFlavor b = Labelled("b", {{"pool", "b"}});
  EXPECT_THAT(*Only(b, {&a}), ::testing::ElementsAre(In("pool", "b")));
}

TEST(FlavorTerms, WhatMeetsOneOfEachIsEachWithEach) {
  const std::vector<Expressions> both =
      Combined({{In("pool", "a")}, {In("pool", "b")}}, {{In("cpu", "x")}});
  EXPECT_THAT(both, ::testing::ElementsAre(Expressions{In("pool", "a"), In("cpu", "x")},
                                           Expressions{In("pool", "b"), In("cpu", "x")}));
}

TEST(FlavorTerms, WhatAWorkloadAsksForIsAsItsUserWroteIt) {
  auto spec = std::make_shared<kube::PodSpec>();
  spec->affinity.required_node_terms = Restricted(std::nullopt, {{In("pool", "b")}});
  kube::Workload restricted;
  restricted.meta.uid = "w";
  restricted.meta.generation = 3;
  restricted.queue = "team";
  restricted.pod_sets.push_back({.name = "main", .count = 4, .spec = std::move(spec)});
  const Workload asked = AsAsked(restricted);
  EXPECT_EQ(asked.id, "w");
  EXPECT_EQ(asked.queue, "team");
  ASSERT_EQ(asked.pod_sets.size(), 1U);
  EXPECT_EQ(asked.pod_sets[0].name, "w/3/main");
  EXPECT_EQ(asked.pod_sets[0].count, 4);
  EXPECT_FALSE(asked.pod_sets[0].spec->affinity.required_node_terms.has_value());
}

TEST(FlavorTerms, AFlavorWithFewerLabelsCannotBeRuledOut) {
  const ResourceFlavor a = Labelled("a", {{"pool", "a"}});
  EXPECT_EQ(Only(a, {std::make_shared<ResourceFlavor>().get()}), std::nullopt);
  const ResourceFlavor same = Labelled("same", {{"pool", "a"}});
  EXPECT_EQ(Only(same, {&a}), std::nullopt);
  EXPECT_EQ(Only(Labelled("x", {}), {&a, std::make_shared<ResourceFlavor>().get()}), std::nullopt);
}

TEST(FlavorTerms, WhatItsUserAskedForStaysAndComesBack) {
  const NodeTerms asked = {
      {{{In("zone", "x")}, {}}, {{In("zone", "y")}, {In("metadata.name", "n")}}}};
  const NodeTerms with = Restricted(asked, {{In("pool", "b")}, {In("pool", "c")}});
  ASSERT_EQ(with->size(), 4u) << "each of the two for each flavor";
  for (const NodeSelectorTerm& term : *with) EXPECT_EQ(term.match_expressions[0].key, "zone");
  EXPECT_TRUE(IsRestricted(with));
  EXPECT_FALSE(IsRestricted(asked));
  EXPECT_EQ(Unrestricted(with), asked);
  EXPECT_EQ(Unrestricted(asked), asked);
  EXPECT_EQ(Restricted(with, {{In("pool", "d")}}), Restricted(asked, {{In("pool", "d")}}))
      << "the restriction before is gone";
  EXPECT_EQ(Restricted(with, {}), asked);
  EXPECT_EQ(Unrestricted(Restricted(std::nullopt, {{In("pool", "b")}})), std::nullopt);
}

// Whatever the labels: Kueue may choose exactly the flavors that are meant.
TEST(FlavorTerms, OnlyTheFlavorsThatAreMeantMatch) {
  std::mt19937_64 random(7);
  const auto below = [&](size_t n) { return random() % n; };
  size_t told = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<ResourceFlavor> group;
    for (size_t i = 0; i < 2 + below(4); ++i) {
      kube::StringMap labels;
      for (const char* key : {"gpu", "pool", "zone"}) {
        if (below(2) == 0) labels.emplace(key, std::string(1, static_cast<char>('a' + below(2))));
      }
      group.push_back(Labelled(std::to_string(i), labels));
    }
    std::vector<const ResourceFlavor*> out;
    std::vector<const ResourceFlavor*> open;
    for (const ResourceFlavor& flavor : group) (below(2) == 0 ? out : open).push_back(&flavor);
    if (out.empty()) continue;
    std::vector<std::vector<Requirement>> lists;
    std::vector<const ResourceFlavor*> meant;
    for (const ResourceFlavor* flavor : open) {
      if (auto only = Only(*flavor, out)) {
        lists.push_back(*only);
        meant.push_back(flavor);
      }
    }
    if (lists.empty()) continue;
    ++told;
    const NodeTerms terms = Restricted(std::nullopt, lists);
    for (const ResourceFlavor* flavor : meant) EXPECT_TRUE(Matches(terms, *flavor));
    for (const ResourceFlavor* flavor : out) EXPECT_FALSE(Matches(terms, *flavor));
  }
  EXPECT_GT(told, 1000u);
}

}  // namespace
}  // namespace muster::quota
