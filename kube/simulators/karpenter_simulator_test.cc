#include "kube/simulators/karpenter_simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

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

constexpr const char* kClaimsPath = "/apis/karpenter.sh/v1/nodeclaims";
constexpr int64_t kGi = int64_t{1} << 30;

const Json kGatedByMuster = {
    {"schedulingGates", Json::array({{{"name", "muster.dev/admission"}}})}};

InstanceType Type(const std::string& name, int64_t gpus, int64_t price,
                  std::vector<std::string> zones = {"us-west-2a"}) {
  InstanceType type;
  type.name = name;
  type.capacity.Set(kCpu, 8000 * std::max<int64_t>(gpus, 1));
  type.capacity.Set(kMemory, 32 * kGi * std::max<int64_t>(gpus, 1));
  type.capacity.Set(kPods, 58);
  if (gpus > 0) type.capacity.Set(kNvidiaGpu, gpus);
  for (std::string& zone : zones) type.offerings.push_back({std::move(zone), "on-demand", price});
  return type;
}

std::string NameOf(const Json& object) { return object["metadata"]["name"]; }

LaunchBehavior Registers(double seconds) {
  LaunchBehavior behavior;
  behavior.registration = absl::Seconds(seconds);
  behavior.initialization = absl::Seconds(1);
  return behavior;
}

class KarpenterSimulatorTest : public ::testing::Test {
 protected:
  void Start(KarpenterConfig config) {
    karpenter_.emplace(&cluster_.server(), std::move(config));
    cluster_.Drive(&*karpenter_);
  }

  // A pool of one-GPU nodes whose launches go as said.
  void StartWith(std::vector<LaunchBehavior> launches, const Json& pool = Json::object()) {
    KarpenterConfig config;
    config.instance_types = {Type("g6.2xlarge", 1, 100)};
    config.launches["gpu"] = std::move(launches);
    Start(std::move(config));
    cluster_.CreatePool("gpu", {"g6.2xlarge"}, pool);
  }

  void CreateGang(int members, const Json& requests = kOneGpu) {
    for (int i = 0; i < members; ++i) {
      cluster_.CreatePod("job-" + std::to_string(i), requests, kGatedByMuster);
    }
  }

  void SignalGang(int members, const std::string& reason = "Unschedulable") {
    for (int i = 0; i < members; ++i) cluster_.Signal("job-" + std::to_string(i), reason);
  }

  size_t Initialized() {
    size_t count = 0;
    for (const Json& node : cluster_.Nodes()) {
      count += node["metadata"]["labels"].contains("karpenter.sh/initialized") ? 1 : 0;
    }
    return count;
  }

  VirtualCluster cluster_;
  std::optional<KarpenterSimulator> karpenter_;
};

TEST_F(KarpenterSimulatorTest, FourNodesRegisterThreeSixTwelveAndTwentySecondsAfterTheirLaunch) {
  StartWith({Registers(3), Registers(6), Registers(12), Registers(20)});
  CreateGang(4);
  SignalGang(4);
  cluster_.RunTo(absl::Milliseconds(999));
  EXPECT_EQ(cluster_.Count(kClaimsPath), 0);
  cluster_.RunTo(absl::Seconds(1));  // the batching window has been idle for 1 s
  EXPECT_EQ(cluster_.Count(kClaimsPath), 4);
  std::vector<absl::Duration> initialized;
  for (size_t n = 1; n <= 4; ++n) {
    initialized.push_back(cluster_.RunUntil([&] { return Initialized() == n; }, absl::Seconds(60)));
  }
  EXPECT_THAT(initialized, ElementsAre(absl::Seconds(5), absl::Seconds(8), absl::Seconds(14),
                                       absl::Seconds(22)));
  cluster_.RunTo(absl::Seconds(120));
  EXPECT_EQ(cluster_.Count(kClaimsPath), 4) << "pods that stay signalled keep their nodes";
}

