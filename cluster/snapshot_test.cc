#include "cluster/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "cluster/predicates.h"
#include "cluster/test_objects.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

using namespace test;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::vector<std::string> NodeNames(const Snapshot& snapshot) {
  std::vector<std::string> names;
  for (const auto& [name, info] : snapshot.nodes()) names.push_back(name);
  return names;
}

std::vector<std::string> PodsOn(const Snapshot& snapshot, const std::string& node) {
  std::vector<std::string> names;
  for (const PlacedPod& placed : snapshot.FindNode(node)->pods) {
    names.push_back(placed.pod->meta.name + (placed.assumed ? "?" : ""));
  }
  return names;
}

// --- devices in ResourceSlices ---

kube::ResourceSlice Slice(const std::string& name, const std::string& node,
                          const std::string& driver, int64_t devices) {
  kube::ResourceSlice slice;
  slice.meta.name = name;
  slice.node_name = node;
  slice.driver = driver;
  slice.devices = devices;
  return slice;
}

TEST(SnapshotSlices, AreNamedWhereANodeHasNoSuchDeviceOtherwise) {
  Snapshot snapshot;
  kube::Node node = MakeNode("a");
  node.capacity.Set("nvidia.com/gpu", 0);
  node.allocatable.Set("nvidia.com/gpu", 0);
  snapshot.Upsert(Slice("a-gpus", "a", "gpu.nvidia.com", 6));
  snapshot.Upsert(node);
  snapshot.Upsert(MakeNode("b"));
  EXPECT_EQ(snapshot.FindNode("a")->in_slices, "gpu.nvidia.com: 6");
  snapshot.Upsert(Slice("a-more", "a", "gpu.nvidia.com", 2));
  snapshot.Upsert(Slice("a-nics", "a", "dra.net", 4));
  snapshot.Upsert(Slice("b-gpus", "b", "gpu.nvidia.com", 8));
  const kube::Pod pod = MakePod("p", {{"nvidia.com/gpu", 1}});
  EXPECT_EQ(CheckRoom(snapshot, pod, *snapshot.FindNode("a"))->detail,
            "nvidia.com/gpu: wants 1, 0 of 0 free; its devices are in ResourceSlices only "
            "(dra.net: 4, gpu.nvidia.com: 8), which count for claims alone");
  EXPECT_EQ(
      CheckRoom(snapshot, MakePod("q", {{"nvidia.com/gpu", 9}}), *snapshot.FindNode("b"))->detail,
      "nvidia.com/gpu: wants 9, 8 of 8 free");
  snapshot.TakeJournal();
  snapshot.Remove(Slice("a-more", "", "", 0));
  EXPECT_TRUE(snapshot.TakeJournal().nodes.contains("a"));
  snapshot.Upsert(Slice("a-gpus", "b", "gpu.nvidia.com", 6));
  EXPECT_EQ(snapshot.FindNode("a")->in_slices, "dra.net: 4");
  EXPECT_EQ(snapshot.FindNode("b")->in_slices, "gpu.nvidia.com: 14");
  snapshot.Remove(Slice("a-nics", "", "", 0));
  EXPECT_EQ(CheckRoom(snapshot, pod, *snapshot.FindNode("a"))->detail,
            "nvidia.com/gpu: wants 1, 0 of 0 free");
}

// Its capacity says that it is to have eight.
TEST(SnapshotSlices, AreNamedWhereANodeLacksAllOfItsDevices) {
  Snapshot snapshot;
  kube::Node node = MakeNode("a");
  node.allocatable.Set("nvidia.com/gpu", 0);
  snapshot.Upsert(node);
  EXPECT_EQ(snapshot.FindNode("a")->readiness.message, "nvidia.com/gpu: 0 of 8 allocatable");
  snapshot.Upsert(Slice("s", "a", "gpu.nvidia.com", 8));
  EXPECT_EQ(snapshot.FindNode("a")->readiness.message,
            "nvidia.com/gpu: 0 of 8 allocatable; its devices are in ResourceSlices only "
            "(gpu.nvidia.com: 8), which count for claims alone");
}

// --- pods ---

