#include "kube/simulators/kubelet_simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "kube/simulators/api_client.h"
#include "kube/simulators/pod_script.h"
#include "kube/simulators/test_amounts.h"
#include "kube/simulators/virtual_cluster.h"

namespace muster::kube::simulators {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

class KubeletSimulatorTest : public ::testing::Test {
 protected:
  KubeletSimulatorTest() : kubelet_(&cluster_.server(), {}) {
    cluster_.Drive(&kubelet_);
    cluster_.CreateNode("n-0", kNode);
  }

  void CreateBound(const std::string& name, const Json& requests,
                   const Json& annotations = Json::object(), const std::string& node = "n-0") {
    cluster_.CreatePod(name, requests);
    if (!annotations.empty()) Annotate(name, annotations);
    EXPECT_TRUE(cluster_.Bind(name, node).ok());
  }

  void Annotate(const std::string& pod, const Json& annotations) {
    cluster_.Patch(PodPath("default", pod), {{"metadata", {{"annotations", annotations}}}});
  }

  Json Status(const std::string& pod) { return cluster_.Pod(pod)["status"]; }

  VirtualCluster cluster_;
  KubeletSimulator kubelet_;
};

TEST_F(KubeletSimulatorTest, ABoundPodRunsAfterAWhileAndIsReady) {
  cluster_.CreatePod("waits", {{"cpu", "1"}});
  CreateBound("runs", {{"cpu", "1"}});
  cluster_.RunTo(absl::Milliseconds(999));
  EXPECT_EQ(cluster_.Phase("runs"), "Pending");
  cluster_.RunTo(absl::Seconds(1));
  EXPECT_EQ(cluster_.Phase("runs"), "Running");
  Json pod = cluster_.Pod("runs");
  EXPECT_EQ(VirtualCluster::Condition(pod, "Ready"), "True/");
  EXPECT_EQ(VirtualCluster::Condition(pod, "PodScheduled"), "True/");
  EXPECT_TRUE(pod["status"]["containerStatuses"][0]["state"].contains("running"));
  cluster_.RunTo(absl::Hours(24));
  EXPECT_EQ(cluster_.Phase("runs"), "Running");
  EXPECT_EQ(cluster_.Phase("waits"), "Pending");
}

TEST_F(KubeletSimulatorTest, PodsWaitForTheirNodeToBeReady) {
  cluster_.Patch(
      NodePath("n-0") + "/status",
      {{"status", {{"conditions", Json::array({{{"type", "Ready"}, {"status", "False"}}})}}}});
  CreateBound("pod", {{"cpu", "1"}});
  cluster_.RunTo(absl::Seconds(30));
  EXPECT_EQ(cluster_.Phase("pod"), "Pending");
  cluster_.Patch(
      NodePath("n-0") + "/status",
      {{"status", {{"conditions", Json::array({{{"type", "Ready"}, {"status", "True"}}})}}}});
  cluster_.RunTo(absl::Seconds(31));
  EXPECT_EQ(cluster_.Phase("pod"), "Running");
}

TEST_F(KubeletSimulatorTest, APodEndsAsItsAnnotationsSay) {
  CreateBound("succeeds", {{"cpu", "1"}}, {{"muster.dev/simulated-run-time", "1m30s"}});
  CreateBound("fails", {{"cpu", "1"}},
              {{"muster.dev/simulated-run-time", "10s"},
               {"muster.dev/simulated-exit", "137: NCCL error: GPU 3 fell off the bus"}});
  CreateBound("told", {{"cpu", "1"}});
  cluster_.RunTo(absl::Seconds(11));
  EXPECT_EQ(cluster_.Phase("fails"), "Failed");
  Json ended = Status("fails")["containerStatuses"][0]["state"]["terminated"];
  EXPECT_EQ(ended["exitCode"], 137);
  EXPECT_EQ(ended["message"], "NCCL error: GPU 3 fell off the bus");
  EXPECT_EQ(VirtualCluster::Condition(cluster_.Pod("fails"), "Ready"), "False/PodFailed");
  cluster_.RunTo(absl::Seconds(90));
  EXPECT_EQ(cluster_.Phase("succeeds"), "Running");
  cluster_.RunTo(absl::Seconds(91));
  EXPECT_EQ(cluster_.Phase("succeeds"), "Succeeded");
  Annotate("told", {{"muster.dev/simulated-exit", "1"}});
  cluster_.RunTo(absl::Seconds(92));
  EXPECT_EQ(cluster_.Phase("told"), "Failed");
}

TEST_F(KubeletSimulatorTest, AnAnnotationThatCantBeReadIsNamedOnce) {
  CreateBound("pod", {{"cpu", "1"}}, {{"muster.dev/simulated-run-time", "soon"}});
  cluster_.RunTo(absl::Seconds(10));
  Annotate("pod", {{"other", "value"}});
  cluster_.RunTo(absl::Seconds(20));
  EXPECT_EQ(cluster_.Phase("pod"), "Running");
  EXPECT_THAT(cluster_.Events("InvalidAnnotation"),
              ElementsAre("annotation muster.dev/simulated-run-time is \"soon\", want a duration "
                          "such as 1m30s"));
}

TEST_F(KubeletSimulatorTest, WhatWouldOvercommitTheNodeIsTurnedAwayInTheOrderOfBinding) {
  CreateBound("first", {{"nvidia.com/gpu", "1"}, {"cpu", "1"}});
  CreateBound("second", {{"nvidia.com/gpu", "1"}, {"cpu", "1"}});
  CreateBound("third", {{"cpu", "7500m"}});
  CreateBound("fourth", {{"cpu", "7"}});
  cluster_.RunTo(absl::Seconds(2));
  EXPECT_EQ(cluster_.Phase("first"), "Running");
  EXPECT_EQ(cluster_.Phase("second"), "Failed");
  EXPECT_EQ(Status("second")["reason"], "OutOfnvidia.com/gpu");
  EXPECT_EQ(Status("second")["message"],
            "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 1, "
            "used: 1, capacity: 1");
  EXPECT_EQ(Status("third")["reason"], "OutOfcpu");
  EXPECT_THAT(std::string(Status("third")["message"]),
              HasSubstr("cpu, requested: 7500, used: 1000, capacity: 8000"));
  EXPECT_EQ(cluster_.Phase("fourth"), "Running");
}

TEST_F(KubeletSimulatorTest, RoomIsFreeAgainOnceAPodHasEnded) {
  CreateBound("first", {{"nvidia.com/gpu", "1"}}, {{"muster.dev/simulated-run-time", "5s"}});
  cluster_.RunTo(absl::Seconds(10));
  CreateBound("second", {{"nvidia.com/gpu", "1"}});
  cluster_.RunTo(absl::Seconds(12));
  EXPECT_EQ(cluster_.Phase("second"), "Running");
}

TEST_F(KubeletSimulatorTest, UnhealthyDevicesFailTheAdmissionOfPodsThatWantThem) {
  cluster_.Patch(
      NodePath("n-0"),
      {{"metadata", {{"annotations", {{"muster.dev/simulated-unhealthy", "nvidia.com/gpu"}}}}}});
  CreateBound("gpu", {{"nvidia.com/gpu", "1"}});
  CreateBound("cpu", {{"cpu", "1"}});
  cluster_.RunTo(absl::Seconds(2));
  EXPECT_EQ(Status("gpu")["reason"], "UnexpectedAdmissionError");
  EXPECT_EQ(Status("gpu")["message"],
            "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate "
            "unhealthy devices nvidia.com/gpu, which is unexpected");
  EXPECT_EQ(cluster_.Phase("cpu"), "Running");
}

TEST_F(KubeletSimulatorTest, ADeletedPodGoesAfterAShortGrace) {
  CreateBound("pod", {{"cpu", "1"}});
  cluster_.RunTo(absl::Seconds(10));
  cluster_.Delete(PodPath("default", "pod"));
  cluster_.RunTo(absl::Milliseconds(10'999));
  EXPECT_TRUE(cluster_.Pod("pod")["metadata"].contains("deletionTimestamp"));
  cluster_.RunTo(absl::Seconds(11));
  EXPECT_EQ(cluster_.Phase("pod"), "(gone)");
}

TEST_F(KubeletSimulatorTest, ADeletedPodTakesAsLongAsItSays) {
  CreateBound("pod", {{"cpu", "1"}}, {{"muster.dev/simulated-termination", "20s"}});
  cluster_.RunTo(absl::Seconds(10));
  cluster_.Delete(PodPath("default", "pod"));
  cluster_.RunTo(absl::Seconds(29));
  EXPECT_TRUE(cluster_.Pod("pod")["metadata"].contains("deletionTimestamp"));
  cluster_.RunTo(absl::Seconds(30));
  EXPECT_EQ(cluster_.Phase("pod"), "(gone)");
}

TEST_F(KubeletSimulatorTest, ADeletedPodWithAFinalizerIsLeftToItsOwner) {
  CreateBound("pod", {{"cpu", "1"}});
  cluster_.Patch(PodPath("default", "pod"),
                 {{"metadata", {{"finalizers", Json::array({"example.com/mine"})}}}});
  cluster_.RunTo(absl::Seconds(10));
  cluster_.Delete(PodPath("default", "pod"));
  cluster_.RunTo(absl::Minutes(10));
  EXPECT_EQ(cluster_.Phase("pod"), "Running");
  EXPECT_EQ(kubelet_.NextWake(), absl::InfiniteFuture());
  cluster_.Patch(PodPath("default", "pod"), {{"metadata", {{"finalizers", Json::array()}}}});
  cluster_.RunTo(absl::Minutes(11));
  EXPECT_EQ(cluster_.Phase("pod"), "(gone)");
}

TEST_F(KubeletSimulatorTest, PodsOfANodeThatIsGoneAreCollected) {
  CreateBound("pod", {{"cpu", "1"}});
  cluster_.RunTo(absl::Seconds(10));
  cluster_.Delete(NodePath("n-0"));
  cluster_.RunTo(absl::Seconds(49));
  EXPECT_EQ(cluster_.Phase("pod"), "Running");
  cluster_.RunTo(absl::Seconds(50));
  EXPECT_EQ(cluster_.Phase("pod"), "(gone)");
}

TEST_F(KubeletSimulatorTest, ANodeThatComesBackInTimeKeepsItsPods) {
  CreateBound("pod", {{"cpu", "1"}});
  cluster_.RunTo(absl::Seconds(10));
  cluster_.Delete(NodePath("n-0"));
  cluster_.RunTo(absl::Seconds(40));
  cluster_.CreateNode("n-0", kNode);
  cluster_.RunTo(absl::Minutes(10));
  EXPECT_EQ(cluster_.Phase("pod"), "Running");
}

TEST_F(KubeletSimulatorTest, ASuccessorOfTheSameNameStartsAnew) {
  CreateBound("pod", {{"cpu", "1"}}, {{"muster.dev/simulated-run-time", "5s"}});
  cluster_.RunTo(absl::Seconds(10));
  EXPECT_EQ(cluster_.Phase("pod"), "Succeeded");
  cluster_.Delete(PodPath("default", "pod"));
  CreateBound("pod", {{"cpu", "1"}}, {{"muster.dev/simulated-run-time", "5s"}});
  cluster_.RunTo(absl::Milliseconds(15'999));
  EXPECT_EQ(cluster_.Phase("pod"), "Running");
  cluster_.RunTo(absl::Seconds(16));
  EXPECT_EQ(cluster_.Phase("pod"), "Succeeded");
}

TEST(PodScriptTest, ExitCodesAndMessagesAreRead) {
  auto read = [](const char* exit) {
    ObjectMeta meta;
    meta.annotations["muster.dev/simulated-exit"] = exit;
    return PodScriptOf(meta);
  };
  EXPECT_EQ(read("0")->exit_code, 0);
  EXPECT_EQ(read("0")->run_time, absl::ZeroDuration());
  EXPECT_EQ(read("1:")->termination_message, "");
  EXPECT_EQ(read("1: EFA: timed out")->termination_message, "EFA: timed out");
  for (const char* bad : {"", "x", "-1", "256", "1 error", "99999999999999999999"}) {
    EXPECT_EQ(read(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(PodScriptOf({})->run_time, absl::InfiniteDuration());
}

}  // namespace
}  // namespace muster::kube::simulators
