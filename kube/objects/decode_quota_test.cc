#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kube/objects/decode.h"

namespace muster::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

// Every object decodes, whatever is in it.
template <typename T>
T Read(const std::string& body) {
  auto object = Decode<T>(R"({"metadata":{"name":"it"},)" + body + "}");
  EXPECT_TRUE(object.ok()) << object.status();
  if (!object.ok()) return {};
  EXPECT_EQ(object->meta.name, "it");
  return *std::move(object);
}

template <typename T>
std::string Error(const std::string& spec) {
  return Read<T>(R"("spec":)" + spec).error;
}

// `count` times `part` with {} replaced by the index, separated by commas.
std::string Repeat(int count, const std::string& part) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += ',';
    const size_t at = part.find("{}");
    text += at == std::string::npos ? part
                                    : part.substr(0, at) + std::to_string(i) + part.substr(at + 2);
  }
  return text;
}

// A queue in a cohort with one group of one resource and one flavor.
std::string QueueWithAmounts(const std::string& amounts,
                             const std::string& resource = "nvidia.com/gpu") {
  return fmt::format(R"({{"cohortName":"all","resourceGroups":[{{"coveredResources":["{0}"],)"
                     R"("flavors":[{{"name":"f","resources":[{{"name":"{0}",{1}}}]}}]}}]}})",
                     resource, amounts);
}

std::string GroupsError(const std::string& groups) {
  return Error<ClusterQueue>(R"({"resourceGroups":)" + groups + "}");
}

constexpr const char* kAmounts = "spec.resourceGroups[0].flavors[0].resources[0]";

// What v1beta1 and v1beta2 share.
constexpr const char* kSharedQueueFields = R"(
  "resourceGroups":[
    {"coveredResources":["cpu","memory"],"flavors":[
      {"name":"general","resources":[
        {"name":"cpu","nominalQuota":"1500m","borrowingLimit":2},
        {"name":"memory","nominalQuota":"4Gi","lendingLimit":"1Gi"}]}]},
    {"coveredResources":["nvidia.com/gpu"],"flavors":[
      {"name":"nvidia","resources":[{"name":"nvidia.com/gpu","nominalQuota":64}]},
      {"name":"nvidia-efa","resources":[{"name":"nvidia.com/gpu","nominalQuota":"36"}]}]}],
  "queueingStrategy":"StrictFIFO",
  "namespaceSelector":{"matchLabels":{"team":"ml"}},
  "preemption":{"reclaimWithinCohort":"Any","withinClusterQueue":"LowerOrNewerEqualPriority",
    "borrowWithinCohort":{"policy":"LowerPriority","maxPriorityThreshold":-100}},
  "stopPolicy":"Hold","fairSharing":{"weight":"2500m"},
  "admissionScope":{"admissionMode":"UsageBasedAdmissionFairSharing"})";

TEST(DecodeClusterQueue, ReadsBothVersionsAlike) {
  const ClusterQueue older = Read<ClusterQueue>(R"("apiVersion":"kueue.x-k8s.io/v1beta1",
    "spec":{"cohort":"research","admissionChecks":["budget"],
    "flavorFungibility":{"whenCanBorrow":"Borrow","whenCanPreempt":"Preempt"},)" +
                                                std::string(kSharedQueueFields) + "}");
  const ClusterQueue newer = Read<ClusterQueue>(R"("apiVersion":"kueue.x-k8s.io/v1beta2",
    "spec":{"cohortName":"research",
    "admissionChecksStrategy":{"admissionChecks":[{"name":"budget","onFlavors":["nvidia"]}]},
    "flavorFungibility":{"whenCanBorrow":"MayStopSearch","whenCanPreempt":"MayStopSearch"},)" +
                                                std::string(kSharedQueueFields) + "}");
  for (const ClusterQueue* queue : {&older, &newer}) {
    EXPECT_EQ(queue->error, "");
    EXPECT_EQ(queue->cohort, "research");
    ASSERT_EQ(queue->resource_groups.size(), 2u);
    EXPECT_THAT(queue->resource_groups[0].covered_resources, ElementsAre("cpu", "memory"));
    EXPECT_THAT(queue->resource_groups[0].flavors,
                ElementsAre(FlavorQuotas{"general",
                                         {{"cpu", 1500, 2000, std::nullopt},
                                          {"memory", int64_t{4} << 30, std::nullopt, 1 << 30}}}));
    EXPECT_THAT(
        queue->resource_groups[1].flavors,
        ElementsAre(
            FlavorQuotas{"nvidia", {{"nvidia.com/gpu", 64, std::nullopt, std::nullopt}}},
            FlavorQuotas{"nvidia-efa", {{"nvidia.com/gpu", 36, std::nullopt, std::nullopt}}}));
    EXPECT_EQ(queue->strategy, QueueingStrategy::kStrictFifo);
    EXPECT_EQ(queue->namespace_selector,
              LabelSelector({{{"team", SelectorOperator::kIn, {"ml"}}}}));
    EXPECT_EQ(queue->fungibility,
              (FlavorFungibility{FungibilityPolicy::kMayStopSearch,
                                 FungibilityPolicy::kMayStopSearch, std::nullopt}));
    EXPECT_EQ(queue->preemption,
              (PreemptionPolicy{ReclaimPolicy::kAny, WithinQueuePolicy::kLowerOrNewerEqualPriority,
                                true, -100}));
    EXPECT_EQ(queue->stop_policy, StopPolicy::kHold);
    EXPECT_EQ(queue->fair_weight_milli, 2500);
    EXPECT_THAT(queue->admission_checks, ElementsAre("budget"));
    EXPECT_TRUE(queue->usage_based_admission);
  }
}

