#include "writes/action_requests.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace muster::writes {
namespace {

using nlohmann::json;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);  // 2023-11-14T22:13:20Z
const coscheduling::ObjectRef kPod = {"team", "job-0", "uid-0", "42"};

struct Case {
  const char* name;
  coscheduling::Action action;
  kube::Method method;
  const char* path;
  std::string_view content_type;
  const char* body;
  const char* kind;
};

quota::QueueStatus Status(const std::string& name, int64_t pending, int64_t admitted,
                          std::vector<quota::FlavorUsage> usage, const std::string& error) {
  quota::QueueStatus status;
  status.name = name;
  status.pending = pending;
  status.admitted = admitted;
  status.usage = std::move(usage);
  status.error = error;
  return status;
}
quota::QueueStatus Share(const std::string& name, int64_t share) {
  quota::QueueStatus status = Status(name, 0, 0, {}, "");
  status.fair_share = share;
  return status;
}
const kube::OwnerReference kJob = {"batch/v1", "Job", "job", "j-1", true};

const Case kCases[] = {
    {"ADerivedPodGroupGoesWithItsJob", coscheduling::CreatePodGroup{"team", "job", {kJob}, 4, 60},
     kube::Method::kPost, "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups",
     kube::kJson,
     R"({"apiVersion":"scheduling.x-k8s.io/v1alpha1","kind":"PodGroup",
        "metadata":{"name":"job","namespace":"team","labels":{"muster.dev/derived":"true"},
                    "ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"job",
                                        "uid":"j-1","controller":true}]},
        "spec":{"minMember":4,"scheduleTimeoutSeconds":60}})",
     "pod-group"},
    {"TheQuorumOfADerivedPodGroupIsWrittenByCompareAndSwap",
     coscheduling::UpdateMinMember{{"team", "job", "g-1", "7"}, 3}, kube::Method::kPatch,
     "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups/job", kube::kMergePatch,
     R"({"metadata":{"uid":"g-1","resourceVersion":"7"},"spec":{"minMember":3}})", "min-member"},
    {"TheRecordIsWrittenByCompareAndSwap",
     coscheduling::WriteRecord{{"team", "job", "g-1", "7"}, R"({"uid":"g-1"})"},
     kube::Method::kPatch, "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups/job",
     kube::kMergePatch,
     R"j({"metadata":{"uid":"g-1","resourceVersion":"7",
        "annotations":{"muster.dev/admission":"{\"uid\":\"g-1\"}"}}})j",
     "record"},
    {"AnEmptyRecordIsRemoved", coscheduling::WriteRecord{{"team", "job", "g-1", "7"}, ""},
     kube::Method::kPatch, "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups/job",
     kube::kMergePatch,
     R"({"metadata":{"uid":"g-1","resourceVersion":"7",
        "annotations":{"muster.dev/admission":null}}})",
     "record"},
    {"TheSignalIsOneConditionMergedByType",
     coscheduling::SignalPod{kPod, "Unschedulable", "gang team/job waits"}, kube::Method::kPatch,
     "/api/v1/namespaces/team/pods/job-0/status", kube::kStrategicMergePatch,
     R"({"metadata":{"uid":"uid-0"},"status":{"conditions":[{"type":"PodScheduled",
        "status":"False","reason":"Unschedulable","message":"gang team/job waits",
        "lastTransitionTime":"2023-11-14T22:13:20Z"}]}})",
     "signal"},
    {"LiftingTakesOurGateAndNoOther", coscheduling::LiftGate{kPod}, kube::Method::kPatch,
     "/api/v1/namespaces/team/pods/job-0", kube::kStrategicMergePatch,
     R"({"metadata":{"uid":"uid-0"},
        "spec":{"schedulingGates":[{"$patch":"delete","name":"muster.dev/admission"}]}})",
     "gate-lift"},
    {"ANominationNamesOneNode", coscheduling::NominatePod{kPod, "node-1"}, kube::Method::kPatch,
     "/api/v1/namespaces/team/pods/job-0/status", kube::kMergePatch,
     R"({"metadata":{"uid":"uid-0"},"status":{"nominatedNodeName":"node-1"}})", "nomination"},
    {"ANominationIsTakenBack", coscheduling::NominatePod{kPod, ""}, kube::Method::kPatch,
     "/api/v1/namespaces/team/pods/job-0/status", kube::kMergePatch,
     R"({"metadata":{"uid":"uid-0"},"status":{"nominatedNodeName":null}})", "nomination"},
    {"TheBindingCarriesBothPreconditionsAndProtectsThePod", coscheduling::BindPod{kPod, "node-1"},
     kube::Method::kPost, "/api/v1/namespaces/team/pods/job-0/binding", kube::kJson,
     R"({"apiVersion":"v1","kind":"Binding",
        "metadata":{"name":"job-0","namespace":"team","uid":"uid-0","resourceVersion":"42",
                    "annotations":{"karpenter.sh/do-not-disrupt":"true"}},
        "target":{"apiVersion":"v1","kind":"Node","name":"node-1"}})",
     "binding"},
    {"FlavorsAreAddedToWhatAMemberHas",
     coscheduling::AssignFlavors{kPod,
                                 true,
                                 false,
                                 true,
                                 {{{"karpenter.sh/nodepool", "gpu"}},
                                  {{{"spot", false, "yes", kube::TaintEffect::kNoExecute}, 300}},
                                  {{"muster.dev/queue", "q"}}}},
     kube::Method::kPatch, "/api/v1/namespaces/team/pods/job-0", kube::kJsonPatch,
     R"([{"op":"replace","path":"/metadata/uid","value":"uid-0"},
         {"op":"replace","path":"/metadata/resourceVersion","value":"42"},
         {"op":"add","path":"/spec/nodeSelector/karpenter.sh~1nodepool","value":"gpu"},
         {"op":"add","path":"/spec/tolerations","value":[]},
         {"op":"add","path":"/spec/tolerations/-","value":{"operator":"Equal","key":"spot",
          "value":"yes","effect":"NoExecute","tolerationSeconds":300}},
         {"op":"add","path":"/metadata/annotations/muster.dev~1queue","value":"q"}])",
     "flavors"},
    {"AWorkloadIsGivenBackWithItsMark",
     coscheduling::PatchWorkload{
         {"team", "job-train", "w-1", "5"}, false, false, {{"muster.dev/restart", "{}"}}, {}, {}},
     kube::Method::kPatch, "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/job-train",
     kube::kJsonPatch,
     R"([{"op":"replace","path":"/metadata/uid","value":"w-1"},
         {"op":"replace","path":"/metadata/resourceVersion","value":"5"},
         {"op":"add","path":"/metadata/annotations","value":{}},
         {"op":"add","path":"/metadata/annotations/muster.dev~1restart","value":"{}"},
         {"op":"add","path":"/spec/active","value":false}])",
     "give-back"},
    {"AWorkloadIsTakenOver",
     coscheduling::ApplyWorkloadStatus{{"team", "w", "w-1", "5"}, std::nullopt, {}, true},
     kube::Method::kPatch, "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/w/status",
     kube::kApplyPatch,
     R"({"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"name":"w",
         "namespace":"team","uid":"w-1","resourceVersion":"5"},"status":{"conditions":[]}})",
     "workload-touch"},
    {"AWorkloadMayGo",
     coscheduling::PatchWorkload{
         {"team", "w", "w-1", "5"}, std::nullopt, true, {}, {}, std::vector<std::string>{"mine"}},
     kube::Method::kPatch, "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/w",
     kube::kJsonPatch,
     R"([{"op":"replace","path":"/metadata/uid","value":"w-1"},
         {"op":"replace","path":"/metadata/resourceVersion","value":"5"},
         {"op":"add","path":"/metadata/finalizers","value":["mine"]}])",
     "workload-end"},
    {"AWorkloadIsQueuedAgainForOtherFlavors",
     coscheduling::PatchWorkload{
         {"team", "job-train", "w-1", "5"},
         true,
         true,
         {{"muster.dev/restart", std::nullopt}},
         {{0,
           true,
           false,
           {{{{{"zone", kube::SelectorOperator::kIn, {"x"}},
               {"mark", kube::SelectorOperator::kDoesNotExist, {}}},
              {{"metadata.name", kube::SelectorOperator::kNotIn, {"n"}}}}}}},
          {1, true, true, std::nullopt}},
         {}},
     kube::Method::kPatch, "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/job-train",
     kube::kJsonPatch,
     R"([{"op":"replace","path":"/metadata/uid","value":"w-1"},
         {"op":"replace","path":"/metadata/resourceVersion","value":"5"},
         {"op":"remove","path":"/metadata/annotations/muster.dev~1restart"},
         {"op":"add","path":"/spec/active","value":true},
         {"op":"add","path":"/spec/podSets/0/template/spec/affinity/nodeAffinity","value":{}},
         {"op":"add","path":"/spec/podSets/0/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution",
          "value":{"nodeSelectorTerms":[{
            "matchExpressions":[{"key":"zone","operator":"In","values":["x"]},
                                {"key":"mark","operator":"DoesNotExist"}],
            "matchFields":[{"key":"metadata.name","operator":"NotIn","values":["n"]}]}]}},
         {"op":"remove","path":"/spec/podSets/1/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"}])",
     "requeue"},
    {"AClusterQueuesStatusIsKueues",
     coscheduling::UpdateQueueStatus{
         "", "gpus",
         Status("gpus", 2, 1, {{"spot", "cpu", 4000, 1500, 0}, {"spot", "nvidia.com/gpu", 8, 9, 1}},
                ""),
         kNow},
     kube::Method::kPatch, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/gpus/status",
     kube::kMergePatch,
     R"({"status":{"pendingWorkloads":2,"reservingWorkloads":1,"admittedWorkloads":1,
         "flavorsReservation":[{"name":"spot","resources":[
           {"name":"cpu","total":"1500m","borrowed":"0m"},
           {"name":"nvidia.com/gpu","total":"9","borrowed":"1"}]}],
         "flavorsUsage":[{"name":"spot","resources":[
           {"name":"cpu","total":"1500m","borrowed":"0m"},
           {"name":"nvidia.com/gpu","total":"9","borrowed":"1"}]}],
         "fairSharing":null,
         "conditions":[{"type":"Active","status":"True","reason":"Ready",
           "message":"Can admit new workloads","lastTransitionTime":"2023-11-14T22:13:20Z"}]}})",
     "queue-status"},
    {"ACohortsStatusIsItsShare",
     coscheduling::UpdateQueueStatus{"", "root", Share("root", 125), kNow, true},
     kube::Method::kPatch, "/apis/kueue.x-k8s.io/v1beta2/cohorts/root/status", kube::kMergePatch,
     R"({"status":{"fairSharing":{"weightedShare":125}}})", "queue-status"},
    {"WhatIsUsedIsKeptByItsFinalizer",
     coscheduling::SetFinalizers{
         "resourceflavors", {"", "spot", "u", "7"}, {"theirs", "kueue.x-k8s.io/resource-in-use"}},
     kube::Method::kPatch, "/apis/kueue.x-k8s.io/v1beta2/resourceflavors/spot", kube::kJsonPatch,
     R"([{"op":"replace","path":"/metadata/uid","value":"u"},
         {"op":"replace","path":"/metadata/resourceVersion","value":"7"},
         {"op":"add","path":"/metadata/finalizers",
          "value":["theirs","kueue.x-k8s.io/resource-in-use"]}])",
     "finalizer"},
    {"ALocalQueueBorrowsNothing",
     coscheduling::UpdateQueueStatus{
         "team", "q", Status("team/q", 0, 0, {{"spot", "cpu", 0, 1000, 0}}, "it is ill"), kNow},
     kube::Method::kPatch, "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/q/status",
     kube::kMergePatch,
     R"({"status":{"pendingWorkloads":0,"reservingWorkloads":0,"admittedWorkloads":0,
         "flavorsReservation":[{"name":"spot","resources":[{"name":"cpu","total":"1000m"}]}],
         "flavorsUsage":[{"name":"spot","resources":[{"name":"cpu","total":"1000m"}]}],
         "conditions":[{"type":"Active","status":"False","reason":"NotReady",
           "message":"it is ill","lastTransitionTime":"2023-11-14T22:13:20Z"}]}})",
     "queue-status"},
    {"AHoldIsWrittenByCompareAndSwap",
     coscheduling::AnnotateNode{"node-1", "9", {{"a", "x"}, {"b", std::nullopt}}},
     kube::Method::kPatch, "/api/v1/nodes/node-1", kube::kMergePatch,
     R"({"metadata":{"resourceVersion":"9","annotations":{"a":"x","b":null}}})", "hold"},
    {"ASuspectNodeIsMarkedByCompareAndSwap",
     coscheduling::AnnotateNode{"node-1", "9", {{"muster.dev/suspect", "{}"}}},
     kube::Method::kPatch, "/api/v1/nodes/node-1", kube::kMergePatch,
     R"({"metadata":{"resourceVersion":"9","annotations":{"muster.dev/suspect":"{}"}}})",
     "suspect"},
    {"ATaintIsReplacedIfItIsStillWhereItWas",
     coscheduling::TaintNode{"node-1", "9", 1, false,
                             kube::Taint{"k", "v", kube::TaintEffect::kNoSchedule}, "k"},
     kube::Method::kPatch, "/api/v1/nodes/node-1", kube::kJsonPatch,
     R"([{"op":"replace","path":"/metadata/resourceVersion","value":"9"},
         {"op":"test","path":"/spec/taints/1/key","value":"k"},
         {"op":"remove","path":"/spec/taints/1"},
         {"op":"add","path":"/spec/taints/-",
          "value":{"key":"k","value":"v","effect":"NoSchedule"}}])",
     "suspect"},
    {"TheFirstTaintOfANodeMakesTheList",
     coscheduling::TaintNode{"node-1", "9", std::nullopt, true,
                             kube::Taint{"k", "v", kube::TaintEffect::kNoSchedule}, "k"},
     kube::Method::kPatch, "/api/v1/nodes/node-1", kube::kJsonPatch,
     R"([{"op":"replace","path":"/metadata/resourceVersion","value":"9"},
         {"op":"add","path":"/spec/taints","value":[]},
         {"op":"add","path":"/spec/taints/-",
          "value":{"key":"k","value":"v","effect":"NoSchedule"}}])",
     "suspect"},
    {"ANodeClaimThatHasComeFurtherIsNotDeleted",
     coscheduling::DeleteNodeClaim{{"", "gpu-x", "c-1", "7"}}, kube::Method::kDelete,
     "/apis/karpenter.sh/v1/nodeclaims/gpu-x", kube::kJson,
     R"({"apiVersion":"v1","kind":"DeleteOptions",
        "preconditions":{"uid":"c-1","resourceVersion":"7"}})",
     "node-claim"},
    {"AVolumesNodeIsSelectedWhereNobodyElseHas",
     coscheduling::SelectNode{{"team", "data", "c-1", "7"}, "n-1"}, kube::Method::kPatch,
     "/api/v1/namespaces/team/persistentvolumeclaims/data", kube::kMergePatch,
     R"({"metadata":{"uid":"c-1","resourceVersion":"7",
        "annotations":{"volume.kubernetes.io/selected-node":"n-1"}}})",
     "volume-node"},
    {"AVolumeThatSomebodyMadeIsKeptForAClaimWhereNobodyElseHasIt",
     coscheduling::SelectNode{
         {"team", "data", "c-1", "7"}, "n-1", kube::ObjectRef{"", "disk", "v-1", "9"}},
     kube::Method::kPatch, "/api/v1/persistentvolumes/disk", kube::kMergePatch,
     R"({"metadata":{"uid":"v-1","resourceVersion":"9",
        "annotations":{"pv.kubernetes.io/bound-by-controller":"yes"}},
        "spec":{"claimRef":{"apiVersion":"v1","kind":"PersistentVolumeClaim","namespace":"team",
        "name":"data","uid":"c-1","resourceVersion":"7"}}})",
     "volume-node"},
    {"AVolumeThatItsMakerKeptForAClaimIsNotMarked",
     coscheduling::SelectNode{
         {"team", "data", "c-1", "7"}, "n-1", kube::ObjectRef{"", "disk", "v-1", "9"}, true},
     kube::Method::kPatch, "/api/v1/persistentvolumes/disk", kube::kMergePatch,
     R"({"metadata":{"uid":"v-1","resourceVersion":"9"},
        "spec":{"claimRef":{"apiVersion":"v1","kind":"PersistentVolumeClaim","namespace":"team",
        "name":"data","uid":"c-1","resourceVersion":"7"}}})",
     "volume-node"},
    {"APodIsWokenUnderItsUid", coscheduling::AnnotatePod{kPod, {{"muster.dev/wake", "1"}}},
     kube::Method::kPatch, "/api/v1/namespaces/team/pods/job-0", kube::kMergePatch,
     R"({"metadata":{"uid":"uid-0","annotations":{"muster.dev/wake":"1"}}})", "wake"},
    {"AnEvictionNeverReachesASuccessorOfTheSameName", coscheduling::EvictPod{kPod},
     kube::Method::kPost, "/api/v1/namespaces/team/pods/job-0/eviction", kube::kJson,
     R"({"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"job-0","namespace":"team"},
        "deleteOptions":{"preconditions":{"uid":"uid-0"}}})",
     "evict"},
    {"AJobIsSuspendedAndMarkedInOnePatch",
     coscheduling::SuspendJob{
         "batch/v1", "Job", {"team", "job", "j-1", "7"}, true, {{"muster.dev/restart", "why"}}},
     kube::Method::kPatch, "/apis/batch/v1/namespaces/team/jobs/job", kube::kMergePatch,
     R"({"metadata":{"uid":"j-1","resourceVersion":"7","annotations":{"muster.dev/restart":"why"}},
        "spec":{"suspend":true}})",
     "suspend"},
    {"APyTorchJobIsResumedByItsRunPolicy",
     coscheduling::SuspendJob{"kubeflow.org/v1",
                              "PyTorchJob",
                              {"team", "job", "j-1", "7"},
                              false,
                              {{"muster.dev/restart", std::nullopt}}},
     kube::Method::kPatch, "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/job",
     kube::kMergePatch,
     R"({"metadata":{"uid":"j-1","resourceVersion":"7","annotations":{"muster.dev/restart":null}},
        "spec":{"runPolicy":{"suspend":false}}})",
     "resume"},
    {"AJobIsResumedWithWhatItsFlavorsAddInOnePatch",
     coscheduling::ChangeTemplates{
         "kubeflow.org/v1",
         "PyTorchJob",
         {"team", "job", "j-1", "7"},
         true,
         {{"/spec/pytorchReplicaSpecs/Worker/template",
           R"({"metadata":{"name":"x","labels":{"a":"b"},"annotations":{"muster.dev/queue":"old"}},
               "spec":{"tolerations":[{"key":"k","operator":"Exists"}]}})",
           {{{"pool", "a"}},
            {{{"gpu", true, "", kube::TaintEffect::kNoSchedule}, std::nullopt}},
            {{"muster.dev/queue", "team"}},
            {{"kueue.x-k8s.io/podset", "worker"}}},
           ""}}},
     kube::Method::kPatch, "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/job",
     kube::kJsonPatch,
     R"([{"op":"replace","path":"/metadata/uid","value":"j-1"},
         {"op":"replace","path":"/metadata/resourceVersion","value":"7"},
         {"op":"add","path":"/spec/pytorchReplicaSpecs/Worker/template/metadata","value":
           {"name":"x","labels":{"a":"b","kueue.x-k8s.io/podset":"worker"},
            "annotations":{"muster.dev/queue":"team"}}},
         {"op":"add","path":"/spec/pytorchReplicaSpecs/Worker/template/spec/nodeSelector",
          "value":{"pool":"a"}},
         {"op":"add","path":"/spec/pytorchReplicaSpecs/Worker/template/spec/tolerations","value":
           [{"key":"k","operator":"Exists"},{"key":"gpu","operator":"Exists","effect":"NoSchedule"}]},
         {"op":"add","path":"/spec/runPolicy/suspend","value":false}])",
     "resume"},
    {"ATemplateGetsBackWhatItHad",
     coscheduling::ChangeTemplates{
         "batch/v1",
         "Job",
         {"team", "job", "j-1", "7"},
         false,
         {{"/spec/template",
           R"({"metadata":{"name":"x","labels":{"a":"b","c":"d","job-name":"job"},
                           "annotations":{"e":"f"}},
               "spec":{"nodeSelector":{"pool":"a"},"tolerations":[{"key":"k"}]}})",
           {},
           R"({"labels":{"a":"b"},"annotations":null,"nodeSelector":null,
               "tolerations":[{"key":"k"}]})"}}},
     kube::Method::kPatch, "/apis/batch/v1/namespaces/team/jobs/job", kube::kJsonPatch,
     R"([{"op":"replace","path":"/metadata/uid","value":"j-1"},
         {"op":"replace","path":"/metadata/resourceVersion","value":"7"},
         {"op":"add","path":"/spec/template/metadata","value":
           {"name":"x","labels":{"a":"b","job-name":"job"}}},
         {"op":"remove","path":"/spec/template/spec/nodeSelector"}])",
     "restore"},
    {"AJobsStartTimeIsResetSoThatItsTemplateCanBeChanged",
     coscheduling::ResetStartTime{{"team", "job", "j-1", "7"}}, kube::Method::kPatch,
     "/apis/batch/v1/namespaces/team/jobs/job/status", kube::kMergePatch,
     R"({"metadata":{"uid":"j-1","resourceVersion":"7"},"status":{"startTime":null}})",
     "start-time"},
    {"AMarkIsTakenOffAJobThatItsUserHasTakenOver",
     coscheduling::SuspendJob{"jobset.x-k8s.io/v1alpha2",
                              "JobSet",
                              {"team", "job", "j-1", "7"},
                              std::nullopt,
                              {{"muster.dev/restart", std::nullopt}}},
     kube::Method::kPatch, "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/job",
     kube::kMergePatch,
     R"({"metadata":{"uid":"j-1","resourceVersion":"7","annotations":{"muster.dev/restart":null}}})",
     "restart-over"},
    {"StatusSaysWhatThePeersSayAndWhy",
     coscheduling::UpdatePodGroupStatus{.group = {"team", "job", "g-1", ""},
                                        .phase = "Scheduling",
                                        .scheduled = 2,
                                        .running = 1,
                                        .succeeded = 0,
                                        .failed = 3,
                                        .schedule_start_time = kNow,
                                        .occupied_by = "team/job",
                                        .admitted = true,
                                        .reason = "NodesComing",
                                        .message = "3 of 4",
                                        .since = kNow},
     kube::Method::kPatch,
     "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups/job/status", kube::kMergePatch,
     R"({"metadata":{"uid":"g-1"},"status":{"phase":"Scheduling","scheduled":2,"running":1,
        "succeeded":0,"failed":3,"occupiedBy":"team/job",
        "scheduleStartTime":"2023-11-14T22:13:20Z",
        "conditions":[{"type":"Admitted","status":"True","reason":"NodesComing","message":"3 of 4",
                       "lastTransitionTime":"2023-11-14T22:13:20Z"}]}})",
     "status"},
};

