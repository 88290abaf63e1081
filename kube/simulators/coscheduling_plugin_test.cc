// What is well known of scheduler-plugins' coscheduling, case by case: when it starts a gang whole,
// and what it holds meanwhile.

#include "kube/simulators/coscheduling_plugin.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "kube/simulators/api_client.h"
#include "kube/simulators/scheduler_simulator.h"
#include "kube/simulators/test_amounts.h"
#include "kube/simulators/virtual_cluster.h"

namespace muster::kube::simulators {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

const Json kGated = {{"schedulingGates", Json::array({{{"name", "example.com/wait"}}})}};

class CoschedulingPluginTest : public ::testing::Test {
 protected:
  void Start(CoschedulingConfig config = {}) {
    plugin_.emplace(&cluster_.server(), config);
    scheduler_.emplace(&cluster_.server(), nullptr, SchedulerConfig{}, &*plugin_);
    cluster_.Drive(&*scheduler_);
  }

  void CreateNodes(int first, int count) {
    for (int i = first; i < first + count; ++i) {
      cluster_.CreateNode(fmt::format("n-{:02}", i), kNode);
    }
  }

  void CreateGroup(const std::string& name, int min_member, const Json& more = Json::object()) {
    Json spec = {{"minMember", min_member}};
    spec.update(more);
    cluster_.Create("/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups",
                    {{"apiVersion", "scheduling.x-k8s.io/v1alpha1"},
                     {"kind", "PodGroup"},
                     {"metadata", {{"name", name}}},
                     {"spec", spec}});
  }

  void CreateMember(const std::string& name, const std::string& group,
                    const Json& more = Json::object()) {
    Json spec = {{"schedulerName", "coscheduling"},
                 {"containers", Json::array({{{"name", "main"},
                                              {"image", "train"},
                                              {"resources",
                                               {{"requests", {{"nvidia.com/gpu", "1"}}},
                                                {"limits", {{"nvidia.com/gpu", "1"}}}}}}})}};
    spec.update(more);
    cluster_.Create(
        "/api/v1/namespaces/default/pods",
        {{"apiVersion", "v1"},
         {"kind", "Pod"},
         {"metadata", {{"name", name}, {"labels", {{"scheduling.x-k8s.io/pod-group", group}}}}},
         {"spec", spec}});
  }

  void CreateGang(const std::string& name, int members) {
    CreateGroup(name, members);
    for (int i = 0; i < members; ++i) CreateMember(fmt::format("{}-{}", name, i), name);
  }

  int Bound(const std::string& group) {
    int bound = 0;
    for (const Json& pod : cluster_.List("/api/v1/pods")) {
      const Json labels = pod.at("metadata").value("labels", Json::object());
      bound += labels.value("scheduling.x-k8s.io/pod-group", "") == group &&
               !pod.at("spec").value("nodeName", "").empty();
    }
    return bound;
  }

  std::string WhyNot(const std::string& pod) {
    const Json object = cluster_.Pod(pod);
    for (const Json& condition : object.value("/status/conditions"_json_pointer, Json::array())) {
      if (condition["type"] != "PodScheduled") continue;
      return condition.value("reason", "") + ": " + condition.value("message", "");
    }
    return "";
  }

  bool IsBound(const std::string& pod) {
    return !cluster_.Pod(pod)["spec"].value("nodeName", "").empty();
  }

