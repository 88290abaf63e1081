#include "kube/objects/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "kube/objects/time_text.h"

namespace muster::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

Pod PodOf(const std::string& spec, const std::string& status = "{}") {
  const auto pod = Decode<Pod>(R"({"metadata":{"name":"p","namespace":"n","labels":{"app":"a"}},)"
                               R"("spec":)" +
                               spec + R"(,"status":)" + status + "}");
  EXPECT_TRUE(pod.ok()) << pod.status();
  if (pod.ok()) return *pod;
  Pod none;
  none.spec = std::make_shared<const PodSpec>();
  return none;
}

std::string PodError(const std::string& json) {
  const auto pod = Decode<Pod>(json);
  return pod.ok() ? "" : std::string(pod.status().message());
}

std::string Requests(const std::string& spec, const std::string& status = "{}") {
  return PodOf(spec, status).spec->requests.ToString();
}

TEST(DecodeMeta, ReadsEveryField) {
  const auto pod = Decode<Pod>(R"({"apiVersion":"v1","kind":"Pod","metadata":{
    "name":"w-0","namespace":"team","uid":"u-1","resourceVersion":"123","generation":4,
    "creationTimestamp":"2025-03-01T10:00:00Z","deletionTimestamp":"2025-03-01T10:00:30.5Z",
    "labels":{"b":"2","a":"1"},
    "annotations":{"x":"y","kubectl.kubernetes.io/last-applied-configuration":"{}"},
    "ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"j","uid":"u-0",
                        "controller":true,"blockOwnerDeletion":true}],
    "finalizers":["f"],"managedFields":[{"manager":"kubectl"}]},"spec":{"containers":[]}})");
  ASSERT_TRUE(pod.ok()) << pod.status();
  const ObjectMeta& meta = pod->meta;
  EXPECT_EQ(meta.FullName(), "team/w-0");
  EXPECT_EQ(meta.uid, "u-1");
  EXPECT_EQ(meta.resource_version, "123");
  EXPECT_EQ(meta.generation, 4);
  EXPECT_EQ(absl::FormatTime(meta.creation_time, absl::UTCTimeZone()), "2025-03-01T10:00:00+00:00");
  ASSERT_TRUE(meta.deletion_time);
  EXPECT_EQ(*meta.deletion_time - meta.creation_time, absl::Seconds(30.5));
  EXPECT_THAT(meta.labels, ElementsAre(Pair("a", "1"), Pair("b", "2")));
  EXPECT_THAT(meta.annotations, ElementsAre(Pair("x", "y")));
  ASSERT_NE(meta.Controller(), nullptr);
  EXPECT_EQ(meta.Controller()->uid, "u-0");
  EXPECT_THAT(meta.finalizers, ElementsAre("f"));
}

TEST(DecodePod, AbsentAndNullFieldsTakeTheApisDefaults) {
  for (const char* json :
       {R"({"metadata":{"name":"p"}})",
        R"({"metadata":{"name":"p","labels":null,"creationTimestamp":null},"spec":null,
            "status":{"conditions":null,"phase":null}})"}) {
    const auto pod = Decode<Pod>(json);
    ASSERT_TRUE(pod.ok()) << pod.status();
    EXPECT_EQ(pod->scheduler_name, "default-scheduler");
    EXPECT_EQ(pod->phase, PodPhase::kPending);
    EXPECT_FALSE(pod->IsBound());
    EXPECT_EQ(pod->spec->requests.ToString(), "pods=1");
    EXPECT_EQ(pod->spec_error, "");
  }
}

TEST(DecodePod, WrongTypesNameTheField) {
  EXPECT_EQ(PodError(R"({"spec":{"nodeName":7}})"), "spec.nodeName: want string, got 7");
  EXPECT_EQ(PodError(R"({"spec":{"containers":{}}})"),
            "spec.containers: want an array, got an object");
  EXPECT_EQ(PodError(R"({"spec":{"containers":[{},{"resources":[]}]}})"),
            "spec.containers[1].resources: want an object, got an array");
  EXPECT_EQ(PodError(R"({"metadata":{"labels":{"a.b/c":1}}})"),
            "metadata.labels[a.b/c]: want string, got 1");
  EXPECT_EQ(PodError(R"({"metadata":{"creationTimestamp":"yesterday"}})"),
            "metadata.creationTimestamp: want an RFC 3339 time, got \"yesterday\"");
  EXPECT_EQ(PodError(R"({"spec":{"priority":3000000000}})"),
            "spec.priority: want a 32-bit integer, got 3000000000");
  EXPECT_EQ(PodError(R"({"spec":{"priority":1.5}})"), "spec.priority: want an integer, got 1.5");
  EXPECT_EQ(PodError(R"({"spec":{"hostNetwork":"yes"}})"),
            "spec.hostNetwork: want true or false, got \"yes\"");
  EXPECT_EQ(PodError("[]"), "want a JSON object");
}

TEST(DecodePod, BrokenJsonIsAnErrorAndTheNextDecodeIsFine) {
  for (const std::string json : {"", "{", "nul", R"({"metadata":{"name":"p"})", "\xff{}",
                                 R"({"spec":{"priority":123456789012345678901234567890}})"}) {
    EXPECT_THAT(PodError(json), HasSubstr("not valid JSON")) << json;
    EXPECT_TRUE(Decode<Pod>(R"({"metadata":{"name":"p"}})").ok());
  }
}

TEST(DecodePod, ExcerptsOfBadValuesAreCutBetweenCharacters) {
  const std::string error =
      PodError(R"({"spec":{"priority":")" + std::string(62, 'x') + "\u00e9\u00e9" + "\"}}");
  EXPECT_THAT(error, HasSubstr("..."));
  EXPECT_LT(error.size(), 130u);
  EXPECT_NE(static_cast<unsigned char>(error[error.size() - 4]), 0xC3);
}

TEST(PodRequests, SumsContainersAndCountsOnePod) {
  EXPECT_EQ(Requests(R"({"containers":[
      {"resources":{"requests":{"cpu":"500m","memory":"1Gi","nvidia.com/gpu":"8"}}},
      {"resources":{"requests":{"cpu":"1.5"}}}]})"),
            "cpu=2, memory=1Gi, nvidia.com/gpu=8, pods=1");
}

