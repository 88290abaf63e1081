#include "cluster/predicates.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <vector>

#include "cluster/test_objects.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

using namespace test;
using enum RejectionCode;
using kube::TaintEffect;

struct Case {
  const char* name;
  std::function<void(Snapshot&, kube::Node&)> node;
  std::function<void(kube::PodSpec&)> pod;
  std::optional<RejectionCode> want;
  std::string detail;
};

template <typename Check>
void CheckCases(const std::vector<Case>& cases, Check check) {
  for (const Case& c : cases) {
    Snapshot snapshot;
    kube::Node node = MakeNode("a", "z1");
    c.node(snapshot, node);
    snapshot.Upsert(node);
    kube::Pod pod = With(MakePod("p", {{"cpu", 1000}, {"nvidia.com/gpu", 8}}), c.pod);
    std::optional<Rejection> got = check(snapshot, pod, *snapshot.FindNode("a"));
    ASSERT_EQ(got.has_value(), c.want.has_value()) << c.name << (got ? ": " + got->detail : "");
    if (!got) continue;
    EXPECT_EQ(got->code, *c.want) << c.name;
    EXPECT_EQ(got->detail, c.detail) << c.name;
  }
}

auto no_node_change = [](Snapshot&, kube::Node&) {};
auto no_pod_change = [](kube::PodSpec&) {};

auto Tainted(TaintEffect effect) {
  return [effect](Snapshot&, kube::Node& node) { node.taints = {{"gpu", "yes", effect}}; };
}

void ShortOfAGpu(Snapshot&, kube::Node& node) {
  node = WithGpus(node, 7, 8);
  node.allocatable.Set("vpc.amazonaws.com/efa", 4);
  node.capacity.Set("vpc.amazonaws.com/efa", 4);
}

// Instead of all GPUs.
auto Wanting(const char* resource, int64_t amount) {
  return [=](kube::PodSpec& spec) { spec.requests = Resources({{resource, amount}}); };
}

