// What Kueue v0.15.2 and scheduler-plugins' coscheduling together do with gangs whose nodes
// Karpenter buys, as scenarios.

#include <gtest/gtest.h>

#include <string>

#include "simulation/scenario.h"
#include "simulation/world.h"

namespace muster::simulation {
namespace {

constexpr const char* kTypes = R"(
instanceTypes:
- {name: g6.2xlarge, resources: {cpu: "8", memory: 32Gi, nvidia.com/gpu: "1", pods: "58"}, zones: [us-west-2a]}
)";

constexpr const char* kPool = R"(
nodePools:
- {name: gpu, instanceTypes: [g6.2xlarge], consolidateAfter: 0s, delays: [{registration: 3s}]}
)";

// Quota for six GPUs of one flavor.
constexpr const char* kQueues = R"(
- apply: {apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: nvidia}, spec: {nodeLabels: {karpenter.sh/nodepool: gpu}}}
- apply:
    apiVersion: kueue.x-k8s.io/v1beta2
    kind: ClusterQueue
    metadata: {name: gpus}
    spec:
      namespaceSelector: {}
      preemption: {withinClusterQueue: LowerPriority}
      resourceGroups:
      - coveredResources: [nvidia.com/gpu]
        flavors:
        - {name: nvidia, resources: [{name: nvidia.com/gpu, nominalQuota: 6}]}
- apply: {apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: default, namespace: default}, spec: {clusterQueue: gpus}}
)";

void ExpectHolds(const std::string& cluster, const std::string& steps) {
  const std::string yaml = "name: peers" + cluster + "steps:\n" + steps;
  const absl::StatusOr<Scenario> scenario = ParseScenario(yaml, "f.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  const absl::Status status = RunScenario(*scenario, {.policy = Policy::kCoscheduling});
  EXPECT_TRUE(status.ok()) << status << "\n" << yaml;
}

TEST(Peers, WithoutQueuesPodsAskForNodesAtOnceAndStartWithTheLast) {
  ExpectHolds(std::string(kTypes) + R"(
nodePools:
- name: gpu
  instanceTypes: [g6.2xlarge]
  consolidateAfter: 0s
  delays: [{registration: 3s}, {registration: 3s}, {registration: 3s}, {registration: 60s}]
)",
              R"(
- at: 0s
  gang: {name: job, minMember: 4, members: 4, requests: {nvidia.com/gpu: "1"}}
- at: 1s
  expect: {gang: job, signalled: 4, bound: 0}
- at: 55s
  expect: {gang: job, bound: 0, nodes: 3}
- at: 60s
  expect: {gang: job, bound: 4, nodes: 4, within: 3s}
)");
}

TEST(Peers, AGangWaitsForQuotaBehindKueuesGateAndAsksForNoNode) {
  ExpectHolds(std::string(kTypes) + kPool, std::string(kQueues) + R"(
- at: 1s
  gang: {name: first, minMember: 4, members: 4, runTime: 5m, requests: {nvidia.com/gpu: "1"}}
- at: 2s
  gang: {name: second, minMember: 4, members: 4, requests: {nvidia.com/gpu: "1"}}
- at: 20s
  expect: {gang: first, bound: 4}
- at: 5m
  expect: {gang: second, bound: 0, signalled: 0, nodeClaims: 4}
- at: 5m
  expect: {gang: second, bound: 4, within: 30s}
)");
}

TEST(Peers, AGroupIsCountedOnceAllOfItsPodsExist) {
  ExpectHolds(std::string(kTypes) + kPool, std::string(kQueues) + R"(
- at: 1s
  gang: {name: job, minMember: 3, members: 2, requests: {nvidia.com/gpu: "1"}}
- at: 10s
  expect: {gang: job, signalled: 0, nodeClaims: 0}
- at: 10s
  gang: {name: job, createGroup: false, minMember: 3, first: 2, members: 1, requests: {nvidia.com/gpu: "1"}}
- at: 10s
  expect: {gang: job, bound: 3, within: 10s}
)");
}

TEST(Peers, PodsGetTheirFlavorsNodes) {
  ExpectHolds(std::string(kTypes) + R"(
nodePools:
- {name: gpu, instanceTypes: [g6.2xlarge], consolidateAfter: 0s, taints: ["team:NoSchedule"], delays: [{registration: 3s}]}
- {name: other, instanceTypes: [g6.2xlarge], consolidateAfter: 0s, delays: [{registration: 3s}]}
)",
              R"(
- apply: {apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: nvidia}, spec: {nodeLabels: {karpenter.sh/nodepool: gpu}, tolerations: [{key: team, operator: Exists}]}}
- apply:
    apiVersion: kueue.x-k8s.io/v1beta2
    kind: ClusterQueue
    metadata: {name: gpus}
    spec:
      namespaceSelector: {}
      resourceGroups:
      - coveredResources: [nvidia.com/gpu]
        flavors:
        - {name: nvidia, resources: [{name: nvidia.com/gpu, nominalQuota: 6}]}
- apply: {apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: default, namespace: default}, spec: {clusterQueue: gpus}}
- at: 1s
  gang: {name: job, minMember: 2, members: 2, requests: {nvidia.com/gpu: "1"}}
- at: 20s
  expect: {gang: job, bound: 2, nodePool: gpu, nodes: 2}
)");
}

TEST(Peers, AGangWhoseNodeNeverComesKeepsTheOthersAndItsQuota) {
  ExpectHolds(std::string(kTypes) + R"(
nodePools:
- name: gpu
  instanceTypes: [g6.2xlarge]
  consolidateAfter: 0s
  delays: [{registration: 3s}, {registration: 3s}, {registration: 3s}, {neverRegisters: true}, {registration: 3s}]
)",
              std::string(kQueues) + R"(
- at: 1s
  gang: {name: job, minMember: 4, members: 4, requests: {nvidia.com/gpu: "1"}}
- at: 2s
  gang: {name: next, minMember: 3, members: 3, requests: {nvidia.com/gpu: "1"}}
- at: 14m
  expect: {gang: job, bound: 0, nodes: 3, nodeClaims: 4}
- at: 14m
  expect: {gang: next, bound: 0, signalled: 0}
- at: 14m
  expect: {gang: job, bound: 4, within: 2m}
)");
}

TEST(Peers, AGroupThatIsPreemptedLosesItsPods) {
  ExpectHolds(std::string(kTypes) + kPool, std::string(kQueues) + R"(
- at: 1s
  gang: {name: low, minMember: 4, members: 4, requests: {nvidia.com/gpu: "1"}}
- at: 30s
  gang: {name: high, minMember: 4, members: 4, priority: 100, requests: {nvidia.com/gpu: "1"}}
- at: 30s
  expect: {gang: high, bound: 4, within: 60s}
- at: 90s
  expect: {gang: low, bound: 0}
)");
}

TEST(Peers, APodThatReplacesOneOfAnAdmittedGroupIsLetGoAtOnce) {
  ExpectHolds(std::string(kTypes) + kPool, std::string(kQueues) + R"(
- at: 1s
  gang: {name: job, minMember: 2, members: 2, requests: {nvidia.com/gpu: "1"}}
- at: 30s
  expect: {gang: job, bound: 2}
- at: 30s
  delete: pod/job-1
- at: 35s
  gang: {name: job, createGroup: false, minMember: 2, first: 1, members: 1, requests: {nvidia.com/gpu: "1"}}
- at: 35s
  expect: {gang: job, bound: 2, within: 30s}
)");
}

}  // namespace
}  // namespace muster::simulation