TEST(PodRequests, LimitsStandInForAbsentRequests) {
  EXPECT_EQ(Requests(R"({"containers":[{"resources":{
      "limits":{"cpu":"4","nvidia.com/gpu":2},"requests":{"cpu":"1"}}}]})"),
            "cpu=1, nvidia.com/gpu=2, pods=1");
}

TEST(PodRequests, AnInitContainersPeakCountsIfItIsLarger) {
  EXPECT_EQ(Requests(R"({
      "containers":[{"resources":{"requests":{"cpu":"2","memory":"1Gi"}}}],
      "initContainers":[{"resources":{"requests":{"cpu":"1","memory":"3Gi"}}},
                        {"resources":{"requests":{"cpu":"3"}}}]})"),
            "cpu=3, memory=3Gi, pods=1");
}

TEST(PodRequests, RestartableInitContainersRunBesideLaterStepsAndTheContainers) {
  // Steps: 1 (sidecar), 1+4 = 5 (init after it); running: 2 + 1 = 3.
  EXPECT_EQ(Requests(R"({
      "containers":[{"resources":{"requests":{"cpu":"2"}}}],
      "initContainers":[
        {"restartPolicy":"Always","resources":{"requests":{"cpu":"1","memory":"1Gi"}}},
        {"resources":{"requests":{"cpu":"4"}}}]})"),
            "cpu=5, memory=1Gi, pods=1");
  // A step before the sidecar runs without it: max(4, 2 + 1).
  EXPECT_EQ(Requests(R"({
      "containers":[{"resources":{"requests":{"cpu":"2"}}}],
      "initContainers":[
        {"resources":{"requests":{"cpu":"4"}}},
        {"restartPolicy":"Always","resources":{"requests":{"cpu":"1"}}}]})"),
            "cpu=4, pods=1");
}

TEST(PodRequests, OverheadIsAddedOnTop) {
  EXPECT_EQ(Requests(R"({"overhead":{"cpu":"250m","memory":"120Mi"},
      "containers":[{"resources":{"requests":{"cpu":"1"}}}]})"),
            "cpu=1250m, memory=120Mi, pods=1");
}

TEST(PodRequests, PodLevelResourcesOverrideTheSumForWhatTheyMayName) {
  EXPECT_EQ(Requests(R"({
      "resources":{"requests":{"cpu":"8","nvidia.com/gpu":"1"}},"overhead":{"cpu":"1"},
      "containers":[{"resources":{"requests":{"cpu":"1","memory":"1Gi","nvidia.com/gpu":"4"}}}]})"),
            "cpu=9, memory=1Gi, nvidia.com/gpu=4, pods=1");
}

TEST(PodRequests, PodLevelLimitsStandInOnlyWhereNoContainerAsks) {
  EXPECT_EQ(Requests(R"({
      "resources":{"limits":{"cpu":"8","memory":"4Gi","hugepages-2Mi":"64Mi"}},
      "containers":[{"resources":{"requests":{"cpu":"1"}}}]})"),
            "cpu=1, hugepages-2Mi=64Mi, memory=4Gi, pods=1");
}

TEST(PodRequests, AResizeInPlaceCountsTheLargerOfAskedAndAllocated) {
  const std::string spec =
      R"({"containers":[{"name":"c","resources":{"requests":{"cpu":"1","memory":"4Gi"}}}]})";
  const std::string statuses = R"("containerStatuses":[{"name":"c",
      "resources":{"requests":{"cpu":"2","memory":"2Gi"}},
      "allocatedResources":{"cpu":"3","memory":"1Gi"}}])";
  EXPECT_EQ(Requests(spec, "{" + statuses + "}"), "cpu=3, memory=4Gi, pods=1");
  EXPECT_EQ(Requests(spec, R"({"conditions":[{"type":"PodResizePending","status":"True",
      "reason":"Infeasible"}],)" +
                               statuses + "}"),
            "cpu=3, memory=2Gi, pods=1");
}

TEST(PodRequests, ResizesOfSeveralContainersCountByTheirSums) {
  const std::string spec = R"({"containers":[
      {"name":"grows","resources":{"requests":{"cpu":"3"}}},
      {"name":"shrinks","resources":{"requests":{"cpu":"1"}}}]})";
  EXPECT_EQ(Requests(spec, R"({"containerStatuses":[
      {"name":"grows","allocatedResources":{"cpu":"1"},"resources":{"requests":{"cpu":"1"}}},
      {"name":"shrinks","allocatedResources":{"cpu":"2"},"resources":{"requests":{"cpu":"4"}}}]})"),
            "cpu=5, pods=1");
}

TEST(PodRequests, AResizeOfAnInitContainerCountsToo) {
  EXPECT_EQ(
      Requests(R"({"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}],
                         "initContainers":[{"name":"i","resources":{"requests":{"cpu":"2"}}}]})",
               R"({"initContainerStatuses":[{"name":"i","allocatedResources":{"cpu":"3"}}]})"),
      "cpu=3, pods=1");
}

TEST(PodRequests, WhatThePodHasBeenGivenAsAWholeStandsForItsContainers) {
  const std::string containers =
      R"("containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}])";
  const std::string given =
      R"("allocatedResources":{"cpu":"3"},"resources":{"requests":{"cpu":"2","memory":"1Gi"}},
         "containerStatuses":[{"name":"c","allocatedResources":{"cpu":"9"}}])";
  EXPECT_EQ(Requests("{" + containers + "}", "{" + given + "}"), "cpu=3, memory=1Gi, pods=1");
}

TEST(PodRequests, AResizeOfThePodsOwnResourcesCountsTheLargerOfAskedAndGiven) {
  const std::string spec = R"({"resources":{"requests":{"cpu":"6"}},
      "containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]})";
  const std::string given =
      R"("allocatedResources":{"cpu":"8"},"resources":{"requests":{"cpu":"4"}})";
  EXPECT_EQ(Requests(spec, "{" + given + "}"), "cpu=8, pods=1");
  EXPECT_EQ(Requests(spec, R"({"allocatedResources":{"cpu":"4"},"resources":{}})"),
            "cpu=6, pods=1");
  EXPECT_EQ(Requests(spec, R"({"conditions":[{"type":"PodResizePending","status":"True",
      "reason":"Infeasible"}],"allocatedResources":{"cpu":"2"},"resources":{"requests":{"cpu":"4"}}})"),
            "cpu=4, pods=1");
}

