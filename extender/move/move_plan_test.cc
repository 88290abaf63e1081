#include "extender/move/move_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fmt/format.h"

namespace muster::extender {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const absl::Time kNow = absl::FromUnixSeconds(1'767'225'600);  // 2026-01-01T00:00:00Z

class MovePlanTest : public testing::Test {
 protected:
  void Add(const std::string& list, const std::string& text) {
    objects_.lists[list].push_back(json::parse(text));
  }
  // A pod of a namespace "team".
  json& AddPod(const std::string& name, const std::string& scheduler, const std::string& node) {
    Add("pods", fmt::format(R"({{"metadata":{{"name":"{}","namespace":"team","uid":"pod-{}"}},
        "spec":{{"schedulerName":"{}","containers":[{{"name":"c"}}]}},"status":{{}}}})",
                            name, name, scheduler));
    json& pod = objects_.lists["pods"].back();
    if (!node.empty()) pod["spec"]["nodeName"] = node;
    return pod;
  }
  json& AddWorkload(const std::string& kind, const std::string& owner, bool admitted) {
    Add("workloads",
        fmt::format(R"({{"metadata":{{"name":"w-{}","namespace":"team","uid":"w-{}",
        "ownerReferences":[{{"apiVersion":"{}","kind":"{}","name":"{}","uid":"{}","controller":true}}]}},
        "spec":{{"podSets":[{{"name":"main","template":{{"spec":{{"schedulerName":"coscheduling",
                                                             "containers":[{{"name":"c"}}]}}}}}}]}},
        "status":{{"admission":{{"clusterQueue":"q"}},
                   "conditions":[{{"type":"QuotaReserved","status":"{}"}}]}}}})",
                    owner, owner, kind == "Pod" ? "v1" : "batch/v1", kind, owner,
                    kind == "Pod" ? "pod-" + owner : "job-" + owner, admitted ? "True" : "False"));
    return objects_.lists["workloads"].back();
  }
  MovePlan In() const { return PlanMoveIn(objects_, {}, kNow); }
  MovePlan Out() const { return PlanMoveOut(objects_, {}, kNow); }

  MoveObjects objects_;
};

TEST_F(MovePlanTest, NothingIsLeftInAClusterWithoutKueue) {
  Add("kueue deployments",
      R"({"metadata":{"name":"k","namespace":"kueue-system"},"spec":{"replicas":0}})");
  Add("customresourcedefinitions",
      R"({"metadata":{"name":"workloads.kueue.x-k8s.io"},
          "spec":{"group":"kueue.x-k8s.io","conversion":{"strategy":"None"}}})");
  Add("leases", R"({"metadata":{"name":"c1f6bfd2.kueue.x-k8s.io"},
                    "spec":{"holderIdentity":"","leaseDurationSeconds":15,"renewTime":"2026-01-01T00:00:00.000000Z"}})");
  EXPECT_EQ(PlanText(In(), "muster move in --apply"), "Nothing is left to do.\n");
}

TEST_F(MovePlanTest, WhatKueueLeavesInTheWayIsNamedWithWhatToDo) {
  Add("kueue deployments",
      R"({"metadata":{"name":"kueue-controller-manager","namespace":"kueue-system"},"spec":{"replicas":1}})");
  Add("leases", R"({"metadata":{"name":"c1f6bfd2.kueue.x-k8s.io"},
      "spec":{"holderIdentity":"manager_1","leaseDurationSeconds":15,"renewTime":"2025-12-31T23:59:50.000000Z"}})");
  for (const char* kind : {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}) {
    Add(kind, R"({"metadata":{"name":"kueue"},
                  "webhooks":[{"clientConfig":{"service":{"namespace":"kueue-system"}}}]})");
    Add(kind, R"({"metadata":{"name":"others"},
                  "webhooks":[{"clientConfig":{"service":{"namespace":"others"}}}]})");
  }
  Add("customresourcedefinitions",
      R"({"metadata":{"name":"workloads.kueue.x-k8s.io"},
          "spec":{"group":"kueue.x-k8s.io","conversion":{"strategy":"Webhook"}}})");
  Add("apiservices", R"({"metadata":{"name":"v1beta2.visibility.kueue.x-k8s.io"},
      "spec":{"group":"visibility.kueue.x-k8s.io","service":{"name":"kueue-visibility-server"}}})");
  const MovePlan plan = In();
  EXPECT_THAT(
      plan.by_hand,
      ElementsAre(
          HasSubstr(
              "kubectl -n kueue-system scale deployment kueue-controller-manager --replicas=0"),
          AllOf(HasSubstr("manager_1"), HasSubstr("10s ago")),
          HasSubstr("kubectl delete mutatingwebhookconfigurations kueue"),
          HasSubstr("kubectl delete validatingwebhookconfigurations kueue"),
          HasSubstr("kubectl patch crd workloads.kueue.x-k8s.io"),
          HasSubstr("kubectl delete apiservice v1beta2.visibility.kueue.x-k8s.io")));
}

