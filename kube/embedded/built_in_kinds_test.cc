// The kinds the server comes with beside pods and nodes: jobs, and Kueue's quota objects.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kube/embedded/test_client.h"
#include "kube/objects/decode.h"

namespace muster::kube::embedded {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kQueues = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues";
constexpr const char* kLocalQueues = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues";

TestJson Queue(TestJson spec) { return {{"metadata", {{"name", "q"}}}, {"spec", std::move(spec)}}; }

const char* const kGroup = R"({"coveredResources":["nvidia.com/gpu"],"flavors":[
    {"name":"f","resources":[{"name":"nvidia.com/gpu","nominalQuota":8}]}]})";

TEST(OwnerKindsTest, AreCreatedListedWatchedAndPatched) {
  struct Owner {
    const char* path;
    const char* kind;
    const char* spec;
  };
  for (const Owner& owner : {
           Owner{"/apis/batch/v1/namespaces/default/jobs", "Job",
                 R"({"template":{"spec":{"restartPolicy":"Never"}}})"},
           Owner{"/apis/apps/v1/namespaces/default/statefulsets", "StatefulSet",
                 R"({"serviceName":"s","selector":{"matchLabels":{"a":"b"}},
                     "template":{"spec":{}}})"},
           Owner{"/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets", "JobSet",
                 R"({"replicatedJobs":[{"name":"workers","replicas":2}]})"},
           Owner{"/apis/kubeflow.org/v1/namespaces/default/pytorchjobs", "PyTorchJob",
                 R"({"pytorchReplicaSpecs":{"Worker":{"replicas":3}}})"},
           Owner{"/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs", "TrainJob",
                 R"({"trainer":{"numNodes":4}})"},
       }) {
    SCOPED_TRACE(owner.kind);
    const TestJson spec = TestJson::parse(owner.spec);
    TestServer server;
    Request watch;
    watch.path = owner.path;
    watch.query = {{"watch", "1"}};
    const auto session = server.server().Watch(watch).session;
    ASSERT_NE(session, nullptr);
    const std::string one = std::string(owner.path) + "/train";
    ASSERT_EQ(server.Post(owner.path, {{"metadata", {{"name", "train"}}}, {"spec", spec}}).status,
              201);
    EXPECT_EQ(server.Get(owner.path).body["items"].size(), 1u);
    EXPECT_EQ(server.MergePatch(one, {{"metadata", {{"labels", {{"a", "b"}}}}}}).status, 200);
    EXPECT_EQ(server.MergePatch(one + "/status", {{"status", {{"conditions", TestJson::array()}}}})
                  .status,
              200);
    const TestJson read = server.Get(one).body;
    EXPECT_EQ(read["kind"], owner.kind);
    for (const auto& [key, value] : spec.items()) {
      EXPECT_EQ(read["spec"][key], value) << key;
    }
    std::vector<WatchItem> items;
    session->Read(10, &items);
    EXPECT_EQ(items.size(), 3u);
  }
}

TEST(OwnerKindsTest, AJobWithParallelismAloneHasNoCompletions) {
  const auto spec = [](const char* given) {
    TestServer server;
    TestJson job = {{"metadata", {{"name", "j"}}}, {"spec", TestJson::parse(given)}};
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never";
    return server.Post("/apis/batch/v1/namespaces/default/jobs", job).body["spec"];
  };
  EXPECT_EQ(spec("{}")["completions"], 1);
  EXPECT_EQ(spec("{}")["parallelism"], 1);
  EXPECT_EQ(spec(R"({"completions":4})")["parallelism"], 1);
  EXPECT_EQ(spec(R"({"parallelism":4})")["parallelism"], 4);
  EXPECT_FALSE(spec(R"({"parallelism":4})").contains("completions"));
  EXPECT_EQ(spec("{}")["completionMode"], "NonIndexed");
}

TEST(OwnerKindsTest, AStatefulSetStartsItsPodsInOrderUnlessItSaysOtherwise) {
  TestServer server;
  const std::string path = "/apis/apps/v1/namespaces/default/statefulsets";
  TestJson set = {{"metadata", {{"name", "s"}}}, {"spec", {{"serviceName", "s"}}}};
  EXPECT_THAT(server.Post(path, set).message(), HasSubstr("spec.template.spec"));
  set["spec"]["template"]["spec"] = TestJson::object();
  const TestJson stored = server.Post(path, set).body;
  EXPECT_EQ(stored["spec"]["podManagementPolicy"], "OrderedReady");
  EXPECT_EQ(stored["spec"]["replicas"], 1);
}