class ActionRequestsTest : public testing::TestWithParam<Case> {};

TEST_P(ActionRequestsTest, IsThisRequest) {
  const Case& c = GetParam();
  const std::optional<ActionRequest> made = ToRequest(c.action, kNow);
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->request.method, c.method);
  EXPECT_EQ(made->request.path, c.path);
  EXPECT_EQ(made->request.content_type, c.content_type);
  EXPECT_EQ(json::parse(made->request.body), json::parse(c.body));
  EXPECT_EQ(made->read_back.method, kube::Method::kGet);
  // What is created is found below its collection.
  const std::string about =
      c.kind == std::string("pod-group") ? c.path + std::string("/job") : c.path;
  EXPECT_TRUE(about.starts_with(made->read_back.path)) << made->read_back.path;
  EXPECT_EQ(KindOf(c.action), c.kind);
}

INSTANTIATE_TEST_SUITE_P(Action, ActionRequestsTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

json ActiveOf(const std::string& name_space, const std::string& stopped) {
  quota::QueueStatus status = Status("q", 0, 0, {}, "");
  status.stopped = stopped;
  const auto made = ToRequest(coscheduling::UpdateQueueStatus{name_space, "q", status, kNow}, kNow);
  json condition = json::parse(made->request.body)["status"]["conditions"][0];
  condition.erase("lastTransitionTime");
  return condition;
}

TEST(ActionRequests, AStoppedQueueSaysSoInKueuesWords) {
  EXPECT_EQ(ActiveOf("", "Stopped"), json::parse(R"({"type":"Active","status":"False",
      "reason":"Stopped","message":"Can't admit new workloads: is stopped."})"));
  EXPECT_EQ(ActiveOf("", "Terminating"), json::parse(R"({"type":"Active","status":"False",
      "reason":"Terminating","message":"Can't admit new workloads; clusterQueue is terminating"})"));
  EXPECT_EQ(ActiveOf("team", "Stopped"), json::parse(R"({"type":"Active","status":"False",
      "reason":"Stopped","message":"LocalQueue is stopped"})"));
  EXPECT_EQ(ActiveOf("team", "ClusterQueueIsInactive"), json::parse(R"({"type":"Active",
      "status":"False","reason":"ClusterQueueIsInactive",
      "message":"Can't submit new workloads to clusterQueue"})"));
  EXPECT_EQ(ActiveOf("team", ""), json::parse(R"({"type":"Active","status":"True",
      "reason":"Ready","message":"Can submit new workloads to localQueue"})"));
}

TEST(ActionRequests, AQueueThatLacksAnObjectSaysWhichAndKueuesReason) {
  quota::QueueStatus status = Status("q", 0, 0, {}, "ResourceFlavor h100 doesn't exist");
  status.stopped = "FlavorNotFound";
  const auto made = ToRequest(coscheduling::UpdateQueueStatus{"", "q", status, kNow}, kNow);
  const json condition = json::parse(made->request.body)["status"]["conditions"][0];
  EXPECT_EQ(condition["status"], "False");
  EXPECT_EQ(condition["reason"], "FlavorNotFound");
  EXPECT_EQ(condition["message"], "ResourceFlavor h100 doesn't exist");
}

TEST(ActionRequests, AQueuesStatusIsWrittenInTheVersionThatItIsReadIn) {
  const QueueVersions versions = {.cluster_queues = "v1beta1", .local_queues = "v1beta1"};
  const quota::QueueStatus status = Status("gpus", 0, 1, {{"spot", "cpu", 0, 1000, 0}}, "");
  const auto cluster =
      ToRequest(coscheduling::UpdateQueueStatus{"", "gpus", status, kNow}, kNow, versions);
  EXPECT_EQ(cluster->request.path, "/apis/kueue.x-k8s.io/v1beta1/clusterqueues/gpus/status");
  EXPECT_EQ(cluster->read_back.path, "/apis/kueue.x-k8s.io/v1beta1/clusterqueues/gpus");
  const auto local =
      ToRequest(coscheduling::UpdateQueueStatus{"team", "q", status, kNow}, kNow, versions);
  EXPECT_EQ(local->request.path,
            "/apis/kueue.x-k8s.io/v1beta1/namespaces/team/localqueues/q/status");
  const json written = json::parse(local->request.body)["status"];
  EXPECT_EQ(written["flavorUsage"],
            json::parse(R"([{"name":"spot","resources":[{"name":"cpu","total":"1000m"}]}])"));
  EXPECT_FALSE(written.contains("flavorsUsage"));
}

coscheduling::WriteWorkload TeamsWorkload() {
  auto spec = std::make_shared<kube::PodSpec>();
  spec->requests.Set("cpu", 1500);
  spec->requests.Set("pods", 1);
  spec->node_selector["pool"] = "gpu";
  spec->tolerations.push_back({"gpu", true, "", std::nullopt});
  return {{"team", "podgroup-train-01234", "", ""},
          {"scheduling.x-k8s.io/v1alpha1", "PodGroup", "train", "g-1", true},
          "me",
          "research",
          "urgent",
          7,
          3600,
          {{"workers", 2, std::move(spec)}}};
}

TEST(ActionRequests, AWorkloadIsMadeInKueuesForm) {
  const auto made = ToRequest(TeamsWorkload(), kNow);
  EXPECT_EQ(made->request.method, kube::Method::kPost);
  EXPECT_EQ(made->request.path, "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads");
  const json body = json::parse(made->request.body);
  EXPECT_EQ(body["metadata"], json::parse(R"({"name":"podgroup-train-01234","namespace":"team",
      "labels":{"kueue.x-k8s.io/job-uid":"g-1"},"annotations":{"muster.dev/leader":"me","muster.dev/owner":"PodGroup/train"},
      "finalizers":["kueue.x-k8s.io/resource-in-use"],
      "ownerReferences":[{"apiVersion":"scheduling.x-k8s.io/v1alpha1","kind":"PodGroup",
        "name":"train","uid":"g-1","controller":true}]})"));
  EXPECT_EQ(body["spec"], json::parse(R"({"active":true,"queueName":"research","priority":7,
      "priorityClassRef":{"group":"kueue.x-k8s.io","kind":"WorkloadPriorityClass","name":"urgent"},
      "maximumExecutionTimeSeconds":3600,"podSets":[{"name":"workers","count":2,"template":{"spec":{"restartPolicy":"Never",
        "containers":[{"name":"member","resources":{"requests":{"cpu":"1500m"}}}],
        "nodeSelector":{"pool":"gpu"},
        "tolerations":[{"operator":"Exists","key":"gpu"}]}}}]})"));
  EXPECT_EQ(KindOf(TeamsWorkload()), "workload");
}

// Kueue compares containers; it takes the last of environment variables of one name.
TEST(ActionRequests, AJobsWorkloadHasTheJobsTemplates) {
  coscheduling::WriteWorkload write = TeamsWorkload();
  write.pod_templates = {R"({"metadata":{"labels":{"a":"b"}},"spec":{"containers":[
      {"name":"c","image":"i","env":[{"name":"A","value":"1"},{"name":"B"},{"name":"A","value":"2"}]}]}})"};
  json body = json::parse(ToRequest(write, kNow)->request.body);
  EXPECT_EQ(body["spec"]["podSets"], json::parse(R"([{"name":"workers","count":2,"template":{
      "metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i",
        "env":[{"name":"A","value":"2"},{"name":"B"}]}]}}}])"));
  // One that no API server would store is copied as it is, or made from what quota looks at.
  write.pod_templates = {R"({"spec":{"containers":[{"env":[7,{"name":8}]},"c"]}})"};
  body = json::parse(ToRequest(write, kNow)->request.body);
  EXPECT_EQ(body["spec"]["podSets"][0]["template"], json::parse(write.pod_templates[0]));
  write.pod_templates = {"null"};
  body = json::parse(ToRequest(write, kNow)->request.body);
  EXPECT_EQ(body["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"]["pool"], "gpu");
}