TEST(SnapshotPods, TakeRoomWhileBoundAndNotTerminal) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  kube::Pod pod = MakePod("p", {{"nvidia.com/gpu", 3}});
  snapshot.Upsert(pod);
  EXPECT_EQ(snapshot.FindNode("a")->Free("nvidia.com/gpu"), 8);
  snapshot.Upsert(BoundTo(pod, "a"));
  EXPECT_EQ(snapshot.FindNode("a")->Free("nvidia.com/gpu"), 5);
  EXPECT_EQ(snapshot.FindNode("a")->Free("pods"), 109);
  EXPECT_EQ(snapshot.FindNodeOfPod("pod-p"), snapshot.FindNode("a"));
  pod = BoundTo(pod, "a");
  pod.phase = kube::PodPhase::kSucceeded;
  snapshot.Upsert(pod);
  EXPECT_EQ(snapshot.FindNode("a")->Free("nvidia.com/gpu"), 8);
  EXPECT_EQ(snapshot.FindNodeOfPod("pod-p"), nullptr);
  EXPECT_NE(snapshot.FindPod("pod-p"), nullptr);
  snapshot.RemovePod("pod-p");
  EXPECT_EQ(snapshot.FindPod("pod-p"), nullptr);
}

TEST(SnapshotPods, AreCountedOnANodeThatArrivesAfterThem) {
  Snapshot snapshot;
  snapshot.Upsert(BoundTo(MakePod("p", {{"nvidia.com/gpu", 3}}), "a"));
  snapshot.Upsert(BoundTo(MakePod("q", {{"nvidia.com/gpu", 1}}), "a"));
  snapshot.RemovePod("pod-q");
  EXPECT_EQ(snapshot.FindNodeOfPod("pod-p"), nullptr);
  snapshot.Upsert(MakeNode("a"));
  EXPECT_EQ(snapshot.FindNode("a")->Free("nvidia.com/gpu"), 5);
}

TEST(SnapshotPods, AreCountedAgainWhenTheirNodeComesBack) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  snapshot.Upsert(BoundTo(MakePod("p", {{"nvidia.com/gpu", 3}}), "a"));
  snapshot.RemoveNode("a");
  EXPECT_EQ(snapshot.FindNode("a"), nullptr);
  snapshot.Upsert(MakeNode("a"));
  EXPECT_EQ(snapshot.FindNode("a")->Free("nvidia.com/gpu"), 5);
}

TEST(SnapshotPods, AnOlderVersionIsIgnored) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  kube::Pod bound = BoundTo(MakePod("p", {{"nvidia.com/gpu", 3}}), "a");
  bound.meta.resource_version = "1000";
  snapshot.Upsert(bound);
  kube::Pod stale = MakePod("p", {{"nvidia.com/gpu", 3}});
  stale.meta.resource_version = "999";
  snapshot.Upsert(stale);
  EXPECT_EQ(snapshot.FindNode("a")->Free("nvidia.com/gpu"), 5);
}