TEST(DecodeClusterQueue, AbsentFieldsTakeTheApisDefaults) {
  for (const char* spec : {R"("spec":{})", R"("spec":null)",
                           R"("spec":{"flavorFungibility":{},"preemption":{},"fairSharing":{},
                              "namespaceSelector":null,"cohort":""})"}) {
    const ClusterQueue queue = Read<ClusterQueue>(spec);
    EXPECT_EQ(queue.error, "");
    EXPECT_EQ(queue.cohort, "");
    EXPECT_TRUE(queue.resource_groups.empty());
    EXPECT_EQ(queue.strategy, QueueingStrategy::kBestEffortFifo);
    EXPECT_EQ(queue.namespace_selector, std::nullopt);
    EXPECT_EQ(queue.fungibility.when_can_borrow, FungibilityPolicy::kMayStopSearch);
    EXPECT_EQ(queue.fungibility.when_can_preempt, FungibilityPolicy::kTryNextFlavor);
    EXPECT_EQ(queue.preemption, PreemptionPolicy());
    EXPECT_EQ(queue.stop_policy, StopPolicy::kNone);
    EXPECT_EQ(queue.fair_weight_milli, 1000);
  }
  EXPECT_EQ(Read<ClusterQueue>(R"("spec":{"namespaceSelector":{}})").namespace_selector,
            LabelSelector());
}

TEST(DecodeClusterQueue, BothSpellingsOfTheCohortMustAgree) {
  EXPECT_EQ(Read<ClusterQueue>(R"("spec":{"cohort":"a","cohortName":"a"})").error, "");
  EXPECT_EQ(Error<ClusterQueue>(R"({"cohort":"a","cohortName":"b"})"),
            "spec.cohort: a contradicts spec.cohortName: b");
}

TEST(DecodeClusterQueue, AnUnusableAmountNamesItsField) {
  struct Case {
    const char* amounts;
    std::string error;  // after kAmounts
    const char* resource = "nvidia.com/gpu";
  };
  for (const Case& c : {
           Case{R"("nominalQuota":"8","borrowingLimit":"0","lendingLimit":"8")", ""},
           Case{R"("nominalQuota":"-1")", ".nominalQuota: -1 is negative"},
           Case{R"("nominalQuota":-1)", ".nominalQuota: -1 is negative"},
           Case{R"("nominalQuota":"1e30")",
                ".nominalQuota: \"1e30\" is out of range: the largest amount is "
                "9223372036854775807"},
           Case{R"("nominalQuota":"9223372036854775807")",
                ".nominalQuota: \"9223372036854775807\" is out of range: the largest amount is "
                "9223372036854775807m",
                "cpu"},
           Case{R"("nominalQuota":"plenty")", ".nominalQuota: \"plenty\" is not a quantity"},
           Case{R"("nominalQuota":null)", ".nominalQuota: missing"},
           Case{R"("nominalQuota":true)", ".nominalQuota: want string, got true"},
           Case{R"("nominalQuota":"8","borrowingLimit":"-2")", ".borrowingLimit: -2 is negative"},
           Case{R"("nominalQuota":"8","lendingLimit":"1x")",
                ".lendingLimit: \"1x\" is not a quantity"},
           Case{R"("nominalQuota":"8","lendingLimit":"9")",
                ".lendingLimit: 9 is above nominalQuota 8"},
           Case{R"("nominalQuota":"1","lendingLimit":"1500m")",
                ".lendingLimit: 1500m is above nominalQuota 1", "cpu"},
       }) {
    EXPECT_EQ(Error<ClusterQueue>(QueueWithAmounts(c.amounts, c.resource)),
              c.error.empty() ? "" : kAmounts + c.error)
        << c.amounts;
  }
}