TEST_F(MovePlanTest, KueuesGateGoesFromPodsThatMustersKeepsAndItsFinalizerFromAll) {
  json& ours = AddPod("ours", "coscheduling", "");
  ours["metadata"]["finalizers"] = {"kueue.x-k8s.io/managed", "others"};
  ours["spec"]["schedulingGates"] =
      json::array({{{"name", "muster.dev/admission"}}, {{"name", "kueue.x-k8s.io/admission"}}});
  AddPod("theirs", "default-scheduler", "")["spec"]["schedulingGates"] =
      json::array({{{"name", "kueue.x-k8s.io/admission"}}});
  const MovePlan plan = In();
  ASSERT_THAT(plan.fixes, SizeIs(2));
  ASSERT_THAT(plan.fixes[0].requests, SizeIs(1));
  EXPECT_EQ(plan.fixes[0].requests[0].path, "/api/v1/namespaces/team/pods/ours");
  EXPECT_EQ(json::parse(plan.fixes[0].requests[0].body),
            json::parse(R"([{"op":"test","path":"/metadata/uid","value":"pod-ours"},
                {"op":"test","path":"/spec/schedulingGates/1/name","value":"kueue.x-k8s.io/admission"},
                {"op":"remove","path":"/spec/schedulingGates/1"}])"));
  ASSERT_THAT(plan.fixes[1].requests, SizeIs(1));
  EXPECT_EQ(json::parse(plan.fixes[1].requests[0].body)[2],
            json::parse(R"({"op":"remove","path":"/metadata/finalizers/0"})"))
      << "no precondition that the patch before breaks";
  EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("(team/theirs)")));
  EXPECT_THAT(plan.by_hand, IsEmpty());
}

TEST_F(MovePlanTest, WorkloadsThatNobodyCouldStartAreNamed) {
  AddWorkload("Job", "runs", true);
  AddWorkload("Job", "waits", false)["spec"]["podSets"][0]["template"]["spec"]["schedulerName"] =
      "default-scheduler";
  AddWorkload("LeaderWorkerSet", "unread", true);
  EXPECT_THAT(In().notes,
              ElementsAre(HasSubstr("Job 1, LeaderWorkerSet 1"),
                          AllOf(HasSubstr("kind LeaderWorkerSet"), HasSubstr("team/w-unread")),
                          AllOf(HasSubstr("another scheduler"), HasSubstr("team/w-waits"))));
}

TEST_F(MovePlanTest, OutOfItWhatRunsIsReadyAndWhatHasNoNodeIsEvicted) {
  AddWorkload("Job", "runs", true);
  AddWorkload("Job", "waits", true);
  AddWorkload("Job", "queued", false);
  AddPod("runs-0", "coscheduling", "node")["metadata"]["ownerReferences"] =
      json::parse(R"([{"uid":"child","controller":true}])");
  Add("jobs",
      R"({"metadata":{"uid":"child","ownerReferences":[{"uid":"job-runs","controller":true}]}})");
  const MovePlan plan = Out();
  ASSERT_THAT(plan.fixes, SizeIs(2));
  ASSERT_THAT(plan.fixes[0].requests, SizeIs(1));
  const kube::Request& evict = plan.fixes[0].requests[0];
  EXPECT_EQ(evict.path, "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/w-waits/status");
  const json evicted = json::parse(evict.body)["status"]["conditions"];
  ASSERT_EQ(evicted.size(), 1u) << "an apply takes away what it doesn't name, of its own manager";
  EXPECT_EQ(evicted[0]["type"], "Evicted");
  EXPECT_EQ(evicted[0]["reason"], "Preempted") << "what Kueue requeues";
  EXPECT_THAT(evict.query, testing::Not(testing::Contains(std::pair<std::string, std::string>(
                               "fieldManager", "kueue-admission"))));
  ASSERT_THAT(plan.fixes[1].requests, SizeIs(1));
  EXPECT_THAT(plan.fixes[1].requests[0].path, HasSubstr("w-runs"));
  EXPECT_THAT(plan.fixes[1].requests[0].body, HasSubstr("PodsReady"));
}

TEST_F(MovePlanTest, JobsThatKueueWouldStartForASchedulerThatIsGoneAreNamed) {
  AddWorkload("Job", "runs", true);
  AddPod("runs-0", "coscheduling", "node")["metadata"]["ownerReferences"] =
      json::parse(R"([{"uid":"job-runs","controller":true}])");
  AddWorkload("Job", "evicted", true);
  AddWorkload("Job", "queued", false);
  AddWorkload("Job", "theirs", false)["spec"]["podSets"][0]["template"]["spec"]["schedulerName"] =
      "default-scheduler";
  AddWorkload("Pod", "alone", false);
  AddWorkload("Job", "over", true)["status"]["conditions"].push_back(
      {{"type", "Finished"}, {"status", "True"}});
  EXPECT_THAT(Out().notes, testing::Contains(AllOf(HasSubstr("2 Workloads wait"),
                                                   HasSubstr("scheduler coscheduling"),
                                                   HasSubstr("(team/w-evicted; team/w-queued)"))));
}