TEST(PodRequests, UnusableQuantitiesAreExplainedNotLost) {
  const auto error = [](const std::string& requests) {
    return PodOf(R"({"containers":[{},{"resources":{"requests":)" + requests + "}}]}").spec_error;
  };
  const std::string where = "spec.containers[1].resources.requests.";
  EXPECT_THAT(error(R"({"memory":"lots"})"), HasSubstr(where + "memory: \"lots\""));
  EXPECT_THAT(error(R"({"cpu":"-1"})"), HasSubstr(where + "cpu: -1 is negative"));
  EXPECT_THAT(error(R"({"memory":"99999999999999999999"})"), HasSubstr(where + "memory: "));
  EXPECT_EQ(error(R"({"cpu":"1"})"), "");

  const Pod overflow = PodOf(R"({"containers":[
      {"resources":{"requests":{"nvidia.com/gpu":"9223372036854775807"}}},
      {"resources":{"requests":{"nvidia.com/gpu":"1"}}}]})");
  EXPECT_THAT(overflow.spec_error,
              HasSubstr("spec.containers[].resources.requests: nvidia.com/gpu"));
  EXPECT_EQ(overflow.meta.name, "p");
}

TEST(DecodePod, ReadsPlacementRules) {
  const Pod pod = PodOf(R"({
    "nodeSelector":{"zone":"a"},
    "tolerations":[{"key":"gpu","operator":"Exists","effect":"NoSchedule"},{"key":"k","value":"v"},
                   {"operator":"Exists"}],
    "affinity":{
      "nodeAffinity":{
        "requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
          {"matchExpressions":[{"key":"cpus","operator":"Gt","values":["8"]}],
           "matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]},
        "preferredDuringSchedulingIgnoredDuringExecution":[
          {"weight":5,"preference":{"matchExpressions":[{"key":"ssd","operator":"Exists"}]}}]},
      "podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
        {"labelSelector":{"matchLabels":{"app":"a"},
                          "matchExpressions":[{"key":"t","operator":"NotIn","values":["x"]}]},
         "topologyKey":"zone","namespaces":["other"],"namespaceSelector":{}}]},
      "podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[
        {"weight":7,"podAffinityTerm":{"topologyKey":"host"}}]}},
    "schedulingGates":[{"name":"muster.dev/admission"}],
    "runtimeClassName":"nvidia","resourceClaims":[{"name":"c"}],
    "priority":100,"priorityClassName":"high","preemptionPolicy":"Never","schedulerName":"coscheduling","nodeName":"n1"})");
  const PodSpec& spec = *pod.spec;
  EXPECT_THAT(spec.node_selector, ElementsAre(Pair("zone", "a")));
  ASSERT_EQ(spec.tolerations.size(), 3u);
  EXPECT_TRUE(spec.tolerations[0].exists);
  EXPECT_EQ(spec.tolerations[0].effect, TaintEffect::kNoSchedule);
  EXPECT_FALSE(spec.tolerations[1].exists);
  EXPECT_EQ(spec.tolerations[1].effect, std::nullopt);
  const Affinity& affinity = spec.affinity;
  ASSERT_TRUE(affinity.required_node_terms);
  ASSERT_EQ(affinity.required_node_terms->size(), 1u);
  EXPECT_THAT((*affinity.required_node_terms)[0].match_expressions,
              ElementsAre(Requirement{"cpus", SelectorOperator::kGt, {"8"}}));
  EXPECT_THAT((*affinity.required_node_terms)[0].match_fields,
              ElementsAre(Requirement{"metadata.name", SelectorOperator::kIn, {"n1"}}));
  ASSERT_EQ(affinity.preferred_node_terms.size(), 1u);
  EXPECT_EQ(affinity.preferred_node_terms[0].weight, 5);
  ASSERT_EQ(affinity.required_pod_affinity.size(), 1u);
  const PodAffinityTerm& term = affinity.required_pod_affinity[0];
  ASSERT_TRUE(term.selector);
  EXPECT_THAT(term.selector->requirements,
              ElementsAre(Requirement{"app", SelectorOperator::kIn, {"a"}},
                          Requirement{"t", SelectorOperator::kNotIn, {"x"}}));
  EXPECT_THAT(term.namespaces, ElementsAre("other"));
  ASSERT_TRUE(term.namespace_selector);
  EXPECT_TRUE(term.namespace_selector->requirements.empty());
  ASSERT_EQ(affinity.preferred_pod_anti_affinity.size(), 1u);
  EXPECT_EQ(affinity.preferred_pod_anti_affinity[0].weight, 7);
  EXPECT_FALSE(affinity.preferred_pod_anti_affinity[0].term.selector);
  EXPECT_TRUE(spec.uses_resource_claims);
  EXPECT_EQ(spec.runtime_class_name, "nvidia");
  EXPECT_EQ(pod.priority, 100);
  EXPECT_EQ(pod.priority_class_name, "high");
  EXPECT_FALSE(pod.preempts);
  EXPECT_EQ(pod.scheduler_name, "coscheduling");
  EXPECT_TRUE(pod.HasGate("muster.dev/admission"));
  EXPECT_TRUE(pod.IsBound());
}

TEST(DecodePod, PresentNodeAffinityWithoutTermsDiffersFromNone) {
  EXPECT_EQ(PodOf(R"({"affinity":{"nodeAffinity":{}}})").spec->affinity.required_node_terms,
            std::nullopt);
  const Pod none = PodOf(R"({"affinity":{"nodeAffinity":{
      "requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[]}}}})");
  ASSERT_TRUE(none.spec->affinity.required_node_terms);
  EXPECT_TRUE(none.spec->affinity.required_node_terms->empty());
}