TEST(SnapshotPods, FreeIsNeverNegative) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  snapshot.Upsert(BoundTo(MakePod("p", {{"nvidia.com/gpu", 9}, {"example.com/x", 1}}), "a"));
  EXPECT_EQ(snapshot.FindNode("a")->Free("nvidia.com/gpu"), 0);
  EXPECT_EQ(snapshot.FindNode("a")->Free("example.com/x"), 0);
  EXPECT_EQ(snapshot.FindNode("a")->FreeResources(),
            Resources({{"cpu", 96'000}, {"nvidia.com/gpu", 0}, {"pods", 109}}));
}

TEST(SnapshotPods, ThoseWithAntiAffinityAreListedWithTheirNode) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  kube::Pod pod = With(MakePod("p"), [](kube::PodSpec& spec) {
    spec.affinity.required_pod_anti_affinity = {TermFor("app", "x", kube::kHostnameLabel)};
  });
  snapshot.Upsert(pod);
  EXPECT_THAT(snapshot.anti_affinity_pods(), IsEmpty());
  snapshot.Upsert(BoundTo(pod, "a"));
  EXPECT_EQ(snapshot.anti_affinity_pods().at("pod-p"), "a");
  snapshot.RemovePod("pod-p");
  EXPECT_THAT(snapshot.anti_affinity_pods(), IsEmpty());
}

// --- what can't be counted ---

TEST(SnapshotErrors, ASumPastInt64MakesTheNodeUnusableUntilItFitsAgain) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  snapshot.Upsert(BoundTo(MakePod("p", {{"memory", kMax}}), "a"));
  EXPECT_TRUE(snapshot.FindNode("a")->UsableNow());
  snapshot.Upsert(BoundTo(MakePod("q", {{"memory", 1}}), "a"));
  const NodeInfo* info = snapshot.FindNode("a");
  EXPECT_FALSE(info->UsableNow());
  EXPECT_EQ(info->readiness.message,
            "pod default/q: memory: 9223372036854775807 + 1 doesn't fit 64 bits");
  EXPECT_EQ(info->Free("memory"), 0);
  snapshot.RemovePod("pod-p");
  EXPECT_TRUE(snapshot.FindNode("a")->UsableNow());
  EXPECT_EQ(snapshot.FindNode("a")->requested, Resources({{"memory", 1}, {"pods", 1}}));
}

TEST(SnapshotErrors, APodWhoseRequestsCannotBeReadMakesItsNodeUnusable) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  kube::Pod pod = BoundTo(MakePod("p"), "a");
  pod.spec_error = "spec.containers[0].resources.requests[cpu]: \"1e30\" is out of range";
  snapshot.Upsert(pod);
  EXPECT_FALSE(snapshot.FindNode("a")->UsableNow());
  EXPECT_EQ(snapshot.FindNode("a")->readiness.message, "pod default/p: " + pod.spec_error);
}

TEST(SnapshotErrors, AMalformedNodeIsNeverUsed) {
  Snapshot snapshot;
  kube::Node node = MakeNode("a");
  node.error = "status.allocatable[cpu]: \"many\" is not a quantity";
  snapshot.Upsert(node);
  EXPECT_FALSE(snapshot.FindNode("a")->UsableNow());
  EXPECT_EQ(snapshot.FindNode("a")->readiness.message, node.error);
  snapshot.Upsert(MakeNode("a"));
  EXPECT_TRUE(snapshot.FindNode("a")->UsableNow());
}

TEST(SnapshotErrors, AMalformedClaimIsNotComing) {
  Snapshot snapshot;
  kube::NodeClaim claim = MakeClaim("c");
  claim.error = "status.capacity[cpu]: \"many\" is not a quantity";
  snapshot.Upsert(claim);
  EXPECT_FALSE(snapshot.FindNode("nodeclaim/c")->Coming());
}

// --- assumptions ---

TEST(SnapshotAssume, CountsThePodUntilForgotten) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  snapshot.Upsert(MakePod("p", {{"nvidia.com/gpu", 3}}));
  ASSERT_TRUE(snapshot.Assume("pod-p", "a").ok());
  EXPECT_EQ(snapshot.FindNode("a")->Free("nvidia.com/gpu"), 5);
  EXPECT_THAT(PodsOn(snapshot, "a"), ElementsAre("p?"));
  EXPECT_TRUE(snapshot.Assume("pod-p", "a").ok());
  EXPECT_EQ(snapshot.FindNode("a")->Free("nvidia.com/gpu"), 5);
  snapshot.Forget("pod-p");
  EXPECT_EQ(snapshot.FindNode("a")->Free("nvidia.com/gpu"), 8);
  snapshot.Forget("pod-p");
  snapshot.Forget("unknown");
}