TEST_F(MovePlanTest, APodAloneIsHandedOverWithAWorkloadThatHasItsContainers) {
  AddWorkload("Pod", "alone", true);
  json& pod = AddPod("alone", "coscheduling", "node");
  pod["spec"]["containers"][0]["image"] = "x";
  const MovePlan plan = Out();
  ASSERT_THAT(plan.fixes, SizeIs(2));
  ASSERT_THAT(plan.fixes[0].requests, SizeIs(2));
  const json patch = json::parse(plan.fixes[0].requests[0].body);
  EXPECT_EQ(patch[1]["path"], "/spec/podSets/0/template/spec");
  EXPECT_EQ(patch[1]["value"]["containers"], pod["spec"]["containers"]);
  EXPECT_FALSE(patch[1]["value"].contains("nodeName"));
  EXPECT_EQ(
      json::parse(plan.fixes[0].requests[1].body)["metadata"]["labels"]["kueue.x-k8s.io/managed"],
      "true");

  pod["metadata"]["labels"]["kueue.x-k8s.io/managed"] = "true";
  objects_.lists["workloads"][0]["spec"]["podSets"][0]["template"]["spec"] = pod["spec"];
  EXPECT_THAT(Out().fixes, SizeIs(1)) << "done already, but for PodsReady";
}

TEST_F(MovePlanTest, AGroupOfPlainPodsGetsAWorkloadInKueuesForm) {
  json& workload = AddWorkload("PodGroup", "train", true);
  workload["spec"]["podSets"][0]["name"] = "set";
  for (const char* name : {"train-0", "train-1"}) {
    json& pod = AddPod(name, "coscheduling", "node");
    pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = "train";
    pod["metadata"]["annotations"]["muster.dev/pod-set"] = "set";
  }
  const MovePlan plan = Out();
  ASSERT_THAT(plan.fixes, SizeIs(1));
  const std::vector<kube::Request>& requests = plan.fixes[0].requests;
  ASSERT_THAT(requests, SizeIs(7));
  const json made = json::parse(requests[0].body);
  EXPECT_EQ(requests[0].method, kube::Method::kPost);
  EXPECT_EQ(made["metadata"]["name"], "train");
  EXPECT_EQ(made["metadata"]["annotations"]["kueue.x-k8s.io/is-group-workload"], "true");
  EXPECT_EQ(made["metadata"]["ownerReferences"].size(), 2u);
  EXPECT_EQ(made["spec"], workload["spec"]);
  EXPECT_EQ(json::parse(requests[1].body)["status"]["admission"], workload["status"]["admission"]);
  EXPECT_EQ(json::parse(requests[3].body)["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"],
            "set");
  EXPECT_TRUE(json::parse(requests[5].body)["metadata"]["finalizers"].is_null());
  EXPECT_EQ(requests[6].method, kube::Method::kDelete);

  json there = made;
  there["status"] = workload["status"];
  objects_.lists["workloads"].push_back(there);
  const MovePlan again = Out();
  ASSERT_FALSE(again.fixes.empty());
  ASSERT_THAT(again.fixes[0].requests, SizeIs(7)) << "one that was interrupted isn't ended";
  EXPECT_EQ(again.fixes[0].requests[6].path, requests[6].path);
}

TEST_F(MovePlanTest, AGangThatKueueHasNoIntegrationForIsListedBefore) {
  AddWorkload("PodGroup", "train", true);
  AddPod("train-0", "coscheduling", "node")["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] =
      "train";
  const MovePlan plan = Out();
  EXPECT_THAT(plan.fixes, IsEmpty());
  EXPECT_THAT(plan.notes[0], AllOf(HasSubstr("kind PodGroup"), HasSubstr("team/w-train")));
}

TEST_F(MovePlanTest, MusterMustBeGoneBeforeKueueComes) {
  Add("muster deployments",
      R"({"metadata":{"name":"muster","namespace":"muster-system"},"spec":{"replicas":2}})");
  Add("mutatingwebhookconfigurations", R"({"metadata":{"name":"muster-admission"}})");
  Add("validatingwebhookconfigurations", R"({"metadata":{"name":"muster-warnings"}})");
  Add("validatingwebhookconfigurations", R"({"metadata":{"name":"others"}})");
  EXPECT_THAT(
      Out().by_hand,
      ElementsAre(HasSubstr("kubectl -n muster-system scale deployment muster --replicas=0"),
                  HasSubstr("kubectl delete mutatingwebhookconfigurations muster-admission"),
                  AllOf(HasSubstr("kubectl delete validatingwebhookconfigurations muster-warnings"),
                        HasSubstr("stop nobody"))));
}

}  // namespace
}  // namespace muster::extender