TEST_F(KarpenterSimulatorTest, TheStagesOfANodeCanBeToldApart) {
  LaunchBehavior behavior = Registers(3);
  behavior.launch = absl::Seconds(2);
  StartWith({behavior}, {{"template", {{"metadata", {{"labels", {{"team", "ml"}}}}}}}});
  CreateGang(1);
  SignalGang(1);
  cluster_.RunTo(absl::Seconds(2));
  Json claim = cluster_.Claims().at(0);
  EXPECT_FALSE(claim.contains("status"));
  EXPECT_EQ(claim["spec"]["resources"]["requests"]["nvidia.com/gpu"], "1");

  cluster_.RunTo(absl::Seconds(3));
  claim = cluster_.Claims().at(0);
  EXPECT_EQ(VirtualCluster::Condition(claim, "Launched"), "True/Launched");
  EXPECT_EQ(VirtualCluster::Condition(claim, "Registered"), "Unknown/NodeNotFound");
  EXPECT_EQ(VirtualCluster::Condition(claim, "Ready"), "Unknown/ReconcilingDependents");
  EXPECT_EQ(claim["metadata"]["labels"]["node.kubernetes.io/instance-type"], "g6.2xlarge");
  EXPECT_EQ(claim["metadata"]["labels"]["topology.kubernetes.io/zone"], "us-west-2a");
  EXPECT_EQ(claim["metadata"]["labels"]["karpenter.sh/capacity-type"], "on-demand");
  EXPECT_EQ(claim["metadata"]["labels"]["karpenter.sh/nodepool"], "gpu");
  EXPECT_EQ(claim["status"]["allocatable"]["nvidia.com/gpu"], "1");
  EXPECT_THAT(cluster_.Nodes(), IsEmpty());

  cluster_.RunTo(absl::Seconds(6));
  claim = cluster_.Claims().at(0);
  Json node = cluster_.Nodes().at(0);
  EXPECT_EQ(VirtualCluster::Condition(claim, "Registered"), "True/Registered");
  EXPECT_EQ(VirtualCluster::Condition(claim, "Initialized"), "Unknown/NodeNotReady");
  EXPECT_NE(node["metadata"]["name"], claim["metadata"]["name"]);
  EXPECT_EQ(node["metadata"]["name"], claim["status"]["nodeName"]);
  EXPECT_EQ(node["spec"]["providerID"], claim["status"]["providerID"]);
  EXPECT_EQ(node["metadata"]["labels"]["karpenter.sh/registered"], "true");
  EXPECT_EQ(node["metadata"]["labels"]["team"], "ml");
  EXPECT_FALSE(node["metadata"]["labels"].contains("karpenter.sh/initialized"));
  EXPECT_FALSE(VirtualCluster::HasTaint(node, "karpenter.sh/unregistered"));
  EXPECT_TRUE(VirtualCluster::HasTaint(node, "node.kubernetes.io/not-ready"));
  EXPECT_EQ(VirtualCluster::Condition(node, "Ready"), "False/KubeletNotReady");

  cluster_.RunTo(absl::Seconds(7));
  claim = cluster_.Claims().at(0);
  node = cluster_.Nodes().at(0);
  EXPECT_EQ(VirtualCluster::Condition(claim, "Initialized"), "True/Initialized");
  EXPECT_EQ(VirtualCluster::Condition(claim, "Ready"), "True/Ready");
  EXPECT_EQ(VirtualCluster::Condition(node, "Ready"), "True/KubeletReady");
  EXPECT_FALSE(VirtualCluster::HasTaint(node, "node.kubernetes.io/not-ready"));
  EXPECT_EQ(node["metadata"]["labels"]["karpenter.sh/initialized"], "true");
  Json pool = cluster_.Get("/apis/karpenter.sh/v1/nodepools/gpu");
  EXPECT_EQ(pool["status"]["resources"]["nvidia.com/gpu"], "1");
  EXPECT_EQ(VirtualCluster::Condition(pool, "Ready"), "True/Ready");
}