TEST(DecodePod, UnknownEnumValuesMakeTheSpecUnusable) {
  EXPECT_EQ(PodOf(R"({"tolerations":[{"key":"k","operator":"Lt","value":"5"}]})").spec_error,
            "spec.tolerations[0].operator: unknown operator \"Lt\"");
  EXPECT_EQ(PodOf(R"({"topologySpreadConstraints":[{"whenUnsatisfiable":"Maybe"}]})").spec_error,
            "spec.topologySpreadConstraints[0].whenUnsatisfiable: \"Maybe\" is neither "
            "DoNotSchedule nor ScheduleAnyway");
}

TEST(DecodePod, FoldsMatchLabelKeysIntoSelectors) {
  const Pod pod = PodOf(R"({
    "topologySpreadConstraints":[
      {"topologyKey":"zone","maxSkew":2,"minDomains":3,"whenUnsatisfiable":"ScheduleAnyway",
       "labelSelector":{"matchExpressions":[{"key":"app","operator":"In","values":["a"]}]},
       "matchLabelKeys":["app","absent"],"nodeTaintsPolicy":"Honor","nodeAffinityPolicy":"Ignore"},
      {"topologyKey":"host","whenUnsatisfiable":"DoNotSchedule","labelSelector":{},
       "matchLabelKeys":["app"]},
      {"topologyKey":"host","whenUnsatisfiable":"DoNotSchedule","matchLabelKeys":["app"]}],
    "affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
      {"topologyKey":"zone","labelSelector":{"matchLabels":{"x":"y"}},
       "matchLabelKeys":["app"],"mismatchLabelKeys":["app"]}]}}})");
  const Requirement app{"app", SelectorOperator::kIn, {"a"}};
  const auto& spreads = pod.spec->topology_spread;
  ASSERT_EQ(spreads.size(), 3u);
  EXPECT_EQ(spreads[0].max_skew, 2);
  EXPECT_EQ(spreads[0].min_domains, 3);
  EXPECT_FALSE(spreads[0].do_not_schedule);
  EXPECT_TRUE(spreads[0].honor_node_taints);
  EXPECT_FALSE(spreads[0].honor_node_affinity);
  EXPECT_THAT(spreads[0].selector->requirements, ElementsAre(app));
  EXPECT_TRUE(spreads[1].do_not_schedule);
  EXPECT_TRUE(spreads[1].honor_node_affinity);
  EXPECT_THAT(spreads[1].selector->requirements, ElementsAre(app));
  EXPECT_FALSE(spreads[2].selector);
  ASSERT_EQ(pod.spec->affinity.required_pod_affinity.size(), 1u);
  EXPECT_THAT(pod.spec->affinity.required_pod_affinity[0].selector->requirements,
              ElementsAre(Requirement{"x", SelectorOperator::kIn, {"y"}}, app,
                          Requirement{"app", SelectorOperator::kNotIn, {"a"}}));
}

TEST(DecodePod, HostPortsComeFromWhatRunsThroughout) {
  const char* containers = R"(
      "containers":[{"ports":[{"containerPort":80},{"containerPort":81,"hostPort":8081,
                                                     "protocol":"UDP","hostIP":"10.0.0.1"}]}],
      "initContainers":[{"ports":[{"hostPort":1,"containerPort":1}]},
        {"restartPolicy":"Always","ports":[{"hostPort":2,"containerPort":2}]}]})";
  EXPECT_THAT(PodOf(std::string("{") + containers).spec->host_ports,
              ElementsAre(HostPort{"", "TCP", 2}, HostPort{"10.0.0.1", "UDP", 8081}));
  EXPECT_THAT(PodOf(std::string(R"({"hostNetwork":true,)") + containers).spec->host_ports,
              ElementsAre(HostPort{"", "TCP", 2}, HostPort{"", "TCP", 80},
                          HostPort{"10.0.0.1", "UDP", 8081}));
}

TEST(DecodePod, NamesItsVolumeClaims) {
  const Pod pod = PodOf(R"({"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"data"}},
      {"name":"scratch","ephemeral":{"volumeClaimTemplate":{}}},{"name":"e","emptyDir":{}}]})");
  EXPECT_THAT(pod.spec->persistent_volume_claims, ElementsAre("data", "p-scratch"));
  EXPECT_THAT(pod.spec->ephemeral_claims, ElementsAre("p-scratch"));
}

TEST(DecodePod, NamesAVolumeWithoutAClaimThatSchedulersJudge) {
  const auto kind = [](const std::string& volumes) {
    return PodOf(R"({"volumes":[{"name":"e","emptyDir":{}},)" + volumes + "]}").spec->inline_volume;
  };
  EXPECT_EQ(kind(R"({"name":"v","persistentVolumeClaim":{"claimName":"data"}})"), "");
  EXPECT_EQ(kind(R"({"name":"v","nfs":{"server":"s","path":"/"}})"), "");
  EXPECT_EQ(kind(R"({"name":"v","csi":{"driver":"d"}})"), "");
  EXPECT_EQ(kind(R"({"name":"v","awsElasticBlockStore":{"volumeID":"vol-1"}})"),
            "awsElasticBlockStore");
  EXPECT_EQ(kind(R"({"name":"v","azureDisk":{}},{"name":"w","iscsi":{}})"), "azureDisk");
}

TEST(DecodePod, NamesWhatKubeletsHaveToDeclare) {
  EXPECT_THAT(PodOf(R"({"hostNetwork":true,"hostUsers":true,"containers":[{"name":"c",
      "restartPolicyRules":[{"action":"Restart"}],"volumeMounts":[{"name":"v"}]}]})")
                  .spec->node_features,
              ElementsAre());
  EXPECT_THAT(PodOf(R"({"hostUsers":false})").spec->node_features, ElementsAre());
  EXPECT_THAT(PodOf(R"({"hostNetwork":true,"hostUsers":false,
      "initContainers":[{"name":"i","restartPolicyRules":[{"action":"RestartAllContainers"}]}],
      "containers":[{"name":"c","volumeMounts":[{"name":"v","bindMountOptions":["noexec"]}]}]})")
                  .spec->node_features,
              ElementsAre("RestartAllContainersOnContainerExits",
                          "UserNamespacesHostNetworkSupport", "VolumeBindMountOptions"));
}

