#include "kube/simulators/scheduler_simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "kube/simulators/api_client.h"
#include "kube/simulators/test_amounts.h"
#include "kube/simulators/virtual_cluster.h"

namespace muster::kube::simulators {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

// Keeps every call; answers as it is told.
class RecordingExtender : public ExtenderClient {
 public:
  explicit RecordingExtender(VirtualCluster* cluster) : cluster_(cluster) {}

  FilterResult Filter(const FilterCall& call) override {
    filters.push_back(call);
    if (on_filter) return on_filter(call);
    return {call.node_names, {}, ""};
  }

  void Bind(const BindCall& call, BindDone done) override {
    binds.push_back(call);
    if (hold) {
      held.push_back(std::move(done));
      return;
    }
    done(bind_error.empty() ? Post(call) : bind_error);
  }

  // The binding itself; the server's refusal is the error.
  std::string Post(const BindCall& call) {
    Response response =
        cluster_->Try(Method::kPost, PodPath(call.pod_namespace, call.pod_name) + "/binding",
                      {{"apiVersion", "v1"},
                       {"kind", "Binding"},
                       {"metadata", {{"name", call.pod_name}, {"uid", call.pod_uid}}},
                       {"target", {{"kind", "Node"}, {"name", call.node}}}});
    return response.ok() ? "" : std::string(ToStatus(response).message());
  }

  std::vector<FilterCall> filters;
  std::vector<BindCall> binds;
  std::function<FilterResult(const FilterCall&)> on_filter;
  std::string bind_error;
  bool hold = false;
  std::vector<BindDone> held;

 private:
  VirtualCluster* const cluster_;
};

FilterResult RejectAll(const FilterCall& call, const std::string& reason) {
  FilterResult result;
  for (const std::string& node : call.node_names) result.failed[node] = reason;
  return result;
}

class SchedulerSimulatorTest : public ::testing::Test {
 protected:
  SchedulerSimulatorTest() : extender_(&cluster_) {}

  void Start(SchedulerConfig config = {}) {
    scheduler_.emplace(&cluster_.server(), &extender_, std::move(config));
    cluster_.Drive(&*scheduler_);
  }

  void CreateNodes(int count) {
    for (int i = 0; i < count; ++i) cluster_.CreateNode("n-" + std::to_string(i), kNode);
  }

  std::string NodeOf(const std::string& pod) {
    return cluster_.Pod(pod)["spec"].value("nodeName", "");
  }

  Json Scheduled(const std::string& pod) {
    const Json object = cluster_.Pod(pod);
    for (const Json& condition : object["status"]["conditions"]) {
      if (condition["type"] == "PodScheduled") return condition;
    }
    return {};
  }