TEST(DecodeClusterQueue, LimitsNeedACohort) {
  const auto error = [](const std::string& amounts) {
    return GroupsError(R"([{"coveredResources":["cpu"],"flavors":[{"name":"f","resources":[
        {"name":"cpu","nominalQuota":"4",)" +
                       amounts + "}]}]}]");
  };
  EXPECT_EQ(error(R"("borrowingLimit":null)"), "");
  EXPECT_EQ(
      error(R"("borrowingLimit":"1")"),
      std::string(kAmounts) + ".borrowingLimit: 1 without a cohort to borrow from or lend to");
  EXPECT_EQ(
      error(R"("lendingLimit":"500m")"),
      std::string(kAmounts) + ".lendingLimit: 500m without a cohort to borrow from or lend to");
}

TEST(DecodeClusterQueue, GroupsThatContradictThemselvesNameTheField) {
  const auto resources = [](const std::string& name) {
    return R"([{"name":")" + name + R"(","nominalQuota":1}])";
  };
  const std::string flavor_f = R"({"name":"f","resources":)" + resources("cpu") + "}";
  const std::string flavor_g = R"({"name":"g","resources":)" + resources("memory") + "}";
  struct Case {
    std::string groups;
    std::string error;
  };
  const std::vector<Case> cases = {
      Case{R"([{"coveredResources":["cpu"],"flavors":[)" + flavor_f +
               R"(]},{"coveredResources":["memory"],"flavors":[)" + flavor_g + "]}]",
           ""},
      // The workshop's two mistakes: names where objects belong, `resources` in their place.
      Case{R"([{"flavors":["nvidia","nvidia-efa"],"resources":[]}])",
           "spec.resourceGroups[0].flavors[0]: want an object, got \"nvidia\""},
      Case{R"([{"coveredResources":["cpu"],"flavors":[)" + flavor_f +
               R"(]},{"coveredResources":["cpu"],"flavors":[]}])",
           "spec.resourceGroups[1].coveredResources[0]: cpu is covered already"},
      Case{R"([{"coveredResources":["cpu"],"flavors":[)" + flavor_f +
               R"(]},{"coveredResources":["memory"],"flavors":[{"name":"f","resources":)" +
               resources("memory") + "}]}]",
           "spec.resourceGroups[1].flavors[0].name: f is listed already"},
      Case{R"([{"coveredResources":["cpu"],"flavors":[)" + flavor_f + "," + flavor_f + "]}]",
           "spec.resourceGroups[0].flavors[1].name: f is listed already"},
      Case{R"([{"coveredResources":["memory"],"flavors":[)" + flavor_f + "]}]",
           std::string(kAmounts) + ".name: \"cpu\" must be memory, as in coveredResources[0]"},
      Case{R"([{"coveredResources":["cpu","memory"],"flavors":[)" + flavor_f + "]}]",
           "spec.resourceGroups[0].flavors[0].resources: 1 entries, must be as many as "
           "coveredResources: 2 (memory is missing)"},
      Case{R"([{"coveredResources":[],"flavors":[)" + flavor_f + "]}]",
           "spec.resourceGroups[0].coveredResources: must not be empty"},
      Case{R"([{"coveredResources":["cpu"]}])",
           "spec.resourceGroups[0].flavors: must not be empty"},
      Case{R"([{"coveredResources":["a b"],"flavors":[]}])",
           "spec.resourceGroups[0].coveredResources[0]: \"a b\" is not a resource's name"},
      Case{R"([{"coveredResources":["cpu"],"flavors":[{"name":"F_","resources":)" +
               resources("cpu") + "}]}]",
           "spec.resourceGroups[0].flavors[0].name: \"F_\" can't be a flavor's name"},
  };
  for (const Case& c : cases) EXPECT_EQ(GroupsError(c.groups), c.error) << c.groups;
}

// A group of `resources` resources, each with its own name, and `flavors` flavors.
std::string Group(const std::string& prefix, int resources, int flavors) {
  const std::string amounts =
      Repeat(resources, R"({"name":")" + prefix + R"({}","nominalQuota":1})");
  return R"({"coveredResources":[)" + Repeat(resources, "\"" + prefix + "{}\"") +
         R"(],"flavors":[)" +
         Repeat(flavors, R"({"name":")" + prefix + R"({}","resources":[)" + amounts + "]}") + "]}";
}