TEST(DecodePod, ReadsStatus) {
  const Pod pod = PodOf("{}", R"({"phase":"Failed","reason":"UnexpectedAdmissionError",
      "message":"no GPU","nominatedNodeName":"n2",
      "conditions":[{"type":"Ready","status":"False"},
        {"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3"}]})");
  EXPECT_EQ(pod.phase, PodPhase::kFailed);
  EXPECT_EQ(pod.status_reason, "UnexpectedAdmissionError");
  EXPECT_EQ(pod.status_message, "no GPU");
  EXPECT_EQ(pod.nominated_node_name, "n2");
  EXPECT_EQ(pod.scheduled_status, "False");
  EXPECT_EQ(pod.scheduled_reason, "Unschedulable");
  EXPECT_EQ(pod.scheduled_message, "0/3");
  EXPECT_FALSE(pod.started);
  EXPECT_FALSE(pod.ready);
}

TEST(DecodePod, TellsWhenItIsGoneAtTheLatest) {
  absl::Time now;
  ASSERT_TRUE(absl::ParseTime(absl::RFC3339_full, "2025-03-01T10:00:00Z", &now, nullptr));
  EXPECT_EQ(PodOf("{}").GoneBy(now), absl::InfiniteFuture());
  EXPECT_EQ(PodOf(R"({"activeDeadlineSeconds":600})").GoneBy(now), now + absl::Seconds(630));
  const std::string graceful =
      R"({"activeDeadlineSeconds":600,"terminationGracePeriodSeconds":120})";
  const Pod runs = PodOf(graceful, R"({"startTime":"2025-03-01T09:55:00Z"})");
  EXPECT_EQ(runs.GoneBy(now), now + absl::Seconds(420));
  EXPECT_EQ(runs.GoneBy(now + absl::Hours(1)), now + absl::Hours(1));  // overdue
  EXPECT_LT(PodOf(R"({"activeDeadlineSeconds":9223372036854775807})").GoneBy(now),
            absl::InfiniteFuture());
}

TEST(DecodePod, TellsWhetherAContainerEverStartedAndHowItEnded) {
  const auto status = [](const std::string& container) {
    return PodOf("{}", R"({"containerStatuses":[{"state":{"waiting":{}}},)" + container + "]}");
  };
  EXPECT_FALSE(status(R"({"state":{"waiting":{"reason":"ImagePullBackOff"}}})").started);
  EXPECT_TRUE(status(R"({"state":{"running":{"startedAt":"2025-03-01T10:00:00Z"}}})").started);
  const Pod failed = status(R"({"state":{"terminated":{"exitCode":3,"message":"NCCL",
      "startedAt":"2025-03-01T10:00:00Z"}}})");
  EXPECT_TRUE(failed.started);
  EXPECT_EQ(failed.termination_message, "NCCL");
  const Pod cannot_run = status(R"({"state":{"terminated":{"exitCode":128,"message":"exec failed",
      "startedAt":"1970-01-01T00:00:00Z"}}})");
  EXPECT_FALSE(cannot_run.started);
  EXPECT_EQ(cannot_run.termination_message, "exec failed");
  const Pod restarted = status(R"({"state":{"waiting":{}},"lastState":{"terminated":{
      "message":"EFA","startedAt":"2025-03-01T10:00:00Z"}}})");
  EXPECT_TRUE(restarted.started);
  EXPECT_EQ(restarted.termination_message, "EFA");
}

TEST(DecodePod, TellsWhenItsLastContainerEnded) {
  const auto ended = [](const std::string& status) { return PodOf("{}", status).ended_at; };
  const auto at = [](const char* text) {
    absl::Time time;
    EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &time, nullptr));
    return time;
  };
  EXPECT_EQ(ended(R"({"phase":"Failed","containerStatuses":[
      {"state":{"terminated":{"finishedAt":"2025-03-01T10:00:00Z"}}},
      {"state":{"terminated":{"finishedAt":"2025-03-01T10:05:00Z"}}}]})"),
            at("2025-03-01T10:05:00Z"));
  // Restarted in its pod.
  EXPECT_EQ(ended(R"({"phase":"Running","containerStatuses":[{"state":{"running":{}},
      "lastState":{"terminated":{"finishedAt":"2025-03-01T10:00:00Z"}}}]})"),
            at("2025-03-01T10:00:00Z"));
  // startTime is when the kubelet first saw it, which says nothing of when it turned it away.
  EXPECT_EQ(ended(R"({"phase":"Failed","reason":"UnexpectedAdmissionError",
      "startTime":"2025-03-01T09:00:00Z"})"),
            std::nullopt);
}

TEST(DecodeNode, ReadsDevicesTaintsAndReadiness) {
  const auto node = Decode<Node>(R"({"metadata":{"name":"n"},
    "spec":{"providerID":"aws:///i-1","unschedulable":true,
            "taints":[{"key":"k","value":"v","effect":"NoExecute"}]},
    "status":{"capacity":{"nvidia.com/gpu":"8","cpu":"96"},
              "allocatable":{"nvidia.com/gpu":"7","cpu":"95500m"},
              "conditions":[{"type":"Ready","status":"False","reason":"KubeletNotReady",
                             "message":"container runtime is down",
                             "lastTransitionTime":"1970-01-01T00:01:40Z"}]}})");
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->provider_id, "aws:///i-1");
  EXPECT_TRUE(node->unschedulable);
  EXPECT_THAT(node->taints, ElementsAre(Taint{"k", "v", TaintEffect::kNoExecute}));
  EXPECT_EQ(node->capacity.Get(kNvidiaGpu), 8);
  EXPECT_EQ(node->allocatable.Get(kNvidiaGpu), 7);
  EXPECT_EQ(node->allocatable.Get(kCpu), 95500);
  EXPECT_FALSE(node->ready);
  EXPECT_EQ(node->ready_message, "container runtime is down");
  EXPECT_EQ(node->ready_changed, absl::FromUnixSeconds(100));
  EXPECT_EQ(node->error, "");
}