TEST_F(KarpenterSimulatorTest, SignalsWithinOneWindowAreOneBatch) {
  KarpenterConfig config;
  config.instance_types = {Type("p5.48xlarge", 8, 1000)};
  Start(std::move(config));
  cluster_.CreatePool("gpu", {"p5.48xlarge"});
  CreateGang(4, {{"nvidia.com/gpu", "2"}});
  for (int i = 0; i < 4; ++i) {
    cluster_.RunTo(absl::Milliseconds(900) * i);
    cluster_.Signal("job-" + std::to_string(i));
  }
  cluster_.RunTo(absl::Milliseconds(3699));
  EXPECT_EQ(cluster_.Count(kClaimsPath), 0);
  cluster_.RunTo(absl::Milliseconds(3700));
  EXPECT_EQ(cluster_.Count(kClaimsPath), 1) << "four pods of two GPUs share a node of eight";
}

TEST_F(KarpenterSimulatorTest, AWindowClosesAfterTenSecondsWhateverComes) {
  StartWith({Registers(3)});
  CreateGang(12);
  for (int i = 0; i < 12; ++i) {
    cluster_.RunTo(absl::Milliseconds(900) * i);
    EXPECT_EQ(cluster_.Count(kClaimsPath), 0);
    cluster_.Signal("job-" + std::to_string(i));
  }
  EXPECT_EQ(cluster_.RunUntil([&] { return cluster_.Count(kClaimsPath) == 12; }, absl::Minutes(1)),
            absl::Seconds(10));
}

TEST_F(KarpenterSimulatorTest, OnlyPodsMarkedUnschedulableGetNodes) {
  StartWith({Registers(3)});
  CreateGang(3);
  cluster_.Signal("job-1", "SchedulerError");
  cluster_.Signal("job-2");
  cluster_.Patch(PodPath("default", "job-2") + "/status",
                 {{"status", {{"nominatedNodeName", "somewhere"}}}});
  cluster_.RunTo(absl::Seconds(60));
  EXPECT_EQ(cluster_.Count(kClaimsPath), 0);
}

TEST_F(KarpenterSimulatorTest, EmptyNodesGoOnceThePodsAreNoLongerSignalled) {
  StartWith({Registers(3)});
  CreateGang(4);
  SignalGang(4);
  cluster_.RunTo(absl::Seconds(60));
  ASSERT_EQ(Initialized(), 4);
  SignalGang(4, "SchedulingGated");
  auto tainted = [&] {
    auto nodes = cluster_.Nodes();
    return std::any_of(nodes.begin(), nodes.end(), [](const Json& node) {
      return VirtualCluster::HasTaint(node, "karpenter.sh/disrupted");
    });
  };
  // The nomination of at most 20 s, at most 10 s to the next look, 15 s of validation.
  absl::Duration chosen = cluster_.RunUntil(tainted, absl::Minutes(10));
  EXPECT_GE(chosen, absl::Seconds(60 + 15));
  EXPECT_LE(chosen, absl::Seconds(60 + 20 + 10 + 15));
  absl::Duration gone =
      cluster_.RunUntil([&] { return cluster_.Count(kClaimsPath) == 0; }, absl::Minutes(10));
  EXPECT_EQ(gone, chosen + absl::Seconds(5));
  EXPECT_THAT(cluster_.Nodes(), IsEmpty());
  EXPECT_THAT(cluster_.Events("DisruptionTerminating"), Contains("Disrupting Node: Empty"));
}

TEST_F(KarpenterSimulatorTest, ANodeWithDoNotDisruptStays) {
  StartWith({Registers(3)});
  CreateGang(2);
  SignalGang(2);
  cluster_.RunTo(absl::Seconds(30));
  std::string held = NameOf(cluster_.Nodes().at(0));
  cluster_.Patch(NodePath(held),
                 {{"metadata", {{"annotations", {{"karpenter.sh/do-not-disrupt", "true"}}}}}});
  SignalGang(2, "SchedulingGated");
  cluster_.RunTo(absl::Minutes(5));
  ASSERT_THAT(cluster_.Nodes(), SizeIs(1));
  EXPECT_EQ(NameOf(cluster_.Nodes().at(0)), held);
  cluster_.Patch(NodePath(held),
                 {{"metadata", {{"annotations", {{"karpenter.sh/do-not-disrupt", nullptr}}}}}});
  cluster_.RunTo(absl::Minutes(6));
  EXPECT_THAT(cluster_.Nodes(), IsEmpty());
}