TEST(SnapshotAssume, RefusesWhatItCannotCount) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  snapshot.Upsert(MakeNode("b"));
  snapshot.Upsert(MakePod("p"));
  snapshot.Upsert(BoundTo(MakePod("q"), "b"));
  kube::Pod ended = MakePod("r");
  ended.phase = kube::PodPhase::kFailed;
  snapshot.Upsert(ended);
  EXPECT_EQ(snapshot.Assume("pod-x", "a").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(snapshot.Assume("pod-p", "x").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(snapshot.Assume("pod-q", "b").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(snapshot.Assume("pod-r", "a").code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(snapshot.Assume("pod-p", "a").ok());
  EXPECT_EQ(snapshot.Assume("pod-p", "b").code(), absl::StatusCode::kFailedPrecondition);
}

TEST(SnapshotAssume, EndsWhenThePodIsSeenBoundWhereverThatIs) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  snapshot.Upsert(MakeNode("b"));
  snapshot.Upsert(MakePod("p", {{"nvidia.com/gpu", 3}}));
  snapshot.Upsert(MakePod("q", {{"nvidia.com/gpu", 2}}));
  ASSERT_TRUE(snapshot.Assume("pod-p", "a").ok());
  ASSERT_TRUE(snapshot.Assume("pod-q", "a").ok());
  snapshot.Upsert(BoundTo(MakePod("p", {{"nvidia.com/gpu", 3}}), "a"));
  snapshot.Upsert(BoundTo(MakePod("q", {{"nvidia.com/gpu", 2}}), "b"));
  EXPECT_THAT(PodsOn(snapshot, "a"), ElementsAre("p"));
  EXPECT_THAT(PodsOn(snapshot, "b"), ElementsAre("q"));
  snapshot.Forget("pod-p");
  EXPECT_THAT(PodsOn(snapshot, "a"), ElementsAre("p"));
}

TEST(SnapshotAssume, EndsWithThePodOrTheNode) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  for (const char* name : {"p", "q", "r"}) snapshot.Upsert(MakePod(name));
  for (const char* uid : {"pod-p", "pod-q", "pod-r"}) ASSERT_TRUE(snapshot.Assume(uid, "a").ok());
  snapshot.RemovePod("pod-p");
  kube::Pod failed = MakePod("q");
  failed.phase = kube::PodPhase::kFailed;
  snapshot.Upsert(failed);
  EXPECT_THAT(PodsOn(snapshot, "a"), ElementsAre("r?"));
  snapshot.RemoveNode("a");
  snapshot.Upsert(MakeNode("a"));
  EXPECT_THAT(PodsOn(snapshot, "a"), IsEmpty());
  EXPECT_TRUE(snapshot.Assume("pod-r", "a").ok());
}

TEST(SnapshotAssume, SurvivesAnUpdateOfTheUnboundPod) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  snapshot.Upsert(MakePod("p", {{"nvidia.com/gpu", 3}}));
  ASSERT_TRUE(snapshot.Assume("pod-p", "a").ok());
  snapshot.Upsert(Labelled(MakePod("p", {{"nvidia.com/gpu", 3}}), "seen", "yes"));
  EXPECT_THAT(PodsOn(snapshot, "a"), ElementsAre("p?"));
  EXPECT_NE(snapshot.FindNode("a")->pods[0].pod->meta.Label("seen"), nullptr);
}

// --- nodes and their claims ---

TEST(SnapshotClaims, ANodeAndItsClaimAreAlwaysOneNodeInfo) {
  Snapshot snapshot;
  snapshot.Upsert(MakeClaim("c"));
  EXPECT_THAT(NodeNames(snapshot), ElementsAre("nodeclaim/c"));
  EXPECT_TRUE(snapshot.FindNode("nodeclaim/c")->Coming());
  EXPECT_FALSE(snapshot.FindNode("nodeclaim/c")->UsableNow());

  kube::NodeClaim claim = Launched(MakeClaim("c"), "aws:///i-1");
  snapshot.Upsert(claim);
  EXPECT_THAT(NodeNames(snapshot), ElementsAre("nodeclaim/c"));
  EXPECT_EQ(snapshot.FindNode("nodeclaim/c")->node->allocatable, claim.allocatable);

  kube::Node node = MakeEarlyNode("ip-1", "aws:///i-1");
  snapshot.Upsert(node);
  EXPECT_THAT(NodeNames(snapshot), ElementsAre("ip-1"));
  EXPECT_TRUE(snapshot.FindNode("ip-1")->Coming());
  EXPECT_EQ(snapshot.FindNode("ip-1")->Free("nvidia.com/gpu"), 8);
  EXPECT_EQ(snapshot.FindNode("nodeclaim/c"), snapshot.FindNode("ip-1"));

  snapshot.Upsert(Registered(node));
  EXPECT_TRUE(snapshot.FindNode("ip-1")->Coming());
  EXPECT_EQ(snapshot.FindNode("ip-1")->readiness.stage, NodeStage::kRegistered);

  snapshot.Upsert(WithGpus(Initialized(node), 8, 8));
  EXPECT_THAT(NodeNames(snapshot), ElementsAre("ip-1"));
  EXPECT_TRUE(snapshot.FindNode("ip-1")->UsableNow());
  EXPECT_FALSE(snapshot.FindNode("ip-1")->Coming());
  EXPECT_EQ(snapshot.FindNode("ip-1")->claim->meta.name, "c");
}

