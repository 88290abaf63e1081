#include "kube/objects/occupants.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kube/objects/decode.h"

namespace muster::kube {
namespace {

Pod OfDaemonSet(int i) {
  auto pod = Decode<Pod>(fmt::format(
      R"({{"metadata":{{"name":"agent-{0}","uid":"u{0}","labels":{{"app":"agent","tier":"system"}},
      "annotations":{{"checksum/config":"e3b0c442"}},"finalizers":["x/y"],
      "ownerReferences":[{{"kind":"DaemonSet","name":"agent","uid":"d","controller":true}}]}},
      "spec":{{"nodeName":"n{0}","schedulerName":"default-scheduler","priority":7,
      "tolerations":[{{"operator":"Exists"}}],
      "affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":
      {{"nodeSelectorTerms":[{{"matchFields":
      [{{"key":"metadata.name","operator":"In","values":["n{0}"]}}]}}]}}}},
      "podAntiAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":
      [{{"topologyKey":"zone","labelSelector":{{"matchLabels":{{"app":"agent"}}}}}}]}}}},
      "containers":[{{"name":"c","resources":{{"requests":{{"cpu":"100m"}}}},
      "ports":[{{"containerPort":80,"hostPort":80}}]}}]}},
      "status":{{"phase":"Running","message":"started"}}}})",
      i));
  EXPECT_TRUE(pod.ok()) << pod.status();
  return *std::move(pod);
}

TEST(Occupants, ArePodsOfAnotherSchedulerThatNameNoGroup) {
  Pod pod = OfDaemonSet(1);
  EXPECT_TRUE(IsOccupant(pod, "coscheduling"));
  EXPECT_FALSE(IsOccupant(pod, "default-scheduler"));
  pod.meta.labels["scheduling.x-k8s.io/pod-group"] = "g";
  EXPECT_FALSE(IsOccupant(pod, "coscheduling"));
}

TEST(Occupants, KeepWhatOthersArePlacedBy) {
  const Pod whole = OfDaemonSet(1);
  Pod pod = whole;
  ReduceToOccupant(&pod);
  EXPECT_EQ(pod.meta.labels, whole.meta.labels);
  EXPECT_EQ(pod.meta.Controller()->uid, "d");
  EXPECT_EQ(pod.node_name, "n1");
  EXPECT_EQ(pod.priority, 7);
  EXPECT_EQ(pod.phase, PodPhase::kRunning);
  EXPECT_EQ(pod.spec->requests, whole.spec->requests);
  EXPECT_EQ(pod.spec->host_ports, whole.spec->host_ports);
  EXPECT_EQ(pod.spec->affinity.required_pod_anti_affinity,
            whole.spec->affinity.required_pod_anti_affinity);
  EXPECT_TRUE(pod.meta.annotations.empty());
  EXPECT_TRUE(pod.meta.finalizers.empty());
  EXPECT_TRUE(pod.status_message.empty());
  EXPECT_FALSE(pod.spec->affinity.required_node_terms.has_value());
  EXPECT_TRUE(pod.spec->tolerations.empty());
  // What the reduced pod was made from is nobody else's to change.
  EXPECT_TRUE(whole.spec->affinity.required_node_terms.has_value());
}

TEST(Occupants, OwnersThatDontReserveRoomOnNodesAreDropped) {
  Pod pod = OfDaemonSet(1);
  pod.meta.owners[0].kind = "ReplicaSet";
  ReduceToOccupant(&pod);
  EXPECT_TRUE(pod.meta.owners.empty());
}

TEST(OccupantPool, PodsOfOneDaemonSetHaveOneSpecAndTheirLabelsOnce) {
  OccupantPool pool;
  Pod a = OfDaemonSet(1);
  Pod b = OfDaemonSet(2);
  pool.Reduce(&a);
  pool.Reduce(&b);
  EXPECT_EQ(a.spec, b.spec);
  EXPECT_EQ(std::as_const(a.meta.labels).begin(), std::as_const(b.meta.labels).begin());
  EXPECT_EQ(pool.labels(), 1u);
  b.meta.labels["app"] = "other";
  EXPECT_EQ(a.meta.labels.at("app"), "agent");
}

TEST(OccupantPool, ForgetsWhatNoPodUses) {
  OccupantPool pool;
  for (int i = 0; i < 100'000; ++i) {
    Pod pod;
    pod.spec = std::make_shared<const PodSpec>();
    pod.meta.labels = {{"name", std::to_string(i)}};
    pool.Reduce(&pod);
  }
  EXPECT_LE(pool.labels(), 1024u);
  EXPECT_EQ(pool.specs(), 1u);
}

}  // namespace
}  // namespace muster::kube
