#include "extender/action_requests.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace muster::extender {
namespace {

using nlohmann::json;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);  // 2023-11-14T22:13:20Z
const coscheduling::PodRef kPod = {"team", "job-0", "uid-0", "42"};

struct Case {
  const char* name;
  coscheduling::Action action;
  kube::Method method;
  const char* path;
  std::string_view content_type;
  const char* body;
  const char* kind;
};

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
     coscheduling::UpdateMinMember{"team", "job", "g-1", "7", 3}, kube::Method::kPatch,
     "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups/job", kube::kMergePatch,
     R"({"metadata":{"uid":"g-1","resourceVersion":"7"},"spec":{"minMember":3}})", "min-member"},
    {"TheRecordIsWrittenByCompareAndSwap",
     coscheduling::WriteRecord{"team", "job", "g-1", "7", R"({"uid":"g-1"})"}, kube::Method::kPatch,
     "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups/job", kube::kMergePatch,
     R"j({"metadata":{"uid":"g-1","resourceVersion":"7",
        "annotations":{"muster.dev/admission":"{\"uid\":\"g-1\"}"}}})j",
     "record"},
    {"AnEmptyRecordIsRemoved", coscheduling::WriteRecord{"team", "job", "g-1", "7", ""},
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
    {"TheBindingCarriesBothPreconditionsAndProtectsThePod", coscheduling::BindPod{kPod, "node-1"},
     kube::Method::kPost, "/api/v1/namespaces/team/pods/job-0/binding", kube::kJson,
     R"({"apiVersion":"v1","kind":"Binding",
        "metadata":{"name":"job-0","namespace":"team","uid":"uid-0","resourceVersion":"42",
                    "annotations":{"karpenter.sh/do-not-disrupt":"true"}},
        "target":{"apiVersion":"v1","kind":"Node","name":"node-1"}})",
     "binding"},
    {"AHoldIsWrittenByCompareAndSwap",
     coscheduling::AnnotateNode{"node-1", "9", {{"a", "x"}, {"b", std::nullopt}}},
     kube::Method::kPatch, "/api/v1/nodes/node-1", kube::kMergePatch,
     R"({"metadata":{"resourceVersion":"9","annotations":{"a":"x","b":null}}})", "hold"},
    {"APodIsWokenUnderItsUid", coscheduling::AnnotatePod{kPod, {{"muster.dev/wake", "1"}}},
     kube::Method::kPatch, "/api/v1/namespaces/team/pods/job-0", kube::kMergePatch,
     R"({"metadata":{"uid":"uid-0","annotations":{"muster.dev/wake":"1"}}})", "wake"},
    {"AnEvictionNeverReachesASuccessorOfTheSameName", coscheduling::EvictPod{kPod},
     kube::Method::kPost, "/api/v1/namespaces/team/pods/job-0/eviction", kube::kJson,
     R"({"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"job-0","namespace":"team"},
        "deleteOptions":{"preconditions":{"uid":"uid-0"}}})",
     "evict"},
    {"StatusSaysWhatThePeersSayAndWhy",
     coscheduling::UpdatePodGroupStatus{.name_space = "team",
                                        .name = "job",
                                        .uid = "g-1",
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
}  // namespace muster::extender
