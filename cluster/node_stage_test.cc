#include "cluster/node_stage.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <vector>

#include "cluster/snapshot.h"
#include "cluster/test_objects.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

using namespace test;
using kube::TaintEffect;

kube::NodeClaim GpuClaim() { return Launched(MakeClaim("c"), "aws:///i-1"); }
kube::Node GpuNode() { return WithGpus(Initialized(MakeEarlyNode("n", "aws:///i-1")), 8, 8); }

struct StageCase {
  const char* name;
  std::function<void(kube::Node&, kube::NodeClaim&)> change;
  bool has_node;
  bool has_claim;
  NodeStage want;
  std::string message;
};

TEST(ReadinessOf, FollowsTheNodeFromRequestToUse) {
  auto nothing = [](kube::Node&, kube::NodeClaim&) {};
  const std::vector<StageCase> cases = {
      {"a claim that isn't launched",
       [](kube::Node&, kube::NodeClaim& claim) { claim = MakeClaim("c"); }, false, true,
       NodeStage::kRequested, "requested, not launched"},
      {"a claim that can't be launched says why",
       [](kube::Node&, kube::NodeClaim& claim) {
         claim = MakeClaim("c");
         claim.conditions["Launched"] = {"Unknown", "LaunchFailed", "no p5 in us-west-2a", {}};
       },
       false, true, NodeStage::kRequested, "requested, not launched: no p5 in us-west-2a"},
      {"a launched claim without a Node", nothing, false, true, NodeStage::kLaunched,
       "launched, its Node hasn't appeared"},
      {"an initialized claim whose Node is gone",
       [](kube::Node&, kube::NodeClaim& claim) { SetTrue(claim, "Initialized"); }, false, true,
       NodeStage::kGoing, "the NodeClaim was initialized, but its Node is gone"},
      {"a Node that isn't registered",
       [](kube::Node& node, kube::NodeClaim&) { node = MakeEarlyNode("n", "aws:///i-1"); }, true,
       true, NodeStage::kLaunched, "the Node exists, Karpenter hasn't registered it"},
      {"a Node with the label but still with the taint",
       [](kube::Node& node, kube::NodeClaim&) {
         node.taints.push_back({"karpenter.sh/unregistered", "", TaintEffect::kNoExecute});
       },
       true, true, NodeStage::kLaunched, "the Node exists, Karpenter hasn't registered it"},
      {"an initialized Node that its monitoring agent finds ill",
       [](kube::Node& node, kube::NodeClaim&) {
         node.ill = "AcceleratedHardwareReady is False: NvidiaXID79Error";
       },
       true, true, NodeStage::kRegistered, "AcceleratedHardwareReady is False: NvidiaXID79Error"},
      {"a registered Node that isn't Ready",
       [](kube::Node& node, kube::NodeClaim&) {
         node = Registered(MakeEarlyNode("n", "aws:///i-1"));
       },
       true, true, NodeStage::kRegistered,
       "the Node isn't Ready: container runtime network not ready"},
      {"a registered Node with a startup taint",
       [](kube::Node& node, kube::NodeClaim& claim) {
         node.meta.labels.erase("karpenter.sh/initialized");
         claim.startup_taints = {{"example.com/starting", "", TaintEffect::kNoSchedule}};
         node.taints = {{"example.com/starting", "x", TaintEffect::kNoSchedule}};
       },
       true, true, NodeStage::kRegistered, "taint example.com/starting=x:NoSchedule"},
      {"a registered Node that waits for its device plugin",
       [](kube::Node& node, kube::NodeClaim&) {
         node = WithGpus(node, 0, 0);
         node.meta.labels.erase("karpenter.sh/initialized");
       },
       true, true, NodeStage::kRegistered, "nvidia.com/gpu: 0 of 8 allocatable"},
      {"an initialized Node with all its devices", nothing, true, true, NodeStage::kUsable, ""},
      {"an initialized Node that lost its kubelet",
       [](kube::Node& node, kube::NodeClaim&) { node.ready = false; }, true, true,
       NodeStage::kRegistered, "the Node isn't Ready"},
      {"7 of 8 GPUs allocatable",
       [](kube::Node& node, kube::NodeClaim&) { node = WithGpus(node, 7, 8); }, true, true,
       NodeStage::kInitialized, "nvidia.com/gpu: 7 of 8 allocatable"},
      {"a kubelet that knows of 7 GPUs where the claim bought 8",
       [](kube::Node& node, kube::NodeClaim&) { node = WithGpus(node, 7, 7); }, true, true,
       NodeStage::kInitialized, "nvidia.com/gpu: 7 of 8 allocatable"},
      {"a claim that asked for one GPU of eight",
       [](kube::Node& node, kube::NodeClaim& claim) {
         claim.requests.Set("nvidia.com/gpu", 1);
         node = WithGpus(node, 7, 7);
       },
       true, true, NodeStage::kInitialized, "nvidia.com/gpu: 7 of 8 allocatable"},
      {"two kinds of devices short",
       [](kube::Node& node, kube::NodeClaim& claim) {
         claim.requests.Set("vpc.amazonaws.com/efa", 4);
         node = WithGpus(node, 0, 8);
       },
       true, true, NodeStage::kInitialized,
       "nvidia.com/gpu: 0 of 8 allocatable; vpc.amazonaws.com/efa: 0 of 4 allocatable"},
      {"a resource that the claim lists but nobody asked for",
       [](kube::Node&, kube::NodeClaim& claim) {
         claim.capacity.Set("vpc.amazonaws.com/pod-eni", 107);
       },
       true, true, NodeStage::kUsable, ""},
      {"hugepages and storage are no devices",
       [](kube::Node& node, kube::NodeClaim&) {
         node.capacity.Set("hugepages-2Mi", 1 << 30);
         node.capacity.Set("ephemeral-storage", 1 << 30);
         node.capacity.Set("attachable-volumes.kubernetes.io/ebs", 39);
       },
       true, true, NodeStage::kUsable, ""},
      {"a taint of the node lifecycle",
       [](kube::Node& node, kube::NodeClaim&) {
         node.taints = {
             {"node.cloudprovider.kubernetes.io/uninitialized", "true", TaintEffect::kNoSchedule}};
       },
       true, true, NodeStage::kRegistered,
       "taint node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule"},
      {"a taint that pods may tolerate",
       [](kube::Node& node, kube::NodeClaim&) {
         node.taints = {{"nvidia.com/gpu", "", TaintEffect::kNoSchedule}};
       },
       true, true, NodeStage::kUsable, ""},
      {"a node under disruption",
       [](kube::Node& node, kube::NodeClaim&) {
         node.taints = {{"karpenter.sh/disrupted", "", TaintEffect::kNoSchedule}};
       },
       true, true, NodeStage::kGoing, "taint karpenter.sh/disrupted:NoSchedule"},
      {"a Node that is being deleted",
       [](kube::Node& node, kube::NodeClaim&) { node.meta.deletion_time = absl::UnixEpoch(); },
       true, true, NodeStage::kGoing, "the Node is being deleted"},
      {"a claim that is being deleted",
       [](kube::Node&, kube::NodeClaim& claim) { claim.meta.deletion_time = absl::UnixEpoch(); },
       true, true, NodeStage::kGoing, "the NodeClaim is being deleted"},
      {"a managed node, Ready and whole",
       [](kube::Node& node, kube::NodeClaim&) { node = MakeNode("n"); }, true, false,
       NodeStage::kUsable, ""},
      {"a managed node with a lost GPU",
       [](kube::Node& node, kube::NodeClaim&) { node = WithGpus(MakeNode("n"), 7, 8); }, true,
       false, NodeStage::kInitialized, "nvidia.com/gpu: 7 of 8 allocatable"},
      {"a managed node that isn't Ready",
       [](kube::Node& node, kube::NodeClaim&) {
         node = MakeNode("n");
         node.ready = false;
       },
       true, false, NodeStage::kRegistered, "the Node isn't Ready"},
      {"a managed node that its autoscaler removes",
       [](kube::Node& node, kube::NodeClaim&) {
         node = MakeNode("n");
         node.taints = {{"ToBeDeletedByClusterAutoscaler", "1", TaintEffect::kNoSchedule}};
       },
       true, false, NodeStage::kGoing, "taint ToBeDeletedByClusterAutoscaler=1:NoSchedule"},
      {"Karpenter's Node before its claim is known",
       [](kube::Node& node, kube::NodeClaim&) {
         node.meta.labels.erase("karpenter.sh/registered");
       },
       true, false, NodeStage::kLaunched, "the Node exists, Karpenter hasn't registered it"},
  };
  for (const StageCase& c : cases) {
    kube::Node node = GpuNode();
    kube::NodeClaim claim = GpuClaim();
    c.change(node, claim);
    NodeReadiness got = ReadinessOf(c.has_node ? &node : nullptr, c.has_claim ? &claim : nullptr);
    EXPECT_EQ(got.stage, c.want) << c.name;
    EXPECT_EQ(got.message, c.message) << c.name;
  }
}