  VirtualCluster cluster_;
  std::optional<CoschedulingPlugin> plugin_;
  std::optional<SchedulerSimulator> scheduler_;
};

TEST_F(CoschedulingPluginTest, AGangStartsWholeAtTheMomentItsLastNodeComes) {
  Start();
  CreateNodes(0, 3);
  CreateGang("job", 4);
  cluster_.RunTo(absl::Seconds(30));
  EXPECT_EQ(Bound("job"), 0);
  EXPECT_THAT(WhyNot("job-0"), HasSubstr("Unschedulable: ")) << "so that Karpenter sees it";
  CreateNodes(3, 1);
  cluster_.RunTo(absl::Seconds(30));
  EXPECT_EQ(Bound("job"), 4);
}

TEST_F(CoschedulingPluginTest, AGangOfFourWithThreeThatMayStartHoldsThreeNodesForThePermitTime) {
  Start();
  CreateNodes(0, 3);
  CreateGroup("job", 4);
  for (const char* name : {"job-0", "job-1", "job-2"}) CreateMember(name, "job");
  CreateMember("job-3", "job", kGated);
  cluster_.RunTo(absl::Seconds(1));
  cluster_.CreatePod("alone", {{"nvidia.com/gpu", "1"}});
  cluster_.RunTo(absl::Seconds(59));
  EXPECT_FALSE(IsBound("alone")) << "all three nodes are held, and idle";
  EXPECT_EQ(WhyNot("job-0"), "") << "who waits at Permit isn't Unschedulable";
  cluster_.RunTo(absl::Seconds(75));
  EXPECT_TRUE(IsBound("alone"));
  EXPECT_EQ(Bound("job"), 0);
}

TEST_F(CoschedulingPluginTest, ThePodGroupsScheduleTimeoutIsThePermitTime) {
  Start();
  CreateNodes(0, 1);
  CreateGroup("job", 2, {{"scheduleTimeoutSeconds", 5}});
  CreateMember("job-0", "job");
  CreateMember("job-1", "job", kGated);
  cluster_.RunTo(absl::Seconds(4));
  EXPECT_EQ(WhyNot("job-0"), "");
  cluster_.RunTo(absl::Seconds(5));
  EXPECT_EQ(WhyNot("job-0"),
            "Unschedulable: rejected due to timeout after waiting 5s at plugin Coscheduling");
}

TEST_F(CoschedulingPluginTest, TwoGangsWithNineOfTenEachBlockEachOtherUntilThePermitTimeIsOver) {
  Start();
  CreateNodes(0, 18);
  // Made in the same second, their pods come in turns, by name.
  CreateGroup("a", 10);
  CreateGroup("b", 10);
  for (int i = 0; i < 20; ++i) CreateMember(fmt::format("pod-{:02}", i), i % 2 == 0 ? "a" : "b");
  cluster_.RunTo(absl::Seconds(59));
  EXPECT_EQ(Bound("a") + Bound("b"), 0) << "though there is room for either";
  cluster_.RunTo(absl::Seconds(75));
  EXPECT_EQ(Bound("a"), 10);
  EXPECT_EQ(Bound("b"), 0);
}

TEST_F(CoschedulingPluginTest, AGangThatLacksMoreThanATenthHoldsNothing) {
  Start();
  CreateNodes(0, 6);
  CreateGang("first", 4);
  CreateGang("second", 4);
  cluster_.RunTo(absl::Seconds(1));
  EXPECT_EQ(Bound("first"), 4);
  EXPECT_EQ(Bound("second"), 0);
  EXPECT_THAT(WhyNot("second-0"), HasSubstr("rejection"));
  EXPECT_THAT(WhyNot("second-2"), HasSubstr("6 Insufficient nvidia.com/gpu"));
  cluster_.CreatePod("one", {{"nvidia.com/gpu", "1"}});
  cluster_.CreatePod("two", {{"nvidia.com/gpu", "1"}});
  cluster_.RunTo(absl::Seconds(2));
  EXPECT_TRUE(IsBound("one") && IsBound("two"));
}

TEST_F(CoschedulingPluginTest, OfTwoGangsTheOlderPodGroupComesFirst) {
  Start();
  CreateGroup("z", 2);
  cluster_.RunTo(absl::Seconds(5));
  CreateGroup("a", 2);
  for (const char* group : {"a", "z"}) {
    for (int i = 0; i < 2; ++i) CreateMember(fmt::format("{}-{}", group, i), group);
  }
  CreateNodes(0, 3);
  cluster_.RunTo(absl::Seconds(15));
  EXPECT_EQ(Bound("z"), 2);
  EXPECT_EQ(Bound("a"), 0);
}

TEST_F(CoschedulingPluginTest, BelowMinMemberPodsAreUnschedulableAtOnce) {
  Start();
  CreateNodes(0, 4);
  CreateGroup("job", 4);
  CreateMember("job-0", "job");
  cluster_.RunTo(absl::Seconds(1));
  EXPECT_THAT(WhyNot("job-0"), HasSubstr("cannot find enough sibling pods, current pods number: 1, "
                                         "minMember of group: 4"));
  for (const char* name : {"job-1", "job-2", "job-3"}) CreateMember(name, "job");
  cluster_.RunTo(absl::Seconds(1));
  EXPECT_EQ(Bound("job"), 4);
}

TEST_F(CoschedulingPluginTest, MinResourcesMustBeFreeOnAllNodesTogether) {
  Start();
  CreateNodes(0, 3);
  CreateGroup("job", 2, {{"minResources", {{"nvidia.com/gpu", "4"}}}});
  for (const char* name : {"job-0", "job-1"}) CreateMember(name, "job");
  cluster_.RunTo(absl::Seconds(1));
  EXPECT_THAT(WhyNot("job-0"), HasSubstr("resource gap: 4 of nvidia.com/gpu, 3 are free"));
  CreateNodes(3, 1);
  cluster_.RunTo(absl::Seconds(1));
  EXPECT_EQ(Bound("job"), 2);
}

TEST_F(CoschedulingPluginTest, APodGroupThatIsntThereIsSaid) {
  Start();
  CreateNodes(0, 1);
  CreateMember("job-0", "job");
  cluster_.RunTo(absl::Seconds(1));
  EXPECT_EQ(WhyNot("job-0"), "Unschedulable: PodGroup not found");
  CreateGroup("job", 1);
  cluster_.RunTo(absl::Seconds(1));
  EXPECT_EQ(Bound("job"), 1);
}

TEST_F(CoschedulingPluginTest, AMemberThatGoesWhileItWaitsTakesTheOthersWithIt) {
  Start();
  CreateNodes(0, 2);
  CreateGroup("job", 3);
  for (const char* name : {"job-0", "job-1"}) CreateMember(name, "job");
  CreateMember("job-2", "job", kGated);
  cluster_.RunTo(absl::Seconds(10));
  EXPECT_EQ(WhyNot("job-1"), "");
  cluster_.Try(Method::kDelete, PodPath("default", "job-0"), {{"gracePeriodSeconds", 0}});
  cluster_.RunTo(absl::Seconds(10));
  EXPECT_EQ(WhyNot("job-1"), "Unschedulable: rejection in Unreserve");
}

TEST_F(CoschedulingPluginTest, ANodeThatIsGoingIsWaitedForNoLonger) {
  Start();
  CreateNodes(0, 2);
  CreateGroup("job", 2);
  CreateMember("job-0", "job");
  CreateMember("job-1", "job", kGated);
  cluster_.RunTo(absl::Seconds(10));
  cluster_.Patch(NodePath("n-00"), {{"spec", {{"unschedulable", true}}}});
  cluster_.Patch(PodPath("default", "job-1"), {{"spec", {{"schedulingGates", nullptr}}}});
  cluster_.RunTo(absl::Seconds(20));
  EXPECT_EQ(Bound("job"), 0);
  CreateNodes(2, 1);
  cluster_.RunTo(absl::Seconds(20));
  EXPECT_EQ(Bound("job"), 2);
}

TEST_F(CoschedulingPluginTest, AGroupThatWasTurnedAwayIsLeftAloneForItsBackoff) {
  Start({.pod_group_backoff = absl::Seconds(30)});
  CreateNodes(0, 1);
  CreateGang("job", 2);
  cluster_.RunTo(absl::Seconds(10));
  CreateNodes(1, 1);
  cluster_.RunTo(absl::Seconds(10));
  EXPECT_EQ(Bound("job"), 0);
  EXPECT_THAT(WhyNot("job-0"), HasSubstr("podGroup default/job failed recently"));
  cluster_.RunTo(absl::Seconds(31));
  CreateNodes(2, 1);
  cluster_.RunTo(absl::Seconds(31));
  EXPECT_EQ(Bound("job"), 2);
}

}  // namespace
}  // namespace muster::kube::simulators