TEST(DecodeNode, SaysWhatAMonitoringAgentFoundIll) {
  const auto ill = [](const std::string& conditions) {
    return Decode<Node>(R"({"status":{"conditions":[)" + conditions + "]}}")->ill;
  };
  EXPECT_EQ(ill(R"({"type":"AcceleratedHardwareReady","status":"False","reason":"NvidiaXID79Error",
                    "message":"fell off the bus"})"),
            "AcceleratedHardwareReady is False: NvidiaXID79Error: fell off the bus");
  EXPECT_EQ(ill(R"({"type":"StorageReady","status":"True"},
                   {"type":"NetworkingReady","status":"False"})"),
            "NetworkingReady is False");
  EXPECT_EQ(ill(R"({"type":"KernelReady","status":"Unknown"},
                   {"type":"DiskPressure","status":"False"})"),
            "");
}

TEST(DecodeNode, AllocatableDefaultsToCapacity) {
  const auto node = Decode<Node>(R"({"status":{"capacity":{"cpu":"2"},
      "conditions":[{"type":"Ready","status":"True"}]}})");
  ASSERT_TRUE(node.ok());
  EXPECT_EQ(node->allocatable.Get(kCpu), 2000);
  EXPECT_TRUE(node->ready);
  EXPECT_EQ(node->ready_message, "");
}

TEST(DecodeNode, AnUnusableFieldIsNamed) {
  const auto quantity = Decode<Node>(R"({"status":{"allocatable":{"memory":"1e99"}}})");
  ASSERT_TRUE(quantity.ok());
  EXPECT_THAT(quantity->error, HasSubstr("status.allocatable.memory: "));
  const auto effect = Decode<Node>(R"({"spec":{"taints":[{"key":"k","effect":"Explode"}]}})");
  ASSERT_TRUE(effect.ok());
  EXPECT_EQ(effect->error, "spec.taints[0].effect: unknown effect \"Explode\"");
}

TEST(DecodeNodeClaim, ReadsSpecAndStatus) {
  const auto claim = Decode<NodeClaim>(R"({
    "metadata":{"name":"gpu-x","labels":{"karpenter.sh/nodepool":"gpu"}},
    "spec":{"requirements":[{"key":"zone","operator":"In","values":["a","b"],"minValues":2}],
            "startupTaints":[{"key":"wait","effect":"NoSchedule"}],
            "resources":{"requests":{"nvidia.com/gpu":"8"}}},
    "status":{"nodeName":"n","providerID":"p","allocatable":{"nvidia.com/gpu":"8"},
      "conditions":[{"type":"Launched","status":"True",
                     "lastTransitionTime":"2025-03-01T10:00:00Z"},
                    {"type":"Registered","status":"Unknown","reason":"NodeNotFound"}]}})");
  ASSERT_TRUE(claim.ok()) << claim.status();
  EXPECT_EQ(claim->node_pool, "gpu");
  EXPECT_EQ(claim->node_name, "n");
  EXPECT_EQ(claim->provider_id, "p");
  EXPECT_THAT(claim->requirements,
              ElementsAre(Requirement{"zone", SelectorOperator::kIn, {"a", "b"}}));
  EXPECT_EQ(claim->startup_taints.size(), 1u);
  EXPECT_EQ(claim->requests.Get(kNvidiaGpu), 8);
  EXPECT_TRUE(claim->IsTrue("Launched"));
  EXPECT_FALSE(claim->IsTrue("Registered"));
  EXPECT_EQ(claim->conditions.at("Registered").reason, "NodeNotFound");
  EXPECT_EQ(claim->error, "");
}

TEST(DecodeNodePool, ReadsTemplateLimitsAndUsage) {
  const auto pool = Decode<NodePool>(R"({"metadata":{"name":"gpu"},
    "spec":{"weight":10,"replicas":0,"limits":{"nvidia.com/gpu":"32","nodes":"4"},
      "disruption":{"consolidationPolicy":"WhenEmpty","consolidateAfter":"0s"},
      "template":{"metadata":{"labels":{"team":"x"}},
                  "spec":{"requirements":[{"key":"n","operator":"Gte","values":["5"]}],
                          "taints":[{"key":"gpu","effect":"NoSchedule"}]}}},
    "status":{"resources":{"nvidia.com/gpu":"8"},
              "conditions":[{"type":"Ready","status":"False"}]}})");
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_THAT(pool->labels, ElementsAre(Pair("team", "x")));
  ASSERT_TRUE(pool->limits);
  EXPECT_EQ(pool->limits->Get(kNvidiaGpu), 32);
  EXPECT_EQ(pool->usage.Get(kNvidiaGpu), 8);
  EXPECT_EQ(pool->weight, 10);
  EXPECT_EQ(pool->limits->Get("nodes"), 4);
  EXPECT_TRUE(pool->is_static);
  EXPECT_FALSE(pool->ready);
  EXPECT_EQ(pool->consolidation_policy, "WhenEmpty");
  EXPECT_EQ(pool->consolidate_after, "0s");
  EXPECT_EQ(pool->error, "spec.template.spec.requirements[0].operator: unknown operator \"Gte\"");
}

TEST(DecodeNodeClass, ReadsWhatItsControllerFoundOut) {
  const auto node_class = Decode<NodeClass>(R"({"metadata":{"name":"efa"},
    "status":{
      "subnets":[{"id":"subnet-1","zone":"us-west-2b"},{"id":"subnet-2","zone":"us-west-2a"},
                 {"id":"subnet-3","zone":"us-west-2a"}],
      "capacityReservations":[
        {"id":"cr-1","instanceType":"p5.48xlarge","availabilityZone":"us-west-2a",
         "reservationType":"capacity-block","state":"expiring","endTime":"2026-11-27T11:30:00Z"},
        {"id":"cr-2","instanceType":"p4d.24xlarge","availabilityZone":"us-west-2b",
         "reservationType":"default","state":"active"}],
      "conditions":[{"type":"SubnetsReady","status":"True","message":""},
                    {"type":"PlacementGroupReady","status":"False","message":"no group train"},
                    {"type":"Ready","status":"False","message":"PlacementGroupReady=False"}]}})");
  ASSERT_TRUE(node_class.ok()) << node_class.status();
  EXPECT_THAT(node_class->zones, ElementsAre("us-west-2a", "us-west-2b"));
  ASSERT_EQ(node_class->reservations.size(), 2u);
  const NodeClass::Reservation block{"cr-1", "p5.48xlarge", "us-west-2a",
                                     true,   true,          ReadTimeText("2026-11-27T11:30:00Z")};
  EXPECT_EQ(node_class->reservations[0], block);
  EXPECT_FALSE(node_class->reservations[1].is_block || node_class->reservations[1].expiring ||
               node_class->reservations[1].end);
  EXPECT_EQ(node_class->not_ready, "PlacementGroupReady: no group train");
  EXPECT_EQ(Decode<NodeClass>(R"({"metadata":{"name":"efa"}})")->not_ready, "");
}