TEST(SnapshotClaims, AnInitializedNodeHasTheDevicesThatItHas) {
  Snapshot snapshot;
  snapshot.Upsert(Launched(MakeClaim("c"), "aws:///i-1"));
  snapshot.Upsert(WithGpus(Initialized(MakeEarlyNode("ip-1", "aws:///i-1")), 7, 8));
  const NodeInfo* info = snapshot.FindNode("ip-1");
  EXPECT_TRUE(info->UsableNow());
  EXPECT_FALSE(info->Coming());
  EXPECT_EQ(info->readiness.stage, NodeStage::kInitialized);
  EXPECT_EQ(info->readiness.message, "nvidia.com/gpu: 7 of 8 allocatable");
  EXPECT_EQ(info->Free("nvidia.com/gpu"), 7);
}

TEST(SnapshotClaims, ANodeThatCameBeforeItsClaimIsJoinedByName) {
  Snapshot snapshot;
  snapshot.Upsert(MakeEarlyNode("ip-1", ""));
  EXPECT_FALSE(snapshot.FindNode("ip-1")->Coming());
  kube::NodeClaim claim = MakeClaim("c");
  claim.node_name = "ip-1";
  snapshot.Upsert(claim);
  EXPECT_THAT(NodeNames(snapshot), ElementsAre("ip-1"));
  EXPECT_TRUE(snapshot.FindNode("ip-1")->Coming());
}

TEST(SnapshotClaims, TheNodeNameOutranksTheProviderId) {
  Snapshot snapshot;
  snapshot.Upsert(Launched(MakeClaim("by-id"), "aws:///i-1"));
  snapshot.Upsert(MakeEarlyNode("ip-1", "aws:///i-1"));
  EXPECT_EQ(snapshot.FindNode("ip-1")->claim->meta.name, "by-id");
  kube::NodeClaim by_name = MakeClaim("by-name");
  by_name.node_name = "ip-1";
  snapshot.Upsert(by_name);
  EXPECT_EQ(snapshot.FindNode("ip-1")->claim->meta.name, "by-name");
  EXPECT_THAT(NodeNames(snapshot), ElementsAre("ip-1", "nodeclaim/by-id"));
}

TEST(SnapshotClaims, WhatIsAssumedOnAVirtualNodeFollowsItToTheNode) {
  Snapshot snapshot;
  snapshot.Upsert(Launched(MakeClaim("c"), "aws:///i-1"));
  snapshot.Upsert(MakePod("p", {{"nvidia.com/gpu", 8}}));
  ASSERT_TRUE(snapshot.Assume("pod-p", "nodeclaim/c").ok());
  snapshot.Upsert(MakeEarlyNode("ip-1", "aws:///i-1"));
  EXPECT_THAT(PodsOn(snapshot, "ip-1"), ElementsAre("p?"));
  EXPECT_EQ(snapshot.FindNode("ip-1")->Free("nvidia.com/gpu"), 0);
  EXPECT_EQ(snapshot.FindNodeOfPod("pod-p")->name(), "ip-1");
  // A plan that still has the old name is understood.
  EXPECT_TRUE(snapshot.Assume("pod-p", "nodeclaim/c").ok());
  snapshot.Upsert(WithGpus(Initialized(MakeEarlyNode("ip-1", "aws:///i-1")), 8, 8));
  EXPECT_THAT(PodsOn(snapshot, "ip-1"), ElementsAre("p?"));
  snapshot.Upsert(BoundTo(MakePod("p", {{"nvidia.com/gpu", 8}}), "ip-1"));
  EXPECT_THAT(PodsOn(snapshot, "ip-1"), ElementsAre("p"));
}