std::string Groups(int count, int resources, int flavors) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += ',';
    text += Group(std::string(1, static_cast<char>('a' + i)), resources, flavors);
  }
  return "[" + text + "]";
}

TEST(DecodeClusterQueue, NoMoreOfAnythingThanTheApiHolds) {
  EXPECT_EQ(GroupsError(Groups(16, 1, 1)), "");
  EXPECT_EQ(GroupsError(Groups(17, 1, 1)), "spec.resourceGroups: 17 entries, at most 16");
  EXPECT_EQ(GroupsError(Groups(1, 64, 1)), "");
  EXPECT_EQ(GroupsError(Groups(1, 65, 1)),
            "spec.resourceGroups[0].coveredResources: 65 entries, at most 64");
  EXPECT_EQ(GroupsError(Groups(1, 1, 65)),
            "spec.resourceGroups[0].flavors: 65 entries, at most 64");
  EXPECT_EQ(GroupsError(Groups(4, 1, 64)), "");
  EXPECT_EQ(GroupsError(Groups(5, 1, 60)), "spec.resourceGroups: 300 flavors in all, at most 256");
  EXPECT_EQ(GroupsError(Groups(5, 60, 1)),
            "spec.resourceGroups: 300 covered resources in all, at most 256");
  EXPECT_EQ(GroupsError(Groups(1, 16, 32)), "");
  EXPECT_EQ(GroupsError(Groups(1, 27, 19)),
            "spec.resourceGroups[0]: 513 amounts (flavors times resources), at most 512");
}

TEST(DecodeClusterQueue, UnknownChoicesNameTheKnownOnes) {
  struct Case {
    const char* spec;
    const char* error;
  };
  for (const Case& c : {
           Case{R"({"queueingStrategy":"LIFO"})",
                "spec.queueingStrategy: unknown value \"LIFO\", known are BestEffortFIFO, "
                "StrictFIFO"},
           Case{R"({"stopPolicy":"Drain"})",
                "spec.stopPolicy: unknown value \"Drain\", known are None, Hold, HoldAndDrain"},
           Case{R"({"flavorFungibility":{"whenCanBorrow":"Preempt"}})",
                "spec.flavorFungibility.whenCanBorrow: unknown value \"Preempt\""},
           Case{R"({"flavorFungibility":{"whenCanPreempt":"Borrow"}})",
                "spec.flavorFungibility.whenCanPreempt: unknown value \"Borrow\""},
           Case{R"({"flavorFungibility":{"preference":"Cheapest"}})",
                "spec.flavorFungibility.preference: unknown value \"Cheapest\""},
           Case{R"({"preemption":{"reclaimWithinCohort":"Sometimes"}})",
                "spec.preemption.reclaimWithinCohort: unknown value \"Sometimes\""},
           Case{R"({"preemption":{"withinClusterQueue":"Any"}})",
                "spec.preemption.withinClusterQueue: unknown value \"Any\""},
           Case{R"({"preemption":{"borrowWithinCohort":{"policy":"Any"}}})",
                "spec.preemption.borrowWithinCohort.policy: unknown value \"Any\""},
           Case{R"({"admissionScope":{"admissionMode":"Lottery"}})",
                "spec.admissionScope.admissionMode: unknown value \"Lottery\""},
           Case{R"({"queueingStrategy":7})", "spec.queueingStrategy: want string, got 7"},
       }) {
    EXPECT_THAT(Error<ClusterQueue>(c.spec), StartsWith(c.error)) << c.spec;
  }
}