  VirtualCluster cluster_;
  RecordingExtender extender_;
  std::optional<SchedulerSimulator> scheduler_;
};

TEST_F(SchedulerSimulatorTest, UngatedPodsOfItsNameAreBoundThroughTheExtender) {
  Start();
  CreateNodes(2);
  cluster_.CreatePod("mine", kOneGpu);
  cluster_.CreatePod("gated", kOneGpu,
                     {{"schedulingGates", Json::array({{{"name", "muster.dev/admission"}}})}});
  cluster_.CreatePod("other", kOneGpu, {{"schedulerName", "default-scheduler"}});
  cluster_.RunTo(absl::Seconds(1));
  EXPECT_EQ(NodeOf("mine"), "n-0");
  EXPECT_EQ(NodeOf("gated"), "");
  EXPECT_EQ(NodeOf("other"), "");
  ASSERT_THAT(extender_.filters, SizeIs(1));
  EXPECT_EQ(Json::parse(extender_.filters[0].pod_json)["metadata"]["name"], "mine");
  EXPECT_THAT(extender_.filters[0].node_names, ElementsAre("n-0", "n-1"));

  cluster_.Patch(PodPath("default", "gated"), {{"spec", {{"schedulingGates", nullptr}}}});
  cluster_.RunTo(absl::Seconds(1));
  EXPECT_EQ(NodeOf("gated"), "n-1") << "n-0 has no GPU left";
}

TEST_F(SchedulerSimulatorTest, OfTwoPodsForOneNodeTheOlderIsBoundAndTheOtherWaitsForRoom) {
  Start();
  CreateNodes(1);
  cluster_.CreatePod("first", kOneGpu);
  cluster_.CreatePod("second", kOneGpu);
  cluster_.RunTo(absl::Seconds(1));
  EXPECT_EQ(NodeOf("first"), "n-0");
  EXPECT_EQ(NodeOf("second"), "");
  EXPECT_EQ(Scheduled("second")["reason"], "Unschedulable");
  EXPECT_EQ(Scheduled("second")["message"],
            "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.");
  EXPECT_THAT(extender_.filters, SizeIs(1)) << "the extender isn't asked about no nodes";
  cluster_.RunTo(absl::Seconds(60));
  cluster_.Try(Method::kDelete, PodPath("default", "first"), {{"gracePeriodSeconds", 0}});
  cluster_.RunTo(absl::Seconds(61));
  EXPECT_EQ(NodeOf("second"), "n-0");
}

TEST_F(SchedulerSimulatorTest, AnAssumedPodKeepsItsRoomWhileItsBindIsHeld) {
  extender_.hold = true;
  Start({.bind_timeout = absl::Seconds(30)});
  CreateNodes(1);
  cluster_.CreatePod("held", kOneGpu);
  cluster_.CreatePod("small", {{"cpu", "1"}});
  cluster_.CreatePod("waits", kOneGpu);
  cluster_.RunTo(absl::Seconds(10));
  EXPECT_THAT(extender_.binds, SizeIs(2)) << "binds are under way together";
  EXPECT_EQ(Scheduled("waits")["reason"], "Unschedulable");
  extender_.held[0](extender_.Post(extender_.binds[0]));
  cluster_.RunTo(absl::Seconds(11));
  EXPECT_EQ(NodeOf("held"), "n-0");
}

TEST_F(SchedulerSimulatorTest, HigherPriorityGoesFirst) {
  CreateNodes(1);
  cluster_.CreatePod("low", kOneGpu);
  cluster_.CreatePod("high", kOneGpu, {{"priority", 100}});
  Start();
  cluster_.RunTo(absl::Seconds(1));
  EXPECT_EQ(NodeOf("high"), "n-0");
}

TEST_F(SchedulerSimulatorTest, TheExtendersReasonsAreCountedAndAnyEventTriesAgain) {
  bool open = false;
  extender_.on_filter = [&](const FilterCall& call) {
    if (open) return FilterResult{{"n-1"}, {}, ""};
    return RejectAll(call, "gang default/job waits for 3 more members");
  };
  Start();
  CreateNodes(2);
  cluster_.CreatePod("pod", kOneGpu);
  cluster_.RunTo(absl::Seconds(60));
  EXPECT_EQ(Scheduled("pod")["reason"], "Unschedulable");
  EXPECT_EQ(Scheduled("pod")["message"],
            "0/2 nodes are available: 2 gang default/job waits for 3 more members.");
  size_t tries = extender_.filters.size();
  EXPECT_LE(tries, 3) << "a stable message doesn't wake its own pod again and again";
  open = true;
  cluster_.RunTo(absl::Seconds(120));
  EXPECT_EQ(extender_.filters.size(), tries);
  cluster_.Patch(PodPath("default", "pod"), {{"metadata", {{"annotations", {{"wake", "1"}}}}}});
  cluster_.RunTo(absl::Seconds(121));
  EXPECT_EQ(NodeOf("pod"), "n-1");
}

TEST_F(SchedulerSimulatorTest, ForcedAfterFiveMinutes) {
  bool open = false;
  extender_.on_filter = [&](const FilterCall& call) {
    return open ? FilterResult{call.node_names, {}, ""} : RejectAll(call, "not yet");
  };
  Start();
  CreateNodes(1);
  cluster_.CreatePod("pod", kOneGpu);
  cluster_.RunTo(absl::Seconds(1));
  open = true;
  absl::Duration bound =
      cluster_.RunUntil([&] { return !NodeOf("pod").empty(); }, absl::Minutes(10));
  EXPECT_EQ(bound, absl::Minutes(5));
}

TEST_F(SchedulerSimulatorTest, AnErrorOfTheFilterIsASchedulerErrorThatKarpenterIgnores) {
  extender_.on_filter = [](const FilterCall&) { return FilterResult{{}, {}, "unknown pod"}; };
  Start();
  CreateNodes(1);
  cluster_.CreatePod("pod", kOneGpu);
  cluster_.RunTo(absl::Milliseconds(500));
  EXPECT_EQ(Scheduled("pod")["reason"], "SchedulerError");
  EXPECT_EQ(Scheduled("pod")["message"], "unknown pod");
  EXPECT_THAT(extender_.filters, SizeIs(1));
  cluster_.CreateNode("n-1", kNode);
  cluster_.RunTo(absl::Milliseconds(600));
  EXPECT_THAT(extender_.filters, SizeIs(1)) << "an event doesn't cut its backoff short";
  cluster_.RunTo(absl::Seconds(3));
  EXPECT_GE(extender_.filters.size(), 2);
}

TEST_F(SchedulerSimulatorTest, AFilteredNodeThatWasntOfferedIsAnError) {
  extender_.on_filter = [](const FilterCall&) { return FilterResult{{"n-7"}, {}, ""}; };
  Start();
  CreateNodes(1);
  cluster_.CreatePod("pod", kOneGpu);
  cluster_.RunTo(absl::Milliseconds(500));
  EXPECT_THAT(std::string(Scheduled("pod")["message"]), HasSubstr("\"n-7\" which is not found"));
}

TEST_F(SchedulerSimulatorTest, ARefusedBindFreesTheRoomAndIsTriedAgain) {
  extender_.bind_error = "409: Precondition failed: UID in precondition";
  Start();
  CreateNodes(1);
  cluster_.CreatePod("pod", kOneGpu);
  cluster_.RunTo(absl::Milliseconds(100));
  EXPECT_EQ(Scheduled("pod")["reason"], "SchedulerError");
  EXPECT_THAT(std::string(Scheduled("pod")["message"]), HasSubstr("409"));
  extender_.bind_error.clear();
  cluster_.CreatePod("other", {{"cpu", "1"}});
  cluster_.RunTo(absl::Seconds(3));
  EXPECT_EQ(NodeOf("other"), "n-0");
  EXPECT_EQ(NodeOf("pod"), "n-0");
}

TEST_F(SchedulerSimulatorTest, APodThatTurnsOutBoundIsDropped) {
  extender_.hold = true;
  Start();
  CreateNodes(2);
  cluster_.CreatePod("pod", kOneGpu);
  cluster_.RunTo(absl::Seconds(1));
  // Bound to another node than the one that was assumed, and then the call fails.
  ASSERT_THAT(extender_.binds, SizeIs(1));
  EXPECT_EQ(extender_.binds[0].node, "n-0");
  EXPECT_TRUE(cluster_.Bind("pod", "n-1").ok());
  cluster_.RunTo(absl::Seconds(2));
  EXPECT_THAT(extender_.Post(extender_.binds[0]),
              HasSubstr("409: Operation cannot be fulfilled on pods/binding \"pod\": pod pod is "
                        "already assigned to node \"n-1\""));
  extender_.held[0]("409");
  cluster_.RunTo(absl::Minutes(10));
  EXPECT_THAT(extender_.filters, SizeIs(1));
  EXPECT_EQ(Scheduled("pod")["status"], "True");
  // Its assumed room on n-0 is free again.
  extender_.hold = false;
  cluster_.CreatePod("next", kOneGpu);
  cluster_.RunTo(absl::Minutes(11));
  EXPECT_EQ(NodeOf("next"), "n-0");
}

TEST_F(SchedulerSimulatorTest, ABindWithoutAnAnswerTimesOutAndALateAnswerChangesNothing) {
  extender_.hold = true;
  Start({.bind_timeout = absl::Seconds(5)});
  CreateNodes(1);
  cluster_.CreatePod("pod", kOneGpu);
  cluster_.RunTo(absl::Milliseconds(4'999));
  EXPECT_EQ(VirtualCluster::Condition(cluster_.Pod("pod"), "PodScheduled"), "");
  cluster_.RunTo(absl::Seconds(5));
  EXPECT_EQ(Scheduled("pod")["reason"], "SchedulerError");
  EXPECT_THAT(std::string(Scheduled("pod")["message"]), HasSubstr("deadline exceeded"));
  cluster_.RunTo(absl::Seconds(8));
  ASSERT_THAT(extender_.binds, SizeIs(2));
  extender_.held[0]("too late");
  cluster_.RunTo(absl::Seconds(9));
  EXPECT_THAT(extender_.binds, SizeIs(2)) << "the second bind is still under way";
}

TEST_F(SchedulerSimulatorTest, AnAnswerMayComeOnAnotherThreadAndAfterTheEnd) {
  extender_.hold = true;
  Start();
  CreateNodes(2);
  cluster_.CreatePod("a", kOneGpu);
  cluster_.CreatePod("b", kOneGpu);
  cluster_.RunTo(absl::Seconds(1));
  ASSERT_THAT(extender_.held, SizeIs(2));
  std::thread([&] { extender_.held[0]("refused"); }).join();
  EXPECT_LE(scheduler_->NextWake(), cluster_.now());
  scheduler_->Tick(cluster_.now());
  EXPECT_EQ(Scheduled("a")["message"], "refused");
  scheduler_.reset();
  extender_.held[1]("nobody listens");
}

TEST_F(SchedulerSimulatorTest, ANominatedNodeIsTriedAloneFirst) {
  Start();
  CreateNodes(3);
  cluster_.CreatePod("pod", kOneGpu,
                     {{"schedulingGates", Json::array({{{"name", "muster.dev/admission"}}})}});
  cluster_.Patch(PodPath("default", "pod") + "/status",
                 {{"status", {{"nominatedNodeName", "n-2"}}}});
  cluster_.Patch(PodPath("default", "pod"), {{"spec", {{"schedulingGates", nullptr}}}});
  cluster_.RunTo(absl::Seconds(1));
  ASSERT_THAT(extender_.filters, SizeIs(1));
  EXPECT_THAT(extender_.filters[0].node_names, ElementsAre("n-2"));
  EXPECT_EQ(NodeOf("pod"), "n-2");
}

TEST_F(SchedulerSimulatorTest, ItsOwnFiltersComeFirst) {
  Start();
  CreateNodes(4);
  cluster_.Patch(NodePath("n-0"), {{"spec", {{"unschedulable", true}}}});
  cluster_.Patch(NodePath("n-1"), {{"spec",
                                    {{"taints", Json::array({{{"key", "nvidia.com/gpu"},
                                                              {"value", "true"},
                                                              {"effect", "NoSchedule"}}})}}}});
  cluster_.Patch(NodePath("n-2"), {{"metadata", {{"labels", {{"team", "web"}}}}}});
  cluster_.Patch(NodePath("n-3"), {{"metadata", {{"labels", {{"team", "ml"}}}}}});
  cluster_.CreatePod("fits", kOneGpu, {{"nodeSelector", {{"team", "ml"}}}});
  cluster_.CreatePod("waits", kOneGpu, {{"nodeSelector", {{"team", "ml"}}}});
  cluster_.RunTo(absl::Seconds(1));
  EXPECT_EQ(NodeOf("fits"), "n-3");
  EXPECT_EQ(Scheduled("waits")["message"],
            "0/4 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) didn't match Pod's "
            "node affinity/selector, 1 node(s) had untolerated taint {nvidia.com/gpu: true}, 1 "
            "node(s) were unschedulable.");
  cluster_.Patch(NodePath("n-2"), {{"metadata", {{"labels", {{"team", "ml"}}}}}});
  cluster_.RunTo(absl::Seconds(3));
  EXPECT_EQ(NodeOf("waits"), "n-2");
}

TEST_F(SchedulerSimulatorTest, WithoutNodesAPodIsUnschedulable) {
  Start();
  cluster_.CreatePod("pod", kOneGpu);
  cluster_.RunTo(absl::Seconds(1));
  EXPECT_EQ(Scheduled("pod")["reason"], "Unschedulable");
  EXPECT_EQ(Scheduled("pod")["message"], "no nodes available to schedule pods");
  CreateNodes(1);
  cluster_.RunTo(absl::Seconds(30));
  EXPECT_EQ(NodeOf("pod"), "n-0");
}

TEST_F(SchedulerSimulatorTest, AMessageThatChangesWithEveryTryDoesntStopTheWorld) {
  int tries = 0;
  extender_.on_filter = [&](const FilterCall& call) {
    if (call.pod_name == "fine") return FilterResult{call.node_names, {}, ""};
    return RejectAll(call, "try " + std::to_string(++tries));
  };
  Start();
  CreateNodes(1);
  cluster_.CreatePod("restless", kOneGpu);
  cluster_.CreatePod("fine", {{"cpu", "1"}});
  for (int i = 0; i < 3; ++i) scheduler_->Tick(cluster_.now());
  EXPECT_EQ(NodeOf("fine"), "n-0");
  EXPECT_LE(tries, 60);
}

}  // namespace
}  // namespace muster::kube::simulators