TEST_F(KarpenterSimulatorTest, AProtectionThatComesDuringTheValidationStillCounts) {
  StartWith({Registers(3)});
  CreateGang(1);
  SignalGang(1);
  cluster_.RunTo(absl::Seconds(30));
  SignalGang(1, "SchedulingGated");
  cluster_.RunTo(absl::Seconds(55));  // chosen by now
  ASSERT_THAT(cluster_.Nodes(), SizeIs(1));
  cluster_.Patch(NodePath(NameOf(cluster_.Nodes().at(0))),
                 {{"metadata", {{"annotations", {{"karpenter.sh/do-not-disrupt", "true"}}}}}});
  cluster_.RunTo(absl::Minutes(5));
  EXPECT_THAT(cluster_.Nodes(), SizeIs(1));
}

TEST_F(KarpenterSimulatorTest, ANodeInUseStaysAndIsEmptyAfterItsPodsAndConsolidateAfter) {
  StartWith({Registers(3)}, {{"disruption", {{"consolidateAfter", "1m"}}}});
  cluster_.CreatePod("job-0", kOneGpu);
  SignalGang(1);
  cluster_.RunTo(absl::Seconds(10));
  EXPECT_TRUE(cluster_.Bind("job-0", NameOf(cluster_.Nodes().at(0))).ok());
  cluster_.RunTo(absl::Minutes(5));
  ASSERT_THAT(cluster_.Nodes(), SizeIs(1));
  cluster_.Patch(PodPath("default", "job-0") + "/status", {{"status", {{"phase", "Succeeded"}}}});
  absl::Duration gone =
      cluster_.RunUntil([&] { return cluster_.Nodes().empty(); }, absl::Minutes(20));
  EXPECT_GE(gone, absl::Minutes(6) + absl::Seconds(15));
  EXPECT_LE(gone, absl::Minutes(6) + absl::Seconds(15 + 10 + 5));
}

TEST_F(KarpenterSimulatorTest, ALaunchWithoutCapacityDeletesTheClaimAndBlocksTheOffering) {
  LaunchBehavior sold_out;
  sold_out.insufficient_capacity = true;
  StartWith({Registers(3), sold_out, Registers(3)});
  CreateGang(2);
  SignalGang(2);
  cluster_.RunTo(absl::Seconds(2));
  EXPECT_THAT(cluster_.Claims(), SizeIs(1));
  EXPECT_THAT(cluster_.Events("InsufficientCapacityError"),
              ElementsAre(HasSubstr("insufficient capacity")));
  cluster_.RunTo(absl::Seconds(20));
  EXPECT_THAT(
      cluster_.Events("FailedScheduling"),
      Contains(HasSubstr("Failed to schedule pod, nodepool requirements filtered out all available "
                         "instance types")));
  // Karpenter's next look after the 3 minutes.
  absl::Duration bought =
      cluster_.RunUntil([&] { return cluster_.Claims().size() == 2; }, absl::Minutes(10));
  EXPECT_GE(bought, absl::Seconds(181));
  EXPECT_LE(bought, absl::Seconds(192));
}

TEST_F(KarpenterSimulatorTest, AnOutageInOneZoneIsEvadedInAnother) {
  KarpenterConfig config;
  config.instance_types = {Type("g6.2xlarge", 1, 100, {"us-west-2a", "us-west-2b"})};
  config.outages = {{"g6.2xlarge", "us-west-2a"}};
  Start(std::move(config));
  cluster_.CreatePool("gpu", {"g6.2xlarge"});
  CreateGang(1);
  SignalGang(1);
  cluster_.RunTo(absl::Seconds(5));
  ASSERT_THAT(cluster_.Claims(), SizeIs(1));
  EXPECT_EQ(cluster_.Claims()[0]["metadata"]["labels"]["topology.kubernetes.io/zone"],
            "us-west-2b");
  EXPECT_THAT(cluster_.Events("InsufficientCapacityError"), IsEmpty());
}