TEST(ActionRequests, WhatAWorkloadAsksForIsReplacedUnlessSomebodyWasFaster) {
  coscheduling::WriteWorkload write = TeamsWorkload();
  write.workload.uid = "w-1";
  write.workload.resource_version = "12";
  const auto made = ToRequest(write, kNow);
  EXPECT_EQ(made->request.method, kube::Method::kPatch);
  EXPECT_EQ(made->request.path,
            "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/podgroup-train-01234");
  const json body = json::parse(made->request.body);
  EXPECT_EQ(body["metadata"]["uid"], "w-1");
  EXPECT_EQ(body["metadata"]["resourceVersion"], "12");
  EXPECT_EQ(body["spec"]["podSets"].size(), 1u);
  EXPECT_FALSE(body["spec"].contains("active"));
}

TEST(ActionRequests, AWorkloadsStatusIsAppliedAsKueuesOwnSecondWriterDoes) {
  quota::Admission admission;
  admission.cluster_queue = "gpus";
  admission.pod_sets = {{"workers", 2, {{"cpu", "spot"}}, {}}};
  admission.pod_sets[0].usage.Set("cpu", 3000);
  const coscheduling::ApplyWorkloadStatus apply = {
      {"team", "w", "w-1", "12"},
      admission,
      {{"QuotaReserved", {"True", "QuotaReserved", "Quota reserved", kNow}}},
      false};
  const auto made = ToRequest(apply, kNow);
  EXPECT_EQ(made->request.path, "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/w/status");
  EXPECT_EQ(made->request.content_type, "application/apply-patch+yaml");
  EXPECT_EQ(made->request.query, (std::vector<std::pair<std::string, std::string>>{
                                     {"fieldManager", "kueue-admission"}, {"force", "true"}}));
  json body = json::parse(made->request.body);
  EXPECT_EQ(body["metadata"], json::parse(R"({"name":"w","namespace":"team","uid":"w-1",
                                              "resourceVersion":"12"})"));
  EXPECT_EQ(body["status"]["admission"],
            json::parse(R"({"clusterQueue":"gpus","podSetAssignments":[{"name":"workers","count":2,
                "flavors":{"cpu":"spot"},"resourceUsage":{"cpu":"3"}}]})"));
  body["status"]["conditions"][0].erase("lastTransitionTime");
  EXPECT_EQ(body["status"]["conditions"],
            json::parse(R"([{"type":"QuotaReserved","status":"True","reason":"QuotaReserved",
                             "message":"Quota reserved"}])"));
  EXPECT_EQ(KindOf(apply), "workload-status");
}