TEST(DecodeClusterQueue, ChoicesThatContradictEachOther) {
  EXPECT_EQ(Error<ClusterQueue>(R"({"flavorFungibility":{"whenCanBorrow":"TryNextFlavor",
                "preference":"PreemptionOverBorrowing"}})"),
            "");
  EXPECT_EQ(
      Error<ClusterQueue>(R"({"flavorFungibility":{"preference":"BorrowingOverPreemption"}})"),
      "spec.flavorFungibility.preference: BorrowingOverPreemption needs whenCanBorrow and "
      "whenCanPreempt TryNextFlavor");
  EXPECT_EQ(Error<ClusterQueue>(R"({"preemption":{"borrowWithinCohort":{"policy":"Never"}}})"), "");
  EXPECT_EQ(
      Error<ClusterQueue>(R"({"preemption":{"borrowWithinCohort":{"policy":"LowerPriority"}}})"),
      "spec.preemption.borrowWithinCohort.policy: LowerPriority needs a reclaimWithinCohort "
      "other than Never");
  EXPECT_EQ(Error<ClusterQueue>(
                R"({"preemption":{"borrowWithinCohort":{"maxPriorityThreshold":3000000000}}})"),
            "spec.preemption.borrowWithinCohort.maxPriorityThreshold: want a 32-bit integer, got "
            "3000000000");
  EXPECT_EQ(Read<ClusterQueue>(R"("spec":{"flavorFungibility":{"whenCanBorrow":"TryNextFlavor",
                "whenCanPreempt":"TryNextFlavor","preference":"PreemptionOverBorrowing"}})")
                .fungibility.preference,
            FungibilityPreference::kPreemptionOverBorrowing);
}

TEST(DecodeClusterQueue, WeightsAreThousandthsAndNothingFiner) {
  const auto weight = [](const std::string& text) {
    return Read<ClusterQueue>(R"("spec":{"fairSharing":{"weight":)" + text + "}}");
  };
  EXPECT_EQ(weight("\"0\"").fair_weight_milli, 0);
  EXPECT_EQ(weight("3").fair_weight_milli, 3000);
  EXPECT_EQ(weight("0.5").fair_weight_milli, 500);
  EXPECT_EQ(weight("\"1m\"").fair_weight_milli, 1);
  EXPECT_EQ(weight("\"1Ki\"").fair_weight_milli, 1'024'000);
  for (const char* good : {"\"0\"", "3", "0.5", "\"1m\"", "\"1Ki\""}) {
    EXPECT_EQ(weight(good).error, "");
  }
  EXPECT_EQ(weight("\"-1\"").error, "spec.fairSharing.weight: -1 is negative");
  EXPECT_EQ(weight("\"1n\"").error, "spec.fairSharing.weight: 1n is finer than a thousandth");
  EXPECT_EQ(weight("\"1.0005\"").error,
            "spec.fairSharing.weight: 1000500u is finer than a thousandth");
  EXPECT_EQ(weight("\"1e10\"").error,
            "spec.fairSharing.weight: \"1e10\" is out of range: the largest amount is "
            "9223372036854775807n");
  EXPECT_EQ(weight("\"heavy\"").error, "spec.fairSharing.weight: \"heavy\" is not a quantity");
}

TEST(DecodeClusterQueue, ANamespaceSelectorThatCantBeUsedNamesTheField) {
  struct Case {
    const char* selector;
    const char* error;
  };
  for (const Case& c : {
           Case{R"({"matchExpressions":[{"key":"a","operator":"Exists"}]})", ""},
           Case{R"({"matchLabels":{"a b":"x"}})",
                "spec.namespaceSelector.matchLabels.a b: \"a b\" is not a label's key"},
           Case{R"({"matchLabels":{"a":"x y"}})",
                "spec.namespaceSelector.matchLabels.a: \"x y\" is not a label's value"},
           Case{R"({"matchExpressions":[{"key":"a","operator":"Near","values":["x"]}]})",
                "spec.namespaceSelector.matchExpressions[0].operator: unknown operator \"Near\""},
           Case{R"({"matchExpressions":[{"key":"a","operator":"In"}]})",
                "spec.namespaceSelector.matchExpressions[0].values: In needs values"},
           Case{R"({"matchExpressions":[{"key":"a","operator":"Exists","values":["x"]}]})",
                "spec.namespaceSelector.matchExpressions[0].values: Exists takes no values"},
           Case{R"({"matchExpressions":[{"operator":"Exists"}]})",
                "spec.namespaceSelector.matchExpressions[0].key: \"\" is not a label's key"},
           Case{R"({"matchExpressions":[{"key":"a","operator":"In","values":["-"]}]})",
                "spec.namespaceSelector.matchExpressions[0].values[0]: \"-\" is not a label's "
                "value"},
           Case{R"("all")", "spec.namespaceSelector: want an object, got \"all\""},
       }) {
    EXPECT_EQ(Error<ClusterQueue>(std::string(R"({"namespaceSelector":)") + c.selector + "}"),
              c.error)
        << c.selector;
  }
}