TEST_F(KarpenterSimulatorTest, OfAStockOfTwoAThirdIsBoughtOnceOneIsGone) {
  KarpenterConfig config;
  config.instance_types = {Type("g6.2xlarge", 1, 100)};
  config.default_launch = Registers(3);
  config.stocks = {{"g6.2xlarge", "us-west-2a", 2}};
  Start(std::move(config));
  cluster_.CreatePool("gpu", {"g6.2xlarge"});
  CreateGang(3);
  SignalGang(3);
  cluster_.RunTo(absl::Minutes(4));
  EXPECT_EQ(Initialized(), 2);
  EXPECT_THAT(cluster_.Events("InsufficientCapacityError"), SizeIs(2)) << "again after 3 minutes";
  cluster_.Delete(NodeClaimPath(NameOf(cluster_.Claims().at(0))));
  cluster_.RunTo(absl::Minutes(5));
  EXPECT_EQ(Initialized(), 1) << "it counts as sold out for 3 minutes";
  cluster_.RunTo(absl::Minutes(8));
  EXPECT_EQ(Initialized(), 2);
}

TEST_F(KarpenterSimulatorTest, SevenOfEightGpusAreEnoughToBeInitialized) {
  KarpenterConfig config;
  config.instance_types = {Type("p5.48xlarge", 8, 1000)};
  LaunchBehavior behavior = Registers(3);
  behavior.devices = absl::Seconds(10);
  behavior.devices_before.Set(kNvidiaGpu, 7);
  config.default_launch = behavior;
  Start(std::move(config));
  cluster_.CreatePool("gpu", {"p5.48xlarge"});
  CreateGang(1, {{"nvidia.com/gpu", "8"}});
  SignalGang(1);
  cluster_.RunTo(absl::Seconds(5));
  EXPECT_EQ(Initialized(), 1);
  Json node = cluster_.Nodes().at(0);
  EXPECT_EQ(node["status"]["allocatable"]["nvidia.com/gpu"], "7");
  cluster_.RunTo(absl::Seconds(15));
  node = cluster_.Get(NodePath(NameOf(node)));
  EXPECT_EQ(node["status"]["allocatable"]["nvidia.com/gpu"], "8");
  EXPECT_GT(cluster_.Claims().size(), 1) << "meanwhile Karpenter tries another node";
}

TEST_F(KarpenterSimulatorTest, ANodeWithoutItsRequestedDevicesIsntInitialized) {
  LaunchBehavior behavior = Registers(3);
  behavior.devices = absl::Seconds(30);
  StartWith({behavior});
  CreateGang(1);
  SignalGang(1);
  cluster_.RunTo(absl::Seconds(20));
  EXPECT_EQ(VirtualCluster::Condition(cluster_.Claims().at(0), "Initialized"),
            "Unknown/ResourceNotRegistered");
  EXPECT_EQ(cluster_.Nodes().at(0)["status"]["allocatable"]["nvidia.com/gpu"], "0");
  cluster_.RunTo(absl::Seconds(35));
  EXPECT_EQ(Initialized(), 1);
}

TEST_F(KarpenterSimulatorTest, AStartupTaintHoldsInitializationBack) {
  StartWith({Registers(3)},
            {{"template",
              {{"spec",
                {{"startupTaints",
                  Json::array({{{"key", "example.com/agent"}, {"effect", "NoSchedule"}}})}}}}}});
  CreateGang(1);
  SignalGang(1);
  cluster_.RunTo(absl::Seconds(60));
  Json node = cluster_.Nodes().at(0);
  EXPECT_TRUE(VirtualCluster::HasTaint(node, "example.com/agent"));
  EXPECT_EQ(VirtualCluster::Condition(cluster_.Claims().at(0), "Initialized"),
            "Unknown/StartupTaintsExist");
  cluster_.Patch(NodePath(NameOf(node)), {{"spec", {{"taints", Json::array()}}}});
  cluster_.RunTo(absl::Seconds(61));
  EXPECT_EQ(Initialized(), 1);
}