TEST(DecodePodGroup, ReadsSpecAndStatus) {
  const auto group = Decode<PodGroup>(R"({"metadata":{"name":"g","namespace":"n"},
    "spec":{"minMember":4,"minResources":{"nvidia.com/gpu":"4"},"scheduleTimeoutSeconds":120},
    "status":{"phase":"Scheduling","occupiedBy":"n/job","scheduled":1,"running":2,"succeeded":3,
      "failed":4,"scheduleStartTime":"2025-03-01T10:00:00Z",
      "conditions":[{"type":"Admitted","status":"False","reason":"WaitingForMembers",
                     "message":"3 of 4"}]}})");
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ(group->min_member, 4);
  EXPECT_EQ(group->schedule_timeout_seconds, 120);
  ASSERT_TRUE(group->min_resources);
  EXPECT_EQ(group->min_resources->Get(kNvidiaGpu), 4);
  EXPECT_EQ(group->error, "");
  EXPECT_EQ(group->status.phase, "Scheduling");
  EXPECT_EQ(group->status.occupied_by, "n/job");
  EXPECT_EQ(group->status.failed, 4);
  EXPECT_TRUE(group->status.schedule_start_time);
  EXPECT_EQ(group->status.condition_reason, "WaitingForMembers");
}

TEST(DecodePodGroup, BadNumbersNameFieldAndValue) {
  const auto error = [](const std::string& spec) {
    const auto group = Decode<PodGroup>(R"({"metadata":{"name":"g"},"spec":)" + spec + "}");
    return group.ok() ? group->error : std::string(group.status().message());
  };
  EXPECT_EQ(error(R"({"minMember":0})"), "spec.minMember is 0, must be at least 1");
  EXPECT_EQ(error(R"({"minMember":-3})"), "spec.minMember is -3, must be at least 1");
  EXPECT_EQ(error(R"({"minMember":1099511627776})"),
            "spec.minMember is 1099511627776, must be at most 2147483647");
  EXPECT_EQ(error(R"({"minMember":18446744073709551615})"),
            "spec.minMember is 18446744073709551615, must be an integer from 1 to 2147483647");
  EXPECT_EQ(error(R"({"minMember":2.5})"),
            "spec.minMember is 2.5, must be an integer from 1 to 2147483647");
  EXPECT_EQ(error(R"({"minMember":"4"})"),
            "spec.minMember is \"4\", must be an integer from 1 to 2147483647");
  EXPECT_EQ(error("{}"), "spec.minMember is missing, must be an integer from 1 to 2147483647");
  EXPECT_EQ(error(R"({"minMember":1,"scheduleTimeoutSeconds":-1})"),
            "spec.scheduleTimeoutSeconds is -1, must be at least 0");
  EXPECT_THAT(error(R"({"minMember":1,"minResources":{"cpu":"x"}})"),
              HasSubstr("spec.minResources.cpu: \"x\""));
  EXPECT_EQ(error(R"({"minMember":1})"), "");
}

TEST(DecodeDaemonSet, HasTheRequestsAndTolerationsOfItsPods) {
  const auto daemon_set = Decode<DaemonSet>(R"({"metadata":{"name":"d","namespace":"n"},
    "spec":{"template":{"spec":{"hostNetwork":true,
      "tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists",
                      "effect":"NoExecute"}],
      "containers":[{"resources":{"limits":{"cpu":"100m"}}}]}}}})");
  ASSERT_TRUE(daemon_set.ok()) << daemon_set.status();
  EXPECT_EQ(daemon_set->pod_spec->requests.ToString(), "cpu=100m, pods=1");
  EXPECT_EQ(daemon_set->pod_spec->tolerations.size(), 7u);
  EXPECT_EQ(daemon_set->error, "");
}

TEST(DecodeVolumes, ReadsClaimsVolumesAndClasses) {
  const auto claim = Decode<PersistentVolumeClaim>(R"({"metadata":{"name":"c","namespace":"n"},
      "spec":{"storageClassName":"ssd","volumeName":"pv"},"status":{"phase":"Bound"}})");
  ASSERT_TRUE(claim.ok());
  EXPECT_EQ(claim->storage_class, "ssd");
  EXPECT_EQ(claim->volume_name, "pv");
  EXPECT_TRUE(claim->bound);

  const auto volume = Decode<PersistentVolume>(R"({"metadata":{"name":"pv","annotations":
      {"volume.beta.kubernetes.io/storage-class":"old"}},
      "spec":{"storageClassName":"new","claimRef":{"namespace":"n","name":"c"},
      "nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[
          {"key":"zone","operator":"In","values":["a"]}]}]}}}})");
  ASSERT_TRUE(volume.ok());
  EXPECT_EQ(volume->storage_class, "old");
  EXPECT_EQ(volume->claim_ref, "n/c");
  ASSERT_TRUE(volume->required_node_terms);
  EXPECT_EQ(volume->required_node_terms->size(), 1u);

  const auto storage_class = Decode<StorageClass>(
      R"({"metadata":{"name":"ssd"},"volumeBindingMode":"WaitForFirstConsumer"})");
  ASSERT_TRUE(storage_class.ok());
  EXPECT_TRUE(storage_class->wait_for_first_consumer);

  const auto name_space = Decode<Namespace>(R"({"metadata":{"name":"n"}})");
  ASSERT_TRUE(name_space.ok());
  EXPECT_EQ(*name_space->meta.Label("kubernetes.io/metadata.name"), "n");
}