TEST(DecodeResourceFlavor, ReadsEveryField) {
  const ResourceFlavor flavor = Read<ResourceFlavor>(R"("spec":{
    "nodeLabels":{"karpenter.sh/nodepool":"nvidia-efa"},
    "nodeTaints":[{"key":"nvidia.com/gpu","value":"true","effect":"NoSchedule"}],
    "tolerations":[{"key":"nvidia.com/gpu","operator":"Exists","effect":"NoSchedule"},
                   {"key":"spot","value":"yes","effect":"NoExecute","tolerationSeconds":30},
                   {"operator":"Exists"}],
    "topologyName":"blocks"})");
  EXPECT_EQ(flavor.error, "");
  EXPECT_THAT(flavor.node_labels, ElementsAre(Pair("karpenter.sh/nodepool", "nvidia-efa")));
  EXPECT_THAT(flavor.node_taints,
              ElementsAre(Taint{"nvidia.com/gpu", "true", TaintEffect::kNoSchedule}));
  EXPECT_THAT(flavor.tolerations,
              ElementsAre(Toleration{"nvidia.com/gpu", true, "", TaintEffect::kNoSchedule},
                          Toleration{"spot", false, "yes", TaintEffect::kNoExecute},
                          Toleration{"", true, "", std::nullopt}));
  EXPECT_THAT(flavor.toleration_seconds,
              ElementsAre(std::nullopt, std::optional<int64_t>(30), std::nullopt));
  EXPECT_EQ(flavor.topology_name, "blocks");

  const ResourceFlavor empty = Read<ResourceFlavor>(R"("spec":{})");
  EXPECT_EQ(empty.error, "");
  EXPECT_TRUE(empty.node_labels.empty());
}

TEST(DecodeTopology, HasItsLevelsInTheirOrder) {
  const Topology topology = Read<Topology>(
      R"("spec":{"levels":[{"nodeLabel":"cloud/block"},{"nodeLabel":"kubernetes.io/hostname"}]})");
  EXPECT_EQ(topology.error, "");
  EXPECT_THAT(topology.levels, ElementsAre("cloud/block", "kubernetes.io/hostname"));
}

TEST(DecodeTopology, WhatCantBeUsedNamesTheField) {
  const auto error = [](const std::string& levels) {
    return Read<Topology>(R"("spec":{"levels":[)" + levels + "]}").error;
  };
  EXPECT_EQ(error(""), "spec.levels: missing");
  EXPECT_EQ(error(R"({"nodeLabel":"a b"})"),
            "spec.levels[0].nodeLabel: \"a b\" is not a label's key");
  EXPECT_EQ(error(R"({"nodeLabel":"a"},{"nodeLabel":"a"})"),
            "spec.levels[1].nodeLabel: a is listed already");
  EXPECT_EQ(error(R"({"nodeLabel":"kubernetes.io/hostname"},{"nodeLabel":"a"})"),
            "spec.levels[1].nodeLabel: below kubernetes.io/hostname there is nothing");
  EXPECT_EQ(error(Repeat(17, R"({"nodeLabel":"l{}"})")), "spec.levels: 17 entries, at most 16");
}

