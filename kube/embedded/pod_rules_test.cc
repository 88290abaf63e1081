// Bindings, evictions, gates, and what of a pod may change.
#include "kube/embedded/pod_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kube/embedded/test_client.h"

namespace muster::kube::embedded {
namespace {

using ::testing::HasSubstr;

const std::string kBindA = kPodA + "/binding";

TEST(BindingTest, BindsOnce) {
  TestServer server;
  server.Post(kPods, MakePod("a"));
  TestJson binding = MakeBinding("a", "n1");
  binding["metadata"]["annotations"] = {{"karpenter.sh/do-not-disrupt", "true"}};
  TestAnswer bound = server.Post(kBindA, binding);
  EXPECT_EQ(bound.status, 201) << bound.body;
  EXPECT_EQ(bound.body["status"], "Success");
  TestJson pod = server.Get(kPodA).body;
  EXPECT_EQ(pod["spec"]["nodeName"], "n1");
  EXPECT_EQ(pod["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"], "true");
  EXPECT_EQ(pod["status"]["conditions"][0]["type"], "PodScheduled");
  EXPECT_EQ(pod["status"]["conditions"][0]["status"], "True");
  TestAnswer again = server.Post(kBindA, binding);
  EXPECT_EQ(again.status, 409);
  EXPECT_THAT(again.message(), HasSubstr("pod a is already assigned to node \"n1\""));
}

TEST(BindingTest, ReplacesTheConditionWhole) {
  TestServer server;
  server.Post(kPods, MakePod("a"));
  server.Call(Method::kPatch, kPodA + "/status",
              {{"status",
                {{"conditions",
                  {{{"type", "PodScheduled"},
                    {"status", "False"},
                    {"reason", "Unschedulable"},
                    {"message", "no room"},
                    {"lastTransitionTime", "2026-01-01T00:00:00Z"}}}}}}},
              {}, kStrategicMergePatch);
  server.Advance(absl::Seconds(9));
  server.Post(kBindA, MakeBinding("a", "n1"));
  TestJson conditions = server.Get(kPodA).body["status"]["conditions"];
  EXPECT_EQ(conditions, (TestJson{{{"type", "PodScheduled"},
                                   {"status", "True"},
                                   {"lastTransitionTime", "2026-01-01T00:00:09Z"}}}));
}

TEST(BindingTest, ThroughTheCollection) {
  TestServer server;
  server.Post(kPods, MakePod("a"));
  EXPECT_EQ(server.Post("/api/v1/namespaces/default/bindings", MakeBinding("a", "n1")).status, 201);
  EXPECT_EQ(server.Get(kPodA).body["spec"]["nodeName"], "n1");
}

TEST(BindingTest, Preconditions) {
  TestServer server;
  TestJson pod = server.Post(kPods, MakePod("a")).body;
  TestJson binding = MakeBinding("a", "n1");
  binding["metadata"]["uid"] = "another";
  EXPECT_EQ(server.Post(kBindA, binding).status, 409);
  binding["metadata"]["uid"] = pod["metadata"]["uid"];
  binding["metadata"]["resourceVersion"] = pod["metadata"]["resourceVersion"];
  server.MergePatch(kPodA, {{"metadata", {{"labels", {{"touched", "yes"}}}}}});
  TestAnswer stale = server.Post(kBindA, binding);
  EXPECT_EQ(stale.status, 409);
  EXPECT_THAT(stale.message(), HasSubstr("ResourceVersion in precondition"));
  binding["metadata"].erase("resourceVersion");
  EXPECT_EQ(server.Post(kBindA, binding).status, 201);
}

TEST(BindingTest, Refusals) {
  TestServer server;
  server.Post(kPods, MakeGatedPod("a"));
  TestAnswer gated = server.Post(kBindA, MakeBinding("a", "n1"));
  EXPECT_EQ(gated.status, 409);
  EXPECT_THAT(gated.message(), HasSubstr("pod a has non-empty .spec.schedulingGates"));
  EXPECT_EQ(server.Post(std::string(kPods) + "/b/binding", MakeBinding("b", "n1")).status, 404);
  EXPECT_EQ(server.Post(kBindA, MakeBinding("b", "n1")).status, 400);
  EXPECT_EQ(server.Post(kBindA, MakeBinding("a", "")).status, 422);
  TestJson wrong = MakeBinding("a", "n1");
  wrong["target"]["kind"] = "Pod";
  EXPECT_EQ(server.Post(kBindA, wrong).status, 422);
  wrong["target"] = 7;
  EXPECT_EQ(server.Post(kBindA, wrong).status, 400);

  server.Post(kPods, MakePod("c"));
  server.MergePatch(std::string(kPods) + "/c", {{"metadata", {{"finalizers", {"x.com/y"}}}}});
  server.Delete(std::string(kPods) + "/c");
  TestAnswer deleted = server.Post(std::string(kPods) + "/c/binding", MakeBinding("c", "n1"));
  EXPECT_EQ(deleted.status, 409);
  EXPECT_THAT(deleted.message(), HasSubstr("is being deleted"));
}

TEST(BindingTest, DryRun) {
  TestServer server;
  server.Post(kPods, MakePod("a"));
  EXPECT_EQ(server.Call(Method::kPost, kBindA, MakeBinding("a", "n1"), {{"dryRun", "All"}}).status,
            201);
  EXPECT_FALSE(server.Get(kPodA).body["spec"].contains("nodeName"));
}

TEST(EvictionTest, DeletesWithACondition) {
  TestServer server;
  TestJson pod = server.Post(kPods, MakePod("a")).body;
  server.Post(kBindA, MakeBinding("a", "n1"));
  TestJson eviction = {{"apiVersion", "policy/v1"},
                       {"kind", "Eviction"},
                       {"metadata", {{"name", "a"}}},
                       {"deleteOptions", {{"preconditions", {{"uid", "another"}}}}}};
  EXPECT_EQ(server.Post(kPodA + "/eviction", eviction).status, 409);
  EXPECT_FALSE(server.Get(kPodA).body["metadata"].contains("deletionTimestamp"));
  eviction["deleteOptions"]["preconditions"]["uid"] = pod["metadata"]["uid"];
  TestAnswer answer = server.Post(kPodA + "/eviction", eviction);
  EXPECT_EQ(answer.status, 201) << answer.body;
  TestJson evicted = server.Get(kPodA).body;
  EXPECT_EQ(evicted["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
  EXPECT_EQ(evicted["status"]["conditions"][1]["type"], "DisruptionTarget");
}

struct SpecChange {
  const char* name;
  bool gated;
  TestJson patch;
  int status;
  const char* message;
};

class SpecChangeTest : public ::testing::TestWithParam<SpecChange> {};

TestJson PodToChange(bool gated) {
  TestJson pod = gated ? MakeGatedPod("a") : MakePod("a");
  pod["spec"]["nodeSelector"] = {{"pool", "gpu"}};
  pod["spec"]["tolerations"] = {{{"key", "a"}, {"operator", "Exists"}, {"effect", "NoSchedule"}}};
  pod["spec"]["activeDeadlineSeconds"] = 100;
  return pod;
}

TEST_P(SpecChangeTest, IsAllowedOrNot) {
  TestServer server;
  ASSERT_EQ(server.Post(kPods, PodToChange(GetParam().gated)).status, 201);
  TestAnswer answer =
      server.Call(Method::kPatch, kPodA, {{"spec", GetParam().patch}}, {}, kStrategicMergePatch);
  EXPECT_EQ(answer.status, GetParam().status) << answer.body;
  if (answer.status != 200) {
    EXPECT_THAT(answer.message(), HasSubstr(GetParam().message));
  }
}

const TestJson kAddedToleration = {
    {"tolerations",
     {{{"key", "a"}, {"operator", "Exists"}, {"effect", "NoSchedule"}},
      {{"key", "node.kubernetes.io/not-ready"},
       {"operator", "Exists"},
       {"effect", "NoExecute"},
       {"tolerationSeconds", 300}},
      {{"key", "node.kubernetes.io/unreachable"},
       {"operator", "Exists"},
       {"effect", "NoExecute"},
       {"tolerationSeconds", 300}},
      {{"key", "b"}, {"operator", "Exists"}}}}};

const TestJson kAffinity = {
    {"affinity",
     {{"nodeAffinity",
       {{"requiredDuringSchedulingIgnoredDuringExecution",
         {{"nodeSelectorTerms",
           {{{"matchExpressions",
              {{{"key", "zone"}, {"operator", "In"}, {"values", {"a"}}}}}}}}}}}}}}};

INSTANTIATE_TEST_SUITE_P(
    All, SpecChangeTest,
    ::testing::Values(
        SpecChange{
            "Image", false, {{"containers", {{{"name", "main"}, {"image", "new:2"}}}}}, 200, ""},
        SpecChange{"Command",
                   false,
                   {{"containers", {{{"name", "main"}, {"command", {"sh"}}}}}},
                   422,
                   "pod updates may not change fields other than"},
        SpecChange{"NodeName",
                   false,
                   {{"nodeName", "n1"}},
                   422,
                   "pod updates may not change fields other than"},
        SpecChange{"ShorterDeadline", false, {{"activeDeadlineSeconds", 50}}, 200, ""},
        SpecChange{"LongerDeadline",
                   false,
                   {{"activeDeadlineSeconds", 150}},
                   422,
                   "must be less than or equal to previous value"},
        SpecChange{"AddedToleration", false, kAddedToleration, 200, ""},
        SpecChange{"RemovedToleration",
                   false,
                   {{"tolerations", TestJson::array()}},
                   422,
                   "existing toleration can not be modified"},
        SpecChange{"AddedGate",
                   false,
                   {{"schedulingGates", {{{"name", "x/y"}}}}},
                   422,
                   "only deletion is allowed, but found new scheduling gate 'x/y'"},
        SpecChange{"AddedGateWhileGated",
                   true,
                   {{"schedulingGates", {{{"name", "x/y"}}}}},
                   422,
                   "only deletion is allowed"},
        SpecChange{"RemovedGate", true, {{"schedulingGates", nullptr}}, 200, ""},
        SpecChange{"AddedSelector",
                   false,
                   {{"nodeSelector", {{"zone", "a"}}}},
                   422,
                   "pod updates may not change fields other than"},
        SpecChange{"AddedSelectorWhileGated", true, {{"nodeSelector", {{"zone", "a"}}}}, 200, ""},
        SpecChange{"ChangedSelectorWhileGated",
                   true,
                   {{"nodeSelector", {{"pool", "b"}}}},
                   422,
                   "only additions to spec.nodeSelector are allowed"},
        SpecChange{"RemovedSelectorWhileGated",
                   true,
                   {{"nodeSelector", {{"pool", nullptr}}}},
                   422,
                   "only additions to spec.nodeSelector are allowed"},
        SpecChange{"AddedAffinity", false, kAffinity, 422,
                   "pod updates may not change fields other than"},
        SpecChange{"AddedAffinityWhileGated", true, kAffinity, 200, ""},
        SpecChange{"SelectorAndGateAtOnce",
                   true,
                   {{"nodeSelector", {{"zone", "a"}}}, {"schedulingGates", nullptr}},
                   200,
                   ""},
        SpecChange{"PriorityWhileGated",
                   true,
                   {{"priority", 7}},
                   422,
                   "pod updates may not change fields other than"}),
    [](const auto& info) { return info.param.name; });

TEST(GatesTest, AnUngatedPodBindsAndKeepsItsOldCondition) {
  TestServer server;
  server.Post(kPods, MakeGatedPod("a"));
  TestAnswer lifted = server.Call(Method::kPatch, kPodA,
                                  {{{"op", "test"},
                                    {"path", "/spec/schedulingGates/0/name"},
                                    {"value", "muster.dev/admission"}},
                                   {{"op", "remove"}, {"path", "/spec/schedulingGates/0"}}},
                                  {}, kJsonPatch);
  ASSERT_EQ(lifted.status, 200) << lifted.body;
  // The API server writes SchedulingGated at creation only; the scheduler corrects it.
  EXPECT_EQ(lifted.body["status"]["conditions"][0]["reason"], "SchedulingGated");
  EXPECT_EQ(lifted.body["metadata"]["generation"], 2);
  EXPECT_EQ(server.Post(kBindA, MakeBinding("a", "n1")).status, 201);
}

}  // namespace
}  // namespace muster::kube::embedded