TEST(DecodeResourceSlice, CountsItsDevices) {
  const auto slice = Decode<ResourceSlice>(
      R"({"metadata":{"name":"s"},"spec":{"nodeName":"n","driver":"gpu.nvidia.com",)"
      R"("devices":[{"name":"gpu-0"},{"name":"gpu-1"}]}})");
  ASSERT_TRUE(slice.ok());
  EXPECT_EQ(slice->meta.name, "s");
  EXPECT_EQ(slice->node_name, "n");
  EXPECT_EQ(slice->driver, "gpu.nvidia.com");
  EXPECT_EQ(slice->devices, 2);
  EXPECT_EQ(Decode<ResourceSlice>(R"({"metadata":{"name":"s"}})")->devices, 0);
}

TEST(DecodeWatchEvent, TakesObjectsOutWhateverTheOrder) {
  const std::string object =
      R"({"kind":"Pod","metadata":{"annotations":{"a":"}"},"name":"p","namespace":"n","uid":"u",)"
      R"("resourceVersion":"7"},"spec":{"x":[{"y":"\"]}"}]},"code":"none"})";
  for (const std::string& line : {R"({"type":"ADDED","object":)" + object + "}",
                                  R"({"object":)" + object + R"(  ,"type":"ADDED"})"}) {
    const auto event = DecodeWatchEvent(line);
    ASSERT_TRUE(event.ok()) << event.status();
    EXPECT_EQ(event->type, WatchEvent::Type::kAdded);
    EXPECT_EQ(event->object, object);
    EXPECT_GE(event->object.data(), line.data());
    EXPECT_EQ(event->header.name_space, "n");
    EXPECT_EQ(event->header.name, "p");
    EXPECT_EQ(event->header.uid, "u");
    EXPECT_EQ(event->header.resource_version, "7");
    EXPECT_TRUE(Decode<Pod>(event->object).ok());
  }
}

TEST(DecodeWatchEvent, BookmarksAndErrors) {
  const auto plain = DecodeWatchEvent(
      R"({"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9"}}})");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->type, WatchEvent::Type::kBookmark);
  EXPECT_FALSE(plain->initial_events_end);
  EXPECT_EQ(plain->header.resource_version, "9");
  const auto last = DecodeWatchEvent(R"({"type":"BOOKMARK","object":{"metadata":{
      "resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}})");
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_TRUE(last->initial_events_end);
  const auto error = DecodeWatchEvent(R"({"type":"ERROR","object":{"kind":"Status","metadata":{},
      "status":"Failure","message":"too old resource version","reason":"Expired","code":410}})");
  ASSERT_TRUE(error.ok()) << error.status();
  EXPECT_EQ(error->type, WatchEvent::Type::kError);
  EXPECT_EQ(error->error_code, 410);
  EXPECT_EQ(error->error_message, "too old resource version");
}

TEST(DecodeWatchEvent, RejectsWhatIsNotAnEvent) {
  for (const std::string line :
       {"", "garbage", "{}", "[]", R"({"type":"ADDED"})", R"({"type":"NEW","object":{}})",
        R"({"type":"ADDED","object":7})", R"({"type":"ADDED","object":{"metadata":{"name":"p"}}})",
        R"({"type":"ADDED","object":{"metadata":{"resourceVersion":"1"}}})",
        R"({"type":"ADDED","object":{"metadata":{"name":"p","resourceVersion":"1"})",
        R"({"type":"ADDED","object":{"metadata":{"name":"p","resourceVersion":"1"}}} {})"}) {
    EXPECT_FALSE(DecodeWatchEvent(line).ok()) << line;
  }
}

TEST(DecodeWatchEvent, EveryTruncationIsRejected) {
  const std::string line = R"({"type":"ADDED","object":{"metadata":{"name":"p\n","uid":"u",)"
                           R"("resourceVersion":"1"},"spec":{"a":[1,true,null]}}})";
  ASSERT_TRUE(DecodeWatchEvent(line).ok());
  for (size_t size = 0; size < line.size(); ++size) {
    EXPECT_FALSE(DecodeWatchEvent(line.substr(0, size)).ok()) << size;
  }
}

TEST(DecodeListPage, SplitsItems) {
  const std::string json = R"({"kind":"PodList","metadata":{"resourceVersion":"55","continue":"t"},
    "items":[ {"metadata":{"name":"a","namespace":"n","uid":"1","resourceVersion":"3"},"spec":{}} ,
              {"metadata":{"name":"b","uid":"2","resourceVersion":"4"}}]})";
  const auto page = DecodeListPage(json);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->resource_version, "55");
  EXPECT_EQ(page->continue_token, "t");
  ASSERT_EQ(page->items.size(), 2u);
  EXPECT_EQ(page->items[0].header.name, "a");
  EXPECT_EQ(page->items[0].object.back(), '}');
  EXPECT_TRUE(Decode<Pod>(page->items[0].object).ok());
  EXPECT_EQ(page->items[1].header.uid, "2");
  for (const char* empty : {R"({"metadata":{"resourceVersion":"1"},"items":null})",
                            R"({"metadata":{"resourceVersion":"1"},"items":[]})",
                            R"({"metadata":{"resourceVersion":"1"}})"}) {
    const auto none = DecodeListPage(empty);
    ASSERT_TRUE(none.ok()) << none.status();
    EXPECT_TRUE(none->items.empty());
  }
  EXPECT_FALSE(DecodeListPage(R"({"items":[]})").ok());
  EXPECT_FALSE(DecodeListPage(json.substr(0, json.size() - 3)).ok());
}

TEST(Decode, LargeObjectsPassAndThreadsDoNotShareParsers) {
  const std::string large =
      R"({"metadata":{"name":"p","annotations":{"a":")" + std::string(5 << 20, 'x') + R"("}}})";
  const auto work = [&large] {
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(Decode<Pod>(i % 5 == 0 ? large : R"({"metadata":{"name":"p"}})").ok());
    }
  };
  std::thread other(work);
  work();
  other.join();
}

}  // namespace
}  // namespace muster::kube