TEST_F(KarpenterSimulatorTest, AClaimThatNeverRegistersGoesAfterFifteenMinutes) {
  LaunchBehavior never;
  never.never_registers = true;
  StartWith({never, Registers(3)});
  CreateGang(1);
  SignalGang(1);
  cluster_.RunTo(absl::Seconds(2));
  std::string first = NameOf(cluster_.Claims().at(0));
  absl::Duration gone = cluster_.RunUntil(
      [&] { return cluster_.Get(NodeClaimPath(first)).is_null(); }, absl::Minutes(30));
  EXPECT_EQ(gone, absl::Minutes(15) + absl::Seconds(1));
  cluster_.RunTo(gone + absl::Seconds(20));
  EXPECT_EQ(Initialized(), 1) << "the pod is still signalled: the next launch is for it";
}

TEST_F(KarpenterSimulatorTest, ALaunchThatTakesTooLongGoesAfterFiveMinutes) {
  LaunchBehavior slow = Registers(3);
  slow.launch = absl::Hours(1);
  StartWith({slow});
  CreateGang(1);
  SignalGang(1);
  cluster_.RunTo(absl::Seconds(2));
  std::string first = NameOf(cluster_.Claims().at(0));
  EXPECT_EQ(cluster_.RunUntil([&] { return cluster_.Get(NodeClaimPath(first)).is_null(); },
                              absl::Minutes(30)),
            absl::Minutes(5) + absl::Seconds(1));
}

TEST_F(KarpenterSimulatorTest, NothingIsBoughtWhileAClaimIsntLaunched) {
  LaunchBehavior slow = Registers(3);
  slow.launch = absl::Seconds(30);
  StartWith({slow, Registers(3)});
  CreateGang(2);
  cluster_.Signal("job-0");
  cluster_.RunTo(absl::Seconds(5));
  cluster_.Signal("job-1");
  cluster_.RunTo(absl::Seconds(30));
  EXPECT_THAT(cluster_.Claims(), SizeIs(1));
  cluster_.RunTo(absl::Seconds(42));
  EXPECT_THAT(cluster_.Claims(), SizeIs(2));
}

TEST_F(KarpenterSimulatorTest, NodePoolLimitsCutAGangInHalf) {
  StartWith({Registers(3)}, {{"limits", {{"nvidia.com/gpu", "2"}}}});
  CreateGang(4);
  SignalGang(4);
  cluster_.RunTo(absl::Seconds(60));
  EXPECT_THAT(cluster_.Claims(), SizeIs(2));
  EXPECT_THAT(cluster_.Events("FailedScheduling"),
              Contains("Failed to schedule pod, all available instance types exceed limits for "
                       "nodepool (NodePool=gpu)"));
}

TEST_F(KarpenterSimulatorTest, FailuresAreToldInKarpentersWords) {
  StartWith({Registers(3)}, {{"template",
                              {{"spec",
                                {{"taints", Json::array({{{"key", "nvidia.com/gpu"},
                                                          {"value", "true"},
                                                          {"effect", "NoSchedule"}}})}}}}}});
  auto with = [&](Json more) {
    more["schedulingGates"] = kGatedByMuster["schedulingGates"];
    return more;
  };
  Json tolerations = Json::array({{{"key", "nvidia.com/gpu"}, {"operator", "Exists"}}});
  cluster_.CreatePod("plain", kOneGpu, with(Json::object()));
  cluster_.CreatePod("big", {{"nvidia.com/gpu", "9"}}, with({{"tolerations", tolerations}}));
  cluster_.CreatePod("elsewhere", kOneGpu,
                     with({{"tolerations", tolerations},
                           {"nodeSelector", {{"topology.kubernetes.io/zone", "eu-central-1a"}}}}));
  cluster_.CreatePod("unknown", kOneGpu,
                     with({{"tolerations", tolerations}, {"nodeSelector", {{"team", "ml"}}}}));
  for (const char* pod : {"plain", "big", "elsewhere", "unknown"}) cluster_.Signal(pod);
  cluster_.RunTo(absl::Minutes(4));
  EXPECT_THAT(
      cluster_.Events("FailedScheduling"),
      ::testing::UnorderedElementsAre(
          "Failed to schedule pod, did not tolerate taint (taint=nvidia.com/gpu=true:NoSchedule)",
          HasSubstr("no instance type has enough resources, requirements="),
          HasSubstr("no instance type met the scheduling requirements or had a required offering"),
          "Failed to schedule pod, incompatible requirements, label \"team\" does not have known "
          "values"))
      << "once per pod in 5 minutes";
}