TEST(ReadinessOf, ListsEachShortage) {
  kube::Node node = WithGpus(GpuNode(), 7, 8);
  kube::NodeClaim claim = GpuClaim();
  EXPECT_EQ(ReadinessOf(&node, &claim).shortages,
            (std::vector<DeviceShortage>{{"nvidia.com/gpu", 7, 8}}));
}

TEST(Forecast, OfAClaimAlone) {
  kube::NodeClaim claim = GpuClaim();
  claim.requirements = {In(kube::kZoneLabel, {"us-west-2a"}),
                        In("node.kubernetes.io/instance-type", {"a", "b"})};
  claim.taints = {{"nvidia.com/gpu", "", TaintEffect::kNoSchedule}};
  claim.startup_taints = {{"example.com/starting", "", TaintEffect::kNoSchedule}};
  kube::Node node = Forecast(nullptr, claim);
  EXPECT_EQ(node.meta.name, "nodeclaim/c");
  EXPECT_EQ(node.meta.labels, (kube::StringMap{{kube::kZoneLabel, "us-west-2a"},
                                               {"karpenter.sh/nodepool", "gpu"},
                                               {kube::kHostnameLabel, "nodeclaim/c"}}));
  EXPECT_EQ(node.taints, claim.taints);
  EXPECT_EQ(node.allocatable, claim.allocatable);
  EXPECT_TRUE(node.ready);
}