TEST(ActionRequests, AnAdmissionSaysWhereItsPodsStand) {
  quota::Admission admission;
  admission.cluster_queue = "gpus";
  admission.pod_sets = {{"workers", 4, {{"cpu", "spot"}}, {}}};
  const auto written = [&](kube::TopologyAssignment standing) {
    admission.pod_sets[0].topology = std::move(standing);
    const auto made = ToRequest(
        coscheduling::ApplyWorkloadStatus{{"team", "w", "w-1", "12"}, admission, {}}, kNow);
    const json given = json::parse(made->request.body)["status"]["admission"]["podSetAssignments"];
    return given[0].value("topologyAssignment", json());
  };
  EXPECT_EQ(written({}), json());
  EXPECT_EQ(written({{"block", "rack"}, {{{"b", "r1"}, 3}, {{"b", "r2"}, 1}}}),
            json::parse(R"({"levels":["block","rack"],"slices":[{"domainCount":2,
                "valuesPerLevel":[{"universal":"b"},{"individual":{"roots":["r1","r2"]}}],
                "podCounts":{"individual":[3,1]}}]})"));
  EXPECT_EQ(written({{"kubernetes.io/hostname"}, {{{"n1"}, 2}, {{"n2"}, 2}}}),
            json::parse(R"({"levels":["kubernetes.io/hostname"],"slices":[{"domainCount":2,
                "valuesPerLevel":[{"individual":{"roots":["n1","n2"]}}],
                "podCounts":{"universal":2}}]})"));
}

TEST(ActionRequests, WhatIsToldElsewhereIsNoRequest) {
  EXPECT_FALSE(ToRequest(coscheduling::EmitEvent{}, kNow).has_value());
  EXPECT_FALSE(ToRequest(coscheduling::AnswerBind{}, kNow).has_value());
}

TEST(ActionRequests, TextThatIsNoUtf8IsMended) {
  const auto made = ToRequest(coscheduling::SignalPod{kPod, "Unschedulable", "cut \xEB\x85"}, kNow);
  EXPECT_EQ(json::parse(made->request.body)["status"]["conditions"][0]["message"],
            "cut \xEF\xBF\xBD");
}

}  // namespace
}  // namespace muster::writes