TEST(DecodeResourceFlavor, WhatCantBeUsedNamesTheField) {
  struct Case {
    std::string spec;
    std::string error;
  };
  for (const Case& c : {
           Case{R"({"nodeLabels":{)" + Repeat(8, R"("l{}":"x")") + "}}", ""},
           Case{R"({"nodeLabels":{)" + Repeat(9, R"("l{}":"x")") + "}}",
                "spec.nodeLabels: 9 entries, at most 8"},
           Case{R"({"nodeLabels":{"a b":"x"}})",
                "spec.nodeLabels.a b: \"a b\" is not a label's key"},
           Case{R"({"nodeLabels":{"a":"x/y"}})",
                "spec.nodeLabels.a: \"x/y\" is not a label's value"},
           Case{R"({"nodeLabels":["a"]})", "spec.nodeLabels: want an object, got an array"},
           Case{R"({"nodeTaints":[)" + Repeat(9, R"({"key":"k{}","effect":"NoExecute"})") + "]}",
                "spec.nodeTaints: 9 entries, at most 8"},
           Case{R"({"nodeTaints":[{"key":"k"}]})",
                "spec.nodeTaints[0].effect: a taint needs an effect"},
           Case{R"({"nodeTaints":[{"key":"k","effect":"Never"}]})",
                "spec.nodeTaints[0].effect: unknown effect \"Never\""},
           Case{R"({"nodeTaints":[{"effect":"NoExecute"}]})",
                "spec.nodeTaints[0].key: \"\" is not a label's key"},
           Case{R"({"nodeTaints":[{"key":"k","value":"?","effect":"NoExecute"}]})",
                "spec.nodeTaints[0].value: \"?\" is not a label's value"},
           Case{R"({"nodeTaints":[{"key":"k","effect":"NoExecute"},
                                  {"key":"k","value":"x","effect":"NoExecute"}]})",
                "spec.nodeTaints[1]: k with effect NoExecute is listed already"},
           Case{R"({"tolerations":[)" + Repeat(9, R"({"key":"k{}","operator":"Exists"})") + "]}",
                "spec.tolerations: 9 entries, at most 8"},
           Case{R"({"tolerations":[{"operator":"Like","key":"k"}]})",
                "spec.tolerations[0].operator: unknown operator \"Like\""},
           Case{R"({"tolerations":[{"value":"x"}]})",
                "spec.tolerations[0].operator: must be Exists where key is empty"},
           Case{R"({"tolerations":[{"key":"k","operator":"Exists","value":"x"}]})",
                "spec.tolerations[0].value: \"x\" must be empty with operator Exists"},
           Case{R"({"tolerations":[{"key":"a b","operator":"Exists"}]})",
                "spec.tolerations[0].key: \"a b\" is not a label's key"},
           Case{R"({"tolerations":[{"key":"k","value":"x y"}]})",
                "spec.tolerations[0].value: \"x y\" is not a label's value"},
           Case{R"({"tolerations":[{"key":"k","operator":"Exists","tolerationSeconds":5}]})",
                "spec.tolerations[0].tolerationSeconds: needs effect NoExecute"},
           Case{R"({"topologyName":"t"})", "spec.topologyName: t needs nodeLabels"},
           Case{R"({"topologyName":"T_","nodeLabels":{"a":"b"}})",
                "spec.topologyName: \"T_\" can't be a name"},
           Case{R"("none")", "spec: want an object, got \"none\""},
       }) {
    EXPECT_EQ(Error<ResourceFlavor>(c.spec), c.error) << c.spec;
  }
}

TEST(DecodeLocalQueue, ReadsEveryField) {
  const LocalQueue queue = Read<LocalQueue>(
      R"("spec":{"clusterQueue":"gpu","stopPolicy":"HoldAndDrain","fairSharing":{"weight":2}})");
  EXPECT_EQ(queue.error, "");
  EXPECT_EQ(queue.cluster_queue, "gpu");
  EXPECT_EQ(queue.stop_policy, StopPolicy::kHoldAndDrain);
  EXPECT_EQ(queue.fair_weight_milli, 2000);
}

TEST(DecodeLocalQueue, WhatCantBeUsedNamesTheField) {
  EXPECT_EQ(Error<LocalQueue>("{}"), "spec.clusterQueue: missing");
  EXPECT_EQ(Error<LocalQueue>(R"({"clusterQueue":"a/b"})"),
            "spec.clusterQueue: \"a/b\" can't be a name");
  EXPECT_EQ(Error<LocalQueue>(R"({"clusterQueue":["a"]})"),
            "spec.clusterQueue: want string, got an array");
  EXPECT_THAT(Error<LocalQueue>(R"({"clusterQueue":"a","stopPolicy":"Stop"})"),
              StartsWith("spec.stopPolicy: unknown value \"Stop\""));
  EXPECT_EQ(Error<LocalQueue>(R"({"clusterQueue":"a","fairSharing":{"weight":"-2"}})"),
            "spec.fairSharing.weight: -2 is negative");
}

TEST(DecodeCohort, ReadsEveryField) {
  const Cohort cohort = Read<Cohort>(R"("spec":{"parentName":"company","fairSharing":{"weight":4},
    "resourceGroups":[{"coveredResources":["cpu"],"flavors":[{"name":"f","resources":[
      {"name":"cpu","nominalQuota":0,"borrowingLimit":"5","lendingLimit":"10"}]}]}]})");
  // It lends what its members have, so its own nominal quota is no bound.
  EXPECT_EQ(cohort.error, "");
  EXPECT_EQ(cohort.parent, "company");
  EXPECT_EQ(cohort.fair_weight_milli, 4000);
  ASSERT_EQ(cohort.resource_groups.size(), 1u);
  EXPECT_THAT(cohort.resource_groups[0].flavors,
              ElementsAre(FlavorQuotas{"f", {{"cpu", 0, 5000, 10000}}}));
  EXPECT_EQ(Read<Cohort>(R"("spec":{})").parent, "");
}