TEST(QuotaKindsTest, AreStoredWithTheApisDefaultsAndRead) {
  TestServer server;
  const TestAnswer queue = server.Post(
      kQueues, Queue({{"cohortName", "all"}, {"resourceGroups", {TestJson::parse(kGroup)}}}));
  ASSERT_EQ(queue.status, 201) << queue.body;
  EXPECT_EQ(queue.body["spec"]["queueingStrategy"], "BestEffortFIFO");
  EXPECT_EQ(queue.body["spec"]["preemption"]["borrowWithinCohort"]["policy"], "Never");
  EXPECT_EQ(queue.body["spec"]["flavorFungibility"]["whenCanPreempt"], "TryNextFlavor");
  const auto decoded = Decode<ClusterQueue>(queue.body.dump());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->error, "");
  EXPECT_EQ(decoded->cohort, "all");
  EXPECT_EQ(decoded->resource_groups.size(), 1u);

  EXPECT_EQ(server.Post(kLocalQueues, Queue({{"clusterQueue", "q"}})).status, 201);
  EXPECT_EQ(server
                .Post("/apis/kueue.x-k8s.io/v1beta2/resourceflavors",
                      Queue({{"nodeLabels", {{"a", "b"}}}}))
                .status,
            201);
  EXPECT_EQ(
      server.Post("/apis/kueue.x-k8s.io/v1beta2/cohorts", Queue({{"parentName", "top"}})).status,
      201);
  EXPECT_EQ(server
                .Post("/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses",
                      {{"metadata", {{"name", "high"}}}, {"value", 100}})
                .status,
            201);
}

TEST(QuotaKindsTest, AWorkloadIsReservedByItsStatus) {
  TestServer server;
  const char* all = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads";
  const TestJson made =
      server
          .Post(all, TestJson::parse(R"({"metadata":{"name":"w"},"spec":{"queueName":"q",
              "podSets":[{"count":2,"template":{"spec":{"containers":[{"name":"main"}]}}}]},
              "status":{"admission":{"clusterQueue":"mine"}}})"))
          .body;
  EXPECT_EQ(made["spec"]["active"], true);
  EXPECT_EQ(made["spec"]["podSets"][0]["name"], "main");
  EXPECT_FALSE(made.contains("status"));
  const TestJson status = TestJson::parse(R"({"admission":{"clusterQueue":"gpus",
      "podSetAssignments":[{"name":"main","count":2,"flavors":{"cpu":"spot"},
                            "resourceUsage":{"cpu":"2"}}]},
      "conditions":[{"type":"QuotaReserved","status":"True","reason":"QuotaReserved","message":"",
                     "lastTransitionTime":"2026-01-01T00:00:00Z"}]})");
  EXPECT_EQ(server.MergePatch(std::string(all) + "/w/status", {{"status", status}}).status, 200);
  EXPECT_EQ(server.Get(all, {{"fieldSelector", "status.admission.clusterQueue=gpus"}})
                .body["items"]
                .size(),
            1u);
}

TEST(QuotaKindsTest, TheStatusIsASubresource) {
  TestServer server;
  server.Post(kQueues, Queue({{"stopPolicy", "None"}}));
  const TestJson status = TestJson::parse(R"({"pendingWorkloads":1,"reservingWorkloads":2,
      "admittedWorkloads":2,"flavorsUsage":[{"name":"f","resources":[
          {"name":"cpu","total":"4","borrowed":"1"}]}]})");
  const std::string one = std::string(kQueues) + "/q";
  EXPECT_EQ(server.MergePatch(one, {{"status", status}}).status, 200);
  EXPECT_FALSE(server.Get(one).body.contains("status"));
  EXPECT_EQ(
      server.MergePatch(one + "/status", {{"status", status}, {"spec", {{"stopPolicy", "Hold"}}}})
          .status,
      200);
  EXPECT_EQ(server.Get(one).body["status"], status);
  EXPECT_EQ(server.Get(one).body["spec"]["stopPolicy"], "None");
}

TEST(QuotaKindsTest, WrongOnesAreRefusedByField) {
  struct Case {
    const char* path;
    const char* body;
    const char* message;
  };
  for (const Case& c : {
           Case{"resourceflavors", R"({"spec":{"nodeSelector":{"nodeType":"nvidia"}}})",
                "unknown field \"spec.nodeSelector\""},
           Case{"clusterqueues",
                R"({"spec":{"resourceGroups":[{"flavors":["nvidia","nvidia-efa"],
                    "resources":[{"name":"nvidia.com/gpu","nominalQuota":100}]}]}})",
                "spec.resourceGroups[0].flavors[0]"},
           Case{"clusterqueues", R"({"spec":{"queueingStrategy":"LIFO"}})",
                "spec.queueingStrategy"},
           Case{"clusterqueues", R"({"spec":{"resourceGroups":[{"coveredResources":["cpu"],
                    "flavors":[{"name":"f","resources":[{"name":"cpu"}]}]}]}})",
                "nominalQuota"},
           Case{"workloadpriorityclasses", R"({"value":3000000000})", "value"},
           Case{"workloadpriorityclasses", "{}", "value"},
           Case{"namespaces/default/workloads", R"({"spec":{"podSets":[]}})", "spec.podSets"},
           Case{"namespaces/default/workloads",
                R"({"spec":{"priorityClassSource":"kueue.x-k8s.io/workloadpriorityclass"}})",
                "unknown field \"spec.priorityClassSource\""},
       }) {
    TestServer server;
    TestJson body = TestJson::parse(c.body);
    body["metadata"]["name"] = "wrong";
    const TestAnswer answer =
        server.Call(Method::kPost, std::string("/apis/kueue.x-k8s.io/v1beta2/") + c.path, body,
                    {{"fieldValidation", "Strict"}});
    EXPECT_GE(answer.status, 400) << c.body;
    EXPECT_THAT(answer.message(), HasSubstr(c.message)) << c.body;
  }
}

}  // namespace
}  // namespace muster::kube::embedded