TEST(SnapshotClaims, WhatIsAssumedIsDroppedWithTheClaim) {
  Snapshot snapshot;
  snapshot.Upsert(MakeClaim("c"));
  snapshot.Upsert(MakePod("p"));
  ASSERT_TRUE(snapshot.Assume("pod-p", "nodeclaim/c").ok());
  snapshot.RemoveNodeClaim("c");
  EXPECT_THAT(NodeNames(snapshot), IsEmpty());
  EXPECT_EQ(snapshot.FindNodeOfPod("pod-p"), nullptr);
  snapshot.Upsert(MakeNode("a"));
  EXPECT_TRUE(snapshot.Assume("pod-p", "a").ok());
}

TEST(SnapshotClaims, AClaimWhoseEarlyNodeVanishesIsComingAgain) {
  Snapshot snapshot;
  snapshot.Upsert(Launched(MakeClaim("c"), "aws:///i-1"));
  snapshot.Upsert(MakeEarlyNode("ip-1", "aws:///i-1"));
  snapshot.RemoveNode("ip-1");
  EXPECT_THAT(NodeNames(snapshot), ElementsAre("nodeclaim/c"));
  EXPECT_TRUE(snapshot.FindNode("nodeclaim/c")->Coming());
}

TEST(SnapshotClaims, AClaimBeingDeletedIsGoing) {
  Snapshot snapshot;
  kube::NodeClaim claim = MakeClaim("c");
  claim.meta.deletion_time = absl::UnixEpoch();
  snapshot.Upsert(claim);
  EXPECT_FALSE(snapshot.FindNode("nodeclaim/c")->Coming());
  EXPECT_EQ(snapshot.FindNode("nodeclaim/c")->readiness.stage, NodeStage::kGoing);
}

TEST(SnapshotClaims, AClaimThatGoesLeavesItsNodeBehind) {
  Snapshot snapshot;
  snapshot.Upsert(Launched(MakeClaim("c"), "aws:///i-1"));
  snapshot.Upsert(WithGpus(Initialized(MakeEarlyNode("ip-1", "aws:///i-1")), 8, 8));
  snapshot.RemoveNodeClaim("c");
  EXPECT_THAT(NodeNames(snapshot), ElementsAre("ip-1"));
  EXPECT_EQ(snapshot.FindNode("ip-1")->claim, nullptr);
  EXPECT_TRUE(snapshot.FindNode("ip-1")->UsableNow());
}

// --- DaemonSets ---