TEST(DecodeCohort, WhatCantBeUsedNamesTheField) {
  EXPECT_EQ(Error<Cohort>(R"({"resourceGroups":[{"coveredResources":["cpu"],"flavors":[
                {"name":"f","resources":[{"name":"cpu","nominalQuota":1,"lendingLimit":1}]}]}]})"),
            std::string(kAmounts) + ".lendingLimit: 1 without a cohort to borrow from or lend to");
  EXPECT_EQ(Error<Cohort>(R"({"parentName":"Top"})"), "spec.parentName: \"Top\" can't be a name");
  EXPECT_EQ(Error<Cohort>(R"({"fairSharing":{"weight":"x"}})"),
            "spec.fairSharing.weight: \"x\" is not a quantity");
  EXPECT_EQ(Error<Cohort>(R"({"resourceGroups":)" + Groups(17, 1, 1) + "}"),
            "spec.resourceGroups: 17 entries, at most 16");
  EXPECT_EQ(Error<Cohort>(R"({"resourceGroups":)" + Groups(5, 1, 60) + "}"), "");
}

TEST(DecodePriorityClass, ReadsItsValue) {
  const PriorityClass named =
      *Decode<PriorityClass>(R"({"metadata":{"name":"high"},"value":1000})");
  EXPECT_EQ(named.meta.name, "high");
  EXPECT_EQ(named.value, 1000);
  EXPECT_FALSE(named.global_default);
  EXPECT_TRUE(Decode<PriorityClass>(R"({"value":-5,"globalDefault":true})")->global_default);
  EXPECT_FALSE(Decode<PriorityClass>(R"({"value":"high"})").ok());
}

TEST(DecodeWorkloadPriorityClass, ReadsItsValue) {
  EXPECT_EQ(Read<WorkloadPriorityClass>(R"("value":-7)").value, -7);
  EXPECT_EQ(Read<WorkloadPriorityClass>(R"("value":-7)").error, "");
  EXPECT_EQ(Read<WorkloadPriorityClass>(R"("description":"none")").error, "value: missing");
  EXPECT_EQ(Read<WorkloadPriorityClass>(R"("value":"high")").error,
            "value: want an integer, got \"high\"");
  EXPECT_EQ(Read<WorkloadPriorityClass>(R"("value":2147483648)").error,
            "value: want a 32-bit integer, got 2147483648");
}

template <typename T>
void ExpectDecodedIfAnObject(const std::string& json) {
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  const bool is_object = !parser.parse(json).get(document) && document.is_object();
  EXPECT_EQ(Decode<T>(json).ok(), is_object) << json;
}

TEST(DecodeQuota, WhateverAnObjectHoldsItIsKept) {
  const std::string sound = R"({"metadata":{"name":"it"},"value":7,"spec":{"cohort":"research",)"
                            R"("nodeLabels":{"a":"b"},"nodeTaints":[{"key":"k"}],)"
                            R"("tolerations":[{"operator":"Exists"}],"clusterQueue":"q",)"
                            R"("parentName":"top",)" +
                            std::string(kSharedQueueFields) + "}}";
  ASSERT_TRUE(Decode<ClusterQueue>(sound).ok());
  constexpr std::string_view kSpare = "{}[]\",:0-1e.natx ";
  std::mt19937_64 random(20260102);
  for (int i = 0; i < 5'000; ++i) {
    std::string json = sound;
    for (uint64_t n = random() % 3 + 1; n > 0; --n) {
      const size_t at = random() % json.size();
      switch (random() % 3) {
        case 0:
          json[at] = kSpare[random() % kSpare.size()];
          break;
        case 1:
          json.erase(at, random() % 4);
          break;
        default:
          json.insert(at, 1, kSpare[random() % kSpare.size()]);
      }
    }
    ExpectDecodedIfAnObject<ResourceFlavor>(json);
    ExpectDecodedIfAnObject<ClusterQueue>(json);
    ExpectDecodedIfAnObject<LocalQueue>(json);
    ExpectDecodedIfAnObject<Cohort>(json);
    ExpectDecodedIfAnObject<WorkloadPriorityClass>(json);
  }
}

TEST(DecodeQuota, OnlyWhatIsNoObjectFailsToDecode) {
  EXPECT_THAT(Decode<ResourceFlavor>("[]").status().message(), HasSubstr("want a JSON object"));
  EXPECT_FALSE(Decode<ClusterQueue>("{").ok());
  EXPECT_FALSE(Decode<LocalQueue>("7").ok());
  EXPECT_FALSE(Decode<Cohort>("").ok());
  EXPECT_FALSE(Decode<WorkloadPriorityClass>("null").ok());
}

}  // namespace
}  // namespace muster::kube