TEST(StepsOf, TellsOfEachStageThatWasReached) {
  const auto at = [](int seconds) { return absl::FromUnixSeconds(seconds); };
  NodeInfo info;
  auto claim = std::make_shared<kube::NodeClaim>(MakeClaim("c"));
  claim->meta.creation_time = at(100);
  claim->conditions["Launched"] = {"True", "", "", at(103)};
  claim->conditions["Registered"] = {"Unknown", "", "", at(103)};
  claim->conditions["Initialized"] = {"Unknown", "", "", at(103)};
  info.claim = claim;
  const std::vector<NodeStep> launched = {{NodeStage::kRequested, at(100)},
                                          {NodeStage::kLaunched, at(103)}};
  EXPECT_EQ(StepsOf(info, nullptr), launched);
  claim->conditions["Registered"] = {"True", "", "", at(140)};
  claim->conditions["Initialized"] = {"True", "", "", at(150)};
  const absl::Time usable = at(160);
  EXPECT_EQ(StepsOf(info, &usable).size(), 5u);
  EXPECT_EQ(StepsOf(info, &usable).back(), (NodeStep{NodeStage::kUsable, usable}));
  // One that Karpenter didn't make.
  info.claim = nullptr;
  auto node = std::make_shared<kube::Node>(GpuNode());
  node->meta.creation_time = at(90);
  info.node = node;
  EXPECT_EQ(StepsOf(info, nullptr), (std::vector<NodeStep>{{NodeStage::kRegistered, at(90)}}));
}

TEST(Forecast, TakesTheClaimsRequestsWhileNothingBetterIsKnown) {
  kube::NodeClaim claim = MakeClaim("c");
  EXPECT_EQ(Forecast(nullptr, claim).allocatable, claim.requests);
  claim.requests = Resources({{"nvidia.com/gpu", 8}});
  EXPECT_EQ(Forecast(nullptr, claim).allocatable,
            Resources({{"nvidia.com/gpu", 8}, {"pods", 110}}));
}

TEST(Forecast, OfAnEarlyNodeAddsWhatIsStillToCome) {
  kube::NodeClaim claim = GpuClaim();
  claim.meta.labels["team"] = "ml";
  claim.taints = {{"nvidia.com/gpu", "", TaintEffect::kNoSchedule}};
  kube::Node node = Forecast(nullptr, claim);
  kube::Node early = MakeEarlyNode("n", "aws:///i-1");
  early.taints.push_back({"own", "", TaintEffect::kNoSchedule});
  node = Forecast(&early, claim);
  EXPECT_EQ(node.meta.name, "n");
  EXPECT_EQ(*node.meta.Label("team"), "ml");
  EXPECT_EQ(*node.meta.Label(kube::kHostnameLabel), "n");
  // The kubelet's own amounts where it knows them, the claim's devices where it doesn't yet.
  EXPECT_EQ(node.allocatable, Resources({{"cpu", 94'000}, {"nvidia.com/gpu", 8}, {"pods", 110}}));
  EXPECT_EQ(node.taints,
            (std::vector<kube::Taint>{{"own", "", TaintEffect::kNoSchedule},
                                      {"nvidia.com/gpu", "", TaintEffect::kNoSchedule}}));
}

TEST(Forecast, OfARegisteredNodeBelievesItsLabelsAndTaints) {
  kube::NodeClaim claim = GpuClaim();
  claim.meta.labels["team"] = "ml";
  claim.taints = {{"nvidia.com/gpu", "", TaintEffect::kNoSchedule}};
  claim.startup_taints = {{"example.com/starting", "", TaintEffect::kNoSchedule}};
  kube::Node early = Registered(MakeEarlyNode("n", "aws:///i-1"));
  early.taints.push_back({"example.com/starting", "", TaintEffect::kNoSchedule});
  kube::Node node = Forecast(&early, claim);
  EXPECT_EQ(node.meta.Label("team"), nullptr);
  EXPECT_TRUE(node.taints.empty());
  EXPECT_EQ(node.allocatable.Get("nvidia.com/gpu"), 8);
}

}  // namespace
}  // namespace muster::cluster