TEST(SnapshotDaemonSets, AreReservedUntilTheirPodStandsThere) {
  Snapshot snapshot;
  kube::DaemonSet cni = MakeDaemonSet("cni", {{"cpu", 500}});
  snapshot.Upsert(cni);
  snapshot.Upsert(MakeNode("a"));
  EXPECT_EQ(snapshot.FindNode("a")->reserved_for_daemons, Resources({{"cpu", 500}, {"pods", 1}}));
  EXPECT_EQ(snapshot.FindNode("a")->Free("cpu"), 95'500);
  snapshot.Upsert(PodOf(cni, "a"));
  EXPECT_TRUE(snapshot.FindNode("a")->reserved_for_daemons.empty());
  EXPECT_EQ(snapshot.FindNode("a")->Free("cpu"), 95'500);
  EXPECT_EQ(snapshot.FindNode("a")->Free("pods"), 109);
  snapshot.RemovePod("pod-cni-a");
  EXPECT_EQ(snapshot.FindNode("a")->Free("cpu"), 95'500);
  snapshot.RemoveDaemonSet(cni.meta.uid);
  EXPECT_EQ(snapshot.FindNode("a")->Free("cpu"), 96'000);
}

struct DaemonCase {
  const char* name;
  std::function<void(kube::PodSpec&)> daemon;
  std::function<void(kube::Node&)> node;
  bool comes;
};

TEST(SnapshotDaemonSets, ComeWhereTheirControllerPutsThem) {
  using kube::TaintEffect;
  auto any = [](auto&) {};
  const std::vector<DaemonCase> cases = {
      {"without constraints: everywhere", any, any, true},
      {"nodeSelector met", [](kube::PodSpec& spec) { spec.node_selector = {{"gpu", "yes"}}; },
       [](kube::Node& node) { node.meta.labels["gpu"] = "yes"; }, true},
      {"nodeSelector not met", [](kube::PodSpec& spec) { spec.node_selector = {{"gpu", "yes"}}; },
       any, false},
      {"required affinity not met",
       [](kube::PodSpec& spec) {
         spec.affinity.required_node_terms = {{{{In("gpu", {"yes"})}, {}}}};
       },
       any, false},
      {"an untolerated taint", any,
       [](kube::Node& node) { node.taints = {{"gpu", "", TaintEffect::kNoSchedule}}; }, false},
      {"a tolerated taint", [](kube::PodSpec& spec) { spec.tolerations = {{"gpu", true, "", {}}}; },
       [](kube::Node& node) { node.taints = {{"gpu", "", TaintEffect::kNoSchedule}}; }, true},
      {"PreferNoSchedule keeps nobody away", any,
       [](kube::Node& node) { node.taints = {{"gpu", "", TaintEffect::kPreferNoSchedule}}; }, true},
      {"taints that every daemon tolerates", any,
       [](kube::Node& node) {
         node.taints = {{"node.kubernetes.io/unschedulable", "", TaintEffect::kNoSchedule},
                        {"node.kubernetes.io/disk-pressure", "", TaintEffect::kNoSchedule}};
       },
       true},
      {"a node that isn't ready yet", any,
       [](kube::Node& node) {
         node.taints = {{"node.kubernetes.io/not-ready", "", TaintEffect::kNoSchedule},
                        {"node.kubernetes.io/network-unavailable", "", TaintEffect::kNoSchedule}};
       },
       true},
  };
  for (const DaemonCase& c : cases) {
    kube::DaemonSet daemon_set = MakeDaemonSet("d", {{"cpu", 500}});
    kube::PodSpec spec = *daemon_set.pod_spec;
    c.daemon(spec);
    daemon_set.pod_spec = std::make_shared<const kube::PodSpec>(spec);
    kube::Node node = MakeNode("a");
    c.node(node);
    for (bool node_first : {true, false}) {
      Snapshot snapshot;
      if (node_first) snapshot.Upsert(node);
      snapshot.Upsert(daemon_set);
      if (!node_first) snapshot.Upsert(node);
      EXPECT_EQ(snapshot.FindNode("a")->reserved_for_daemons.Get("cpu"), c.comes ? 500 : 0)
          << c.name;
    }
  }
}

TEST(SnapshotDaemonSets, AreReservedOnNodesThatAreComing) {
  Snapshot snapshot;
  kube::DaemonSet gpu = MakeDaemonSet("gpu", {{"cpu", 500}});
  gpu.pod_spec = With(MakePod("x", {{"cpu", 500}}), [](kube::PodSpec& spec) {
                   spec.node_selector = {{"karpenter.sh/nodepool", "gpu"}};
                 }).spec;
  snapshot.Upsert(gpu);
  kube::NodeClaim claim = Launched(MakeClaim("c"), "aws:///i-1");
  claim.startup_taints = {{"starting", "", kube::TaintEffect::kNoSchedule}};
  snapshot.Upsert(claim);
  EXPECT_EQ(snapshot.FindNode("nodeclaim/c")->Free("cpu"), 94'500);
  kube::Node node = MakeEarlyNode("ip-1", "aws:///i-1");
  node.taints.push_back({"starting", "", kube::TaintEffect::kNoSchedule});
  snapshot.Upsert(node);
  EXPECT_EQ(snapshot.FindNode("ip-1")->Free("cpu"), 93'500);
  snapshot.Upsert(PodOf(gpu, "ip-1"));
  EXPECT_EQ(snapshot.FindNode("ip-1")->Free("cpu"), 93'500);
}

TEST(SnapshotDaemonSets, FollowAChangeOfTheTemplate) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  snapshot.Upsert(MakeDaemonSet("cni", {{"cpu", 500}}));
  snapshot.Upsert(MakeDaemonSet("cni", {{"cpu", 700}}));
  EXPECT_EQ(snapshot.FindNode("a")->Free("cpu"), 95'300);
}

TEST(Snapshot, APodHasItsRoomOnTheNodeThatItsSchedulerNominated) {
  Snapshot snapshot;
  const auto free = [&] { return snapshot.FindNode("a")->Free("nvidia.com/gpu"); };
  kube::Pod pod = With(MakePod("p", {{"nvidia.com/gpu", 5}}),
                       [](kube::PodSpec& spec) { spec.host_ports = {{"", "TCP", 80}}; });
  pod.nominated_node_name = "a";
  snapshot.Upsert(pod);
  snapshot.Upsert(MakeNode("a"));
  EXPECT_EQ(free(), 3) << "though it was there first";
  EXPECT_TRUE(snapshot.FindNode("a")->pods.empty());
  EXPECT_EQ(snapshot.FindNodeOfPod("pod-p"), nullptr);
  const kube::Pod other =
      With(MakePod("q"), [](kube::PodSpec& spec) { spec.host_ports = {{"", "TCP", 80}}; });
  EXPECT_EQ(CheckRoom(snapshot, other, *snapshot.FindNode("a"))->code, RejectionCode::kHostPorts);
  snapshot.Upsert(BoundTo(pod, "a"));
  EXPECT_EQ(free(), 3) << "bound there it counts once";
  snapshot.Upsert(BoundTo(pod, "b"));
  EXPECT_EQ(free(), 8) << "bound elsewhere";
  snapshot.Upsert(pod);
  pod.nominated_node_name = "";
  snapshot.Upsert(pod);
  EXPECT_EQ(free(), 8) << "nominated no more";
  pod.nominated_node_name = "a";
  snapshot.Upsert(pod);
  snapshot.TakeJournal();
  snapshot.RemovePod("pod-p");
  EXPECT_EQ(free(), 8) << "gone";
  EXPECT_TRUE(snapshot.TakeJournal().nodes.at("a").observed.Has(NodeChange::kRoomGrew));
}

TEST(Snapshot, NominationsCountForPodsOfNoHigherPriority) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  for (int priority : {0, 10}) {
    kube::Pod pod = With(MakePod(std::to_string(priority), {{"nvidia.com/gpu", 2}}),
                         [](kube::PodSpec& spec) { spec.host_ports = {{"", "TCP", 80}}; });
    pod.priority = priority;
    pod.nominated_node_name = "a";
    snapshot.Upsert(pod);
  }
  const kube::Pod asking =
      With(MakePod("q"), [](kube::PodSpec& spec) { spec.host_ports = {{"", "TCP", 80}}; });
  const NodeInfo& node = *snapshot.FindNode("a");
  const auto free_for = [&](int64_t priority) {
    const NominationsFor counted(&snapshot, priority);
    EXPECT_EQ(CheckRoom(snapshot, asking, node).has_value(), !node.nominated.empty());
    return node.Free("nvidia.com/gpu");
  };
  snapshot.TakeJournal();
  const uint64_t before = snapshot.log().end();
  EXPECT_EQ(free_for(-1), 4);
  EXPECT_EQ(free_for(0), 4);
  EXPECT_TRUE(snapshot.TakeJournal().empty()) << "all of them count anyway";
  EXPECT_EQ(free_for(1), 6);
  EXPECT_EQ(free_for(10), 6);
  EXPECT_EQ(free_for(11), 8);
  EXPECT_EQ(node.Free("nvidia.com/gpu"), 4) << "and then all count again";
  EXPECT_TRUE(snapshot.TakeJournal().empty()) << "nothing has happened";
  EXPECT_FALSE(snapshot.log().Since(before).empty()) << "but whoever follows the room looks again";
}

}  // namespace
}  // namespace muster::cluster