TEST(CheckClass, JudgesNodeAndSpecAlone) {
  CheckCases(
      {
          {"a usable node", no_node_change, no_pod_change, {}, ""},
          {"7 of 8 GPUs, for a pod that wants none", ShortOfAGpu, Wanting("cpu", 1000), {}, ""},
          {"7 of 8 GPUs, for a pod that wants some",
           ShortOfAGpu,
           Wanting("nvidia.com/gpu", 7),
           {},
           ""},
          {"7 of 8 GPUs, for a pod that wants all", ShortOfAGpu, no_pod_change, kNotUsable,
           "nvidia.com/gpu: 7 of 8 allocatable"},
          {"7 of 8 GPUs, for a pod that takes the whole node by another device", ShortOfAGpu,
           Wanting("vpc.amazonaws.com/efa", 4), kNotUsable, "nvidia.com/gpu: 7 of 8 allocatable"},
          {"7 of 8 GPUs, for a pod that wants some of another device, too",
           ShortOfAGpu,
           Wanting("vpc.amazonaws.com/efa", 3),
           {},
           ""},
          {"7 of 8 GPUs, for a pod that wants a device that the node doesn't have: room isn't "
           "asked for",
           ShortOfAGpu,
           Wanting("amd.com/gpu", 1),
           {},
           ""},
          {"7 of 8 GPUs, for a pod that takes all of what is no device",
           ShortOfAGpu,
           Wanting("cpu", 96'000),
           {},
           ""},
          {"a node that isn't ready, whatever is tolerated",
           [](Snapshot&, kube::Node& node) { node.ready = false; },
           [](kube::PodSpec& spec) { spec.tolerations = {{"", true, "", {}}}; }, kNotUsable,
           "the Node isn't Ready"},
          {"a full node: room isn't asked for",
           [](Snapshot& snapshot, kube::Node&) {
             snapshot.Upsert(BoundTo(MakePod("q", {{"nvidia.com/gpu", 8}}), "a"));
           },
           no_pod_change,
           {},
           ""},
          {"a cordoned node", [](Snapshot&, kube::Node& node) { node.unschedulable = true; },
           no_pod_change, kUnschedulable, "cordoned"},
          {"a cordoned node, tolerated",
           [](Snapshot&, kube::Node& node) { node.unschedulable = true; },
           [](kube::PodSpec& spec) {
             spec.tolerations = {{"node.kubernetes.io/unschedulable", true, "", {}}};
           },
           {},
           ""},
          {"a cordoned node, tolerated with another effect",
           [](Snapshot&, kube::Node& node) { node.unschedulable = true; },
           [](kube::PodSpec& spec) {
             spec.tolerations = {
                 {"node.kubernetes.io/unschedulable", true, "", TaintEffect::kNoExecute}};
           },
           kUnschedulable, "cordoned"},
          {"a kubelet that declares what the pod needs, and more",
           [](Snapshot&, kube::Node& node) {
             node.declared_features = {"Able", "RestartAllContainersOnContainerExits"};
           },
           [](kube::PodSpec& spec) {
             spec.node_features = {"RestartAllContainersOnContainerExits"};
           },
           {},
           ""},
          {"one that declares another",
           [](Snapshot&, kube::Node& node) { node.declared_features = {"Able"}; },
           [](kube::PodSpec& spec) { spec.node_features = {"Able", "Willing"}; }, kNodeFeature,
           "its kubelet doesn't declare Willing"},
          {"NoSchedule", Tainted(TaintEffect::kNoSchedule), no_pod_change, kUntoleratedTaint,
           "taint gpu=yes:NoSchedule isn't tolerated"},
          {"NoExecute", Tainted(TaintEffect::kNoExecute), no_pod_change, kUntoleratedTaint,
           "taint gpu=yes:NoExecute isn't tolerated"},
          {"PreferNoSchedule", Tainted(TaintEffect::kPreferNoSchedule), no_pod_change, {}, ""},
          {"a tolerated taint",
           Tainted(TaintEffect::kNoSchedule),
           [](kube::PodSpec& spec) { spec.tolerations = {{"gpu", false, "yes", {}}}; },
           {},
           ""},
          {"the second taint isn't tolerated",
           [](Snapshot&, kube::Node& node) {
             node.taints = {{"gpu", "", TaintEffect::kNoSchedule},
                            {"team", "ml", TaintEffect::kNoSchedule}};
           },
           [](kube::PodSpec& spec) { spec.tolerations = {{"gpu", true, "", {}}}; },
           kUntoleratedTaint, "taint team=ml:NoSchedule isn't tolerated"},
          {"nodeSelector with another value", no_node_change,
           [](kube::PodSpec& spec) { spec.node_selector = {{kube::kZoneLabel, "z2"}}; },
           kNodeSelector, "nodeSelector topology.kubernetes.io/zone=z2, the node has z1"},
          {"nodeSelector on a missing label", no_node_change,
           [](kube::PodSpec& spec) { spec.node_selector = {{"team", "ml"}}; }, kNodeSelector,
           "nodeSelector team=ml, the node has no such label"},
          {"required affinity", no_node_change,
           [](kube::PodSpec& spec) {
             spec.affinity.required_node_terms = {{{{In(kube::kZoneLabel, {"z2"})}, {}}}};
           },
           kNodeSelector, "no term of the required node affinity matches"},
      },
      CheckClass);
}

TEST(CheckRoom, CountsWhatIsFree) {
  auto taken = [](std::initializer_list<kube::ResourceList::Entry> requests) {
    return [requests = std::vector(requests)](Snapshot& snapshot, kube::Node&) {
      kube::Pod pod = MakePod("q");
      snapshot.Upsert(BoundTo(With(pod,
                                   [&](kube::PodSpec& spec) {
                                     for (const auto& [name, amount] : requests) {
                                       spec.requests.Set(name, amount);
                                     }
                                   }),
                              "a"));
    };
  };
  CheckCases(
      {
          {"exactly what is free", taken({{"cpu", 95'000}}), no_pod_change, {}, ""},
          {"one GPU short", taken({{"nvidia.com/gpu", 1}}), no_pod_change, kResources,
           "nvidia.com/gpu: wants 8, 7 of 8 free"},
          {"one milli of cpu short", taken({{"cpu", 95'001}}), no_pod_change, kResources,
           "cpu: wants 1, 999m of 96 free"},
          {"a resource the node doesn't have", no_node_change,
           [](kube::PodSpec& spec) { spec.requests.Set("vpc.amazonaws.com/efa", 4); }, kResources,
           "vpc.amazonaws.com/efa: wants 4, 0 of 0 free"},
          {"a request of zero never fails",
           no_node_change,
           [](kube::PodSpec& spec) { spec.requests.Set("vpc.amazonaws.com/efa", 0); },
           {},
           ""},
          {"an overcommitted resource isn't asked for",
           taken({{"memory", 5}}),
           no_pod_change,
           {},
           ""},
          {"an overcommitted resource is asked for", taken({{"memory", 5}}),
           [](kube::PodSpec& spec) { spec.requests.Set("memory", 1); }, kResources,
           "memory: wants 1, 0 of 0 free"},
          {"no place for another pod",
           [](Snapshot& snapshot, kube::Node& node) {
             node.allocatable.Set("pods", 1);
             snapshot.Upsert(BoundTo(MakePod("q"), "a"));
           },
           no_pod_change, kResources, "pods: wants 1, 0 of 1 free"},
          {"what a DaemonSet will take",
           [](Snapshot& snapshot, kube::Node&) {
             snapshot.Upsert(MakeDaemonSet("d", {{"nvidia.com/gpu", 1}}));
           },
           no_pod_change, kResources, "nvidia.com/gpu: wants 8, 7 of 8 free"},
          {"the pod itself, standing there already",
           [](Snapshot& snapshot, kube::Node&) {
             snapshot.Upsert(BoundTo(MakePod("p", {{"nvidia.com/gpu", 8}}), "a"));
           },
           no_pod_change,
           {},
           ""},
      },
      [](const Snapshot& snapshot, const kube::Pod& pod, const NodeInfo& info) {
        return CheckRoom(snapshot, pod, info);
      });
}

struct PortCase {
  const char* name;
  kube::HostPort standing;
  kube::HostPort wanted;
  bool conflict;
};

TEST(RoomFor, IsThatOfTheScarcestResource) {
  Snapshot snapshot;
  snapshot.Upsert(test::MakeNode("a"));
  snapshot.Upsert(test::BoundTo(test::MakePod("there", {{"nvidia.com/gpu", 3}}), "a"));
  const NodeInfo& info = *snapshot.FindNode("a");
  EXPECT_EQ(RoomFor(test::MakePod("small", {{"cpu", 1'000}}), info), 96);
  EXPECT_EQ(RoomFor(test::MakePod("gpus", {{"cpu", 1'000}, {"nvidia.com/gpu", 2}}), info), 2);
  EXPECT_EQ(RoomFor(test::MakePod("other", {{"example.com/fpga", 1}}), info), 0);
  kube::Pod nothing = test::MakePod("nothing");
  nothing.spec = std::make_shared<const kube::PodSpec>();
  EXPECT_EQ(RoomFor(nothing, info), kManyPods);
}

TEST(CheckRoom, KeepsHostPortsApart) {
  const std::vector<PortCase> cases = {
      {"same port", {"", "TCP", 80}, {"", "TCP", 80}, true},
      {"another port", {"", "TCP", 80}, {"", "TCP", 81}, false},
      {"another protocol", {"", "TCP", 80}, {"", "UDP", 80}, false},
      {"another address", {"10.0.0.1", "TCP", 80}, {"10.0.0.2", "TCP", 80}, false},
      {"same address", {"10.0.0.1", "TCP", 80}, {"10.0.0.1", "TCP", 80}, true},
      {"all addresses wanted", {"10.0.0.1", "TCP", 80}, {"", "TCP", 80}, true},
      {"all addresses taken", {"0.0.0.0", "TCP", 80}, {"10.0.0.1", "TCP", 80}, true},
      {"no port", {"", "TCP", 0}, {"", "TCP", 0}, false},
  };
  for (const PortCase& c : cases) {
    Snapshot snapshot;
    snapshot.Upsert(MakeNode("a"));
    auto with_port = [](const std::string& name, const kube::HostPort& port) {
      return With(MakePod(name), [&](kube::PodSpec& spec) { spec.host_ports = {port}; });
    };
    snapshot.Upsert(BoundTo(with_port("q", c.standing), "a"));
    kube::Pod pod = with_port("p", c.wanted);
    std::optional<Rejection> got = CheckRoom(snapshot, pod, *snapshot.FindNode("a"));
    EXPECT_EQ(got.has_value(), c.conflict) << c.name;
    if (got) {
      EXPECT_EQ(*got, (Rejection{kHostPorts, "port 80/TCP is used by pod default/q"})) << c.name;
    }
    EXPECT_EQ(HostPortsConflict(*pod.spec, *snapshot.FindPod("pod-q")->spec), c.conflict) << c.name;
  }
}

struct VolumeCase {
  const char* name;
  std::function<void(Snapshot&, kube::PersistentVolumeClaim&, kube::PersistentVolume&)> change;
  std::optional<std::string> want;  // detail of kVolume
};

TEST(CheckClass, NeedsVolumesThatTheNodeReaches) {
  using kube::PersistentVolume;
  using kube::PersistentVolumeClaim;
  const std::vector<VolumeCase> cases = {
      {"bound, reachable from everywhere",
       [](Snapshot&, PersistentVolumeClaim&, PersistentVolume&) {},
       {}},
      {"bound, reachable from this zone",
       [](Snapshot&, PersistentVolumeClaim&, PersistentVolume& volume) {
         volume.required_node_terms = {{{{In(kube::kZoneLabel, {"z1"})}, {}}}};
       },
       {}},
      {"bound, reachable from another zone",
       [](Snapshot&, PersistentVolumeClaim&, PersistentVolume& volume) {
         volume.required_node_terms = {{{{In(kube::kZoneLabel, {"z2"})}, {}}}};
       },
       "PersistentVolume pv of claim default/data can't be reached from this node"},
      {"bound, affinity without terms",
       [](Snapshot&, PersistentVolumeClaim&, PersistentVolume& volume) {
         volume.required_node_terms.emplace();
       },
       "PersistentVolume pv of claim default/data can't be reached from this node"},
      {"bound, zone as a label",
       [](Snapshot&, PersistentVolumeClaim&, PersistentVolume& volume) {
         volume.meta.labels["failure-domain.beta.kubernetes.io/zone"] = "z0__z1";
       },
       {}},
      {"bound, another zone as a label",
       [](Snapshot&, PersistentVolumeClaim&, PersistentVolume& volume) {
         volume.meta.labels[kube::kZoneLabel] = "z0__z2";
       },
       "PersistentVolume pv of claim default/data can't be reached from this node"},
      {"bound to a volume that is gone",
       [](Snapshot&, PersistentVolumeClaim& claim, PersistentVolume&) { claim.volume_name = "x"; },
       "PersistentVolume x of claim default/data doesn't exist"},
      {"no such claim",
       [](Snapshot&, PersistentVolumeClaim& claim, PersistentVolume&) {
         claim.meta.name = "other";
       },
       "PersistentVolumeClaim default/data doesn't exist"},
      {"a claim of another namespace",
       [](Snapshot&, PersistentVolumeClaim& claim, PersistentVolume&) {
         claim.meta.name_space = "other";
       },
       "PersistentVolumeClaim default/data doesn't exist"},
      {"a claim that is being deleted",
       [](Snapshot&, PersistentVolumeClaim& claim, PersistentVolume&) {
         claim.meta.deletion_time = absl::UnixEpoch();
       },
       "PersistentVolumeClaim default/data is being deleted"},
      {"unbound, Immediate",
       [](Snapshot& snapshot, PersistentVolumeClaim& claim, PersistentVolume&) {
         claim.bound = false;
         claim.volume_name.clear();
         kube::StorageClass immediate;
         immediate.meta.name = "fast";
         snapshot.Upsert(immediate);
       },
       "PersistentVolumeClaim default/data isn't bound, and its storage class \"fast\" doesn't "
       "wait "
       "for a pod"},
      {"unbound, unknown storage class",
       [](Snapshot&, PersistentVolumeClaim& claim, PersistentVolume&) {
         claim.bound = false;
         claim.volume_name.clear();
       },
       "PersistentVolumeClaim default/data isn't bound, and its storage class \"fast\" doesn't "
       "wait "
       "for a pod"},
      {"unbound, waits for a pod",
       [](Snapshot& snapshot, PersistentVolumeClaim& claim, PersistentVolume&) {
         claim.bound = false;
         claim.volume_name.clear();
         kube::StorageClass waiting;
         waiting.meta.name = "fast";
         waiting.wait_for_first_consumer = true;
         snapshot.Upsert(waiting);
       },
       {}},
      {"waits for a pod, provisioned for another node",
       [](Snapshot& snapshot, PersistentVolumeClaim& claim, PersistentVolume&) {
         claim.bound = false;
         claim.volume_name.clear();
         claim.meta.annotations["volume.kubernetes.io/selected-node"] = "b";
         kube::StorageClass waiting;
         waiting.meta.name = "fast";
         waiting.wait_for_first_consumer = true;
         snapshot.Upsert(waiting);
       },
       "PersistentVolumeClaim default/data is being provisioned for node b"},
      {"prebound, not bound yet",
       [](Snapshot& snapshot, PersistentVolumeClaim& claim, PersistentVolume&) {
         claim.bound = false;
         kube::StorageClass waiting;
         waiting.meta.name = "fast";
         waiting.wait_for_first_consumer = true;
         snapshot.Upsert(waiting);
       },
       "PersistentVolumeClaim default/data isn't bound, and its storage class \"fast\" doesn't "
       "wait "
       "for a pod"},
  };
  for (const VolumeCase& c : cases) {
    Snapshot snapshot;
    snapshot.Upsert(MakeNode("a", "z1"));
    PersistentVolumeClaim claim;
    claim.meta.name = "data";
    claim.meta.name_space = "default";
    claim.storage_class = "fast";
    claim.volume_name = "pv";
    claim.bound = true;
    PersistentVolume volume;
    volume.meta.name = "pv";
    c.change(snapshot, claim, volume);
    snapshot.Upsert(claim);
    snapshot.Upsert(volume);
    kube::Pod pod =
        With(MakePod("p"), [](kube::PodSpec& spec) { spec.persistent_volume_claims = {"data"}; });
    std::optional<Rejection> got = CheckClass(snapshot, pod, *snapshot.FindNode("a"));
    EXPECT_EQ(got, c.want ? std::optional<Rejection>({kVolume, *c.want}) : std::nullopt) << c.name;
  }
}

// A generic ephemeral volume's claim has the pod's name in its own, which anybody may have used.
TEST(CheckClass, TakesAnEphemeralVolumesClaimOnlyIfItIsThePodsOwn) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a", "z1"));
  kube::PersistentVolume volume;
  volume.meta.name = "pv";
  volume.meta.labels[kube::kZoneLabel] = "z2";  // VolumeZone asks for it of no such volume
  snapshot.Upsert(volume);
  kube::PersistentVolumeClaim claim;
  claim.meta.name = "p-own";
  claim.meta.name_space = "default";
  claim.volume_name = "pv";
  claim.bound = true;
  snapshot.Upsert(claim);
  const kube::Pod pod = With(MakePod("p"), [](kube::PodSpec& spec) {
    spec.persistent_volume_claims = spec.ephemeral_claims = {"p-own"};
  });
  const NodeInfo& info = *snapshot.FindNode("a");
  EXPECT_EQ(CheckClass(snapshot, pod, info),
            Rejection({kVolume, "PersistentVolumeClaim default/p-own isn't the pod's own"}));
  claim.meta.owners = {{"v1", "Pod", "p", pod.meta.uid, true}};
  snapshot.Upsert(claim);
  EXPECT_EQ(CheckClass(snapshot, pod, info), std::nullopt);
}

TEST(CheckClass, PassesANodeThatIsComing) {
  Snapshot snapshot;
  kube::NodeClaim claim = MakeClaim("c");
  claim.taints = {{"gpu", "", TaintEffect::kNoSchedule}};
  snapshot.Upsert(claim);
  kube::Pod pod = MakePod("p", {{"nvidia.com/gpu", 8}});
  const NodeInfo& info = *snapshot.FindNode("nodeclaim/c");
  EXPECT_EQ(CheckClass(snapshot, pod, info)->code, kUntoleratedTaint);
  pod = With(pod, [](kube::PodSpec& spec) { spec.tolerations = {{"gpu", true, "", {}}}; });
  EXPECT_EQ(CheckAll(snapshot, pod, info), std::nullopt);
  pod = With(pod, [](kube::PodSpec& spec) { spec.requests.Set("nvidia.com/gpu", 9); });
  EXPECT_EQ(CheckAll(snapshot, pod, info)->code, kResources);
}

TEST(CheckClass, RefusesANodeThatIsGoing) {
  Snapshot snapshot;
  kube::NodeClaim claim = MakeClaim("c");
  claim.meta.deletion_time = absl::UnixEpoch();
  snapshot.Upsert(claim);
  EXPECT_EQ(CheckClass(snapshot, MakePod("p"), *snapshot.FindNode("nodeclaim/c")),
            (Rejection{kNotUsable, "the NodeClaim is being deleted"}));
}

TEST(NodePreferenceScore, AddsUpWhatTheNodeMeets) {
  Snapshot snapshot;
  kube::Node node = MakeNode("a", "z1");
  node.taints = {{"slow", "", TaintEffect::kPreferNoSchedule}};
  snapshot.Upsert(node);
  const NodeInfo& info = *snapshot.FindNode("a");
  EXPECT_EQ(NodePreferenceScore(*MakePod("p").spec, info), -100);
  kube::Pod pod = With(MakePod("p"), [](kube::PodSpec& spec) {
    spec.tolerations = {{"slow", true, "", {}}};
    spec.affinity.preferred_node_terms = {{30, {{In(kube::kZoneLabel, {"z1"})}, {}}},
                                          {50, {{In(kube::kZoneLabel, {"z2"})}, {}}},
                                          {60, {}}};
  });
  EXPECT_EQ(NodePreferenceScore(*pod.spec, info), 30);
}

TEST(ClassKey, IsEqualExactlyForPodsThatClassAndRoomTreatAlike) {
  const kube::Pod base = MakePod("p", {{"cpu", 1000}, {"nvidia.com/gpu", 8}});
  kube::Pod other_name =
      Labelled(MakePod("q", {{"cpu", 1000}, {"nvidia.com/gpu", 8}}), "rank", "1");
  EXPECT_EQ(ClassKey(base), ClassKey(other_name));
  const std::vector<std::function<void(kube::PodSpec&)>> changes = {
      [](kube::PodSpec& spec) { spec.requests.Set("cpu", 1001); },
      [](kube::PodSpec& spec) { spec.requests.Set("vpc.amazonaws.com/efa", 1); },
      [](kube::PodSpec& spec) { spec.node_selector = {{"a", "b"}}; },
      [](kube::PodSpec& spec) { spec.node_selector = {{"a", "c"}}; },
      [](kube::PodSpec& spec) { spec.affinity.required_node_terms.emplace(); },
      [](kube::PodSpec& spec) { spec.affinity.required_node_terms = {{{{In("a", {"b"})}, {}}}}; },
      [](kube::PodSpec& spec) { spec.affinity.required_node_terms = {{{{}, {In("a", {"b"})}}}}; },
      [](kube::PodSpec& spec) { spec.tolerations = {{"a", true, "", {}}}; },
      [](kube::PodSpec& spec) { spec.tolerations = {{"a", false, "", {}}}; },
      [](kube::PodSpec& spec) { spec.tolerations = {{"a", true, "", TaintEffect::kNoExecute}}; },
      [](kube::PodSpec& spec) { spec.host_ports = {{"", "TCP", 80}}; },
      [](kube::PodSpec& spec) { spec.host_ports = {{"", "UDP", 80}}; },
      [](kube::PodSpec& spec) { spec.persistent_volume_claims = {"data"}; },
      [](kube::PodSpec& spec) { spec.uses_resource_claims = true; },
  };
  std::vector<std::string> keys = {ClassKey(base)};
  for (const auto& change : changes) {
    std::string key = ClassKey(With(base, change));
    EXPECT_EQ(std::count(keys.begin(), keys.end(), key), 0) << key;
    keys.push_back(std::move(key));
  }
}

}  // namespace
}  // namespace muster::cluster