TEST_F(KarpenterSimulatorTest, WithoutNodePoolsOrInstanceTypesThePodsAreToldSo) {
  Start({});
  CreateGang(1);
  SignalGang(1);
  cluster_.RunTo(absl::Seconds(5));
  EXPECT_THAT(cluster_.Events("FailedScheduling"),
              ElementsAre("Failed to schedule pod, no nodepools found"));
  cluster_.CreatePool("gpu", {"g6.2xlarge"});
  cluster_.RunTo(absl::Minutes(6));
  EXPECT_THAT(cluster_.Events("FailedScheduling"),
              Contains("Failed to schedule pod, nodepool requirements filtered out all available "
                       "instance types"));
}

TEST_F(KarpenterSimulatorTest, TheHeaviestNodePoolAndTheCheapestFittingTypeAreChosen) {
  KarpenterConfig config;
  config.instance_types = {Type("dear", 4, 500), Type("small", 1, 100), Type("cheap", 4, 300)};
  Start(std::move(config));
  cluster_.CreatePool("a-light", {"small"});
  cluster_.CreatePool("b-heavy", {"dear", "small", "cheap"}, {{"weight", 50}});
  CreateGang(3);
  SignalGang(3);
  cluster_.RunTo(absl::Seconds(5));
  ASSERT_THAT(cluster_.Claims(), SizeIs(1));
  Json labels = cluster_.Claims()[0]["metadata"]["labels"];
  EXPECT_EQ(labels["karpenter.sh/nodepool"], "b-heavy");
  EXPECT_EQ(labels["node.kubernetes.io/instance-type"], "cheap");
}

TEST_F(KarpenterSimulatorTest, RoomOnNodesThatAreThereIsUsedFirst) {
  StartWith({Registers(3)});
  cluster_.CreateNode("static",
                      {{"cpu", "8"}, {"memory", "32Gi"}, {"pods", "58"}, {"nvidia.com/gpu", "1"}});
  CreateGang(2);
  SignalGang(2);
  cluster_.RunTo(absl::Seconds(60));
  EXPECT_THAT(cluster_.Claims(), SizeIs(1));
  EXPECT_THAT(cluster_.Events("Nominated"), Contains("Pod should schedule on: node/static"));
}

TEST_F(KarpenterSimulatorTest, DaemonSetsTakeTheirPartOfANode) {
  KarpenterConfig config;
  config.instance_types = {Type("one", 1, 100), Type("two", 2, 200)};
  Start(std::move(config));
  cluster_.CreatePool("gpu", {"one", "two"});
  Json container = {
      {"name", "agent"}, {"image", "agent"}, {"resources", {{"requests", {{"cpu", "1"}}}}}};
  cluster_.Create("/apis/apps/v1/namespaces/default/daemonsets",
                  {{"apiVersion", "apps/v1"},
                   {"kind", "DaemonSet"},
                   {"metadata", {{"name", "agent"}}},
                   {"spec",
                    {{"selector", {{"matchLabels", {{"app", "agent"}}}}},
                     {"template",
                      {{"metadata", {{"labels", {{"app", "agent"}}}}},
                       {"spec", {{"containers", Json::array({container})}}}}}}}});
  CreateGang(1, {{"cpu", "8"}});
  SignalGang(1);
  cluster_.RunTo(absl::Seconds(5));
  EXPECT_EQ(cluster_.Claims().at(0)["metadata"]["labels"]["node.kubernetes.io/instance-type"],
            "two");
}

TEST_F(KarpenterSimulatorTest, ClaimsWhoseNodePoolIsDeletedGo) {
  StartWith({Registers(3), Registers(60)});
  CreateGang(2);
  SignalGang(2);
  cluster_.RunTo(absl::Seconds(30));
  EXPECT_THAT(cluster_.Nodes(), SizeIs(1));
  cluster_.Delete("/apis/karpenter.sh/v1/nodepools/gpu");
  cluster_.RunTo(absl::Seconds(45));
  EXPECT_THAT(cluster_.Claims(), IsEmpty());
  EXPECT_THAT(cluster_.Nodes(), IsEmpty());
}

TEST_F(KarpenterSimulatorTest, ADeletedNodeIsDrainedFirst) {
  StartWith({Registers(3)});
  cluster_.CreatePod("job-0", kOneGpu);
  SignalGang(1);
  cluster_.RunTo(absl::Seconds(10));
  std::string node = NameOf(cluster_.Nodes().at(0));
  EXPECT_TRUE(cluster_.Bind("job-0", node).ok());
  cluster_.RunTo(absl::Seconds(11));
  cluster_.Delete(NodePath(node));
  cluster_.RunTo(absl::Seconds(12));
  EXPECT_TRUE(VirtualCluster::HasTaint(cluster_.Get(NodePath(node)), "karpenter.sh/disrupted"));
  EXPECT_TRUE(cluster_.Claims().at(0)["metadata"].contains("deletionTimestamp"));
  EXPECT_TRUE(cluster_.Pod("job-0")["metadata"].contains("deletionTimestamp"));
  // The kubelet says that the pod has ended.
  cluster_.Try(Method::kDelete, PodPath("default", "job-0"), {{"gracePeriodSeconds", 0}});
  cluster_.RunTo(absl::Seconds(20));
  EXPECT_TRUE(cluster_.Get(NodePath(node)).is_null());
}

TEST_F(KarpenterSimulatorTest, APodWithDoNotDisruptHoldsADeletedNode) {
  StartWith({Registers(3)});
  cluster_.CreatePod("job-0", kOneGpu);
  cluster_.Patch(PodPath("default", "job-0"),
                 {{"metadata", {{"annotations", {{"karpenter.sh/do-not-disrupt", "true"}}}}}});
  SignalGang(1);
  cluster_.RunTo(absl::Seconds(10));
  std::string node = NameOf(cluster_.Nodes().at(0));
  EXPECT_TRUE(cluster_.Bind("job-0", node).ok());
  cluster_.Delete(NodeClaimPath(NameOf(cluster_.Claims().at(0))));
  cluster_.RunTo(absl::Minutes(10));
  EXPECT_FALSE(cluster_.Get(NodePath(node)).is_null());
  EXPECT_FALSE(cluster_.Pod("job-0")["metadata"].contains("deletionTimestamp"));
}

TEST_F(KarpenterSimulatorTest, TheHistoryMayBeForgottenUnderItsWatches) {
  StartWith({Registers(3)});
  CreateGang(2);
  cluster_.RunTo(absl::Seconds(1));
  SignalGang(2);
  cluster_.Delete(PodPath("default", "job-1"));
  cluster_.server().CompactHistory();
  cluster_.RunTo(absl::Seconds(10));
  EXPECT_THAT(cluster_.Claims(), SizeIs(1));
  EXPECT_EQ(Initialized(), 1);
}

// Everything that is there after two minutes of ten nodes coming and half of them going.
std::string TwoMinutes() {
  VirtualCluster cluster;
  KarpenterConfig config;
  config.instance_types = {Type("g6.2xlarge", 1, 100)};
  config.launches["gpu"] = {Registers(3), Registers(6), Registers(12), Registers(20)};
  KarpenterSimulator karpenter(&cluster.server(), std::move(config));
  cluster.Drive(&karpenter);
  cluster.CreatePool("gpu", {"g6.2xlarge"});
  for (int i = 0; i < 10; ++i)
    cluster.CreatePod("job-" + std::to_string(i), kOneGpu, kGatedByMuster);
  for (int i = 0; i < 10; ++i) cluster.Signal("job-" + std::to_string(i));
  cluster.RunTo(absl::Seconds(40));
  for (int i = 0; i < 5; ++i) cluster.Delete(PodPath("default", "job-" + std::to_string(i)));
  cluster.RunTo(absl::Minutes(2));
  Json all = {cluster.Nodes(), cluster.Claims(), cluster.List("/api/v1/events")};
  return all.dump();
}

TEST(KarpenterSimulatorRunsTest, EqualRunsAreEqual) { EXPECT_EQ(TwoMinutes(), TwoMinutes()); }

}  // namespace
}  // namespace muster::kube::simulators
