// How long lint takes for 1,000 manifests: 800 jobs of four kinds, each with two mistakes, 100
// PodGroups, 20 NodePools, and queues for 40 namespaces, in one invocation. The bound is the whole
// way from text to printed findings. And how long the admission webhook looks at one large object.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cluster/instance_types.h"
#include "fmt/format.h"
#include "lint/lint.h"
#include "lint/output.h"
#include "lint/test_objects.h"
#include "tests/bench/machine.h"

namespace muster::lint {
namespace {

constexpr int kManifests = 1000;
constexpr int kPools = 20;
constexpr int kNamespaces = 40;
constexpr int kGroups = 100;
constexpr int kJobs = kManifests - kPools - kNamespaces - kGroups - 2 * kPools;
constexpr double kLimitSeconds = 1;
constexpr double kObjectLimitSeconds = 0.010;

std::string Pool(int i) {
  return fmt::format(R"(apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: gpu-{0}
spec:
  template:
    metadata:
      labels:
        team: team-{0}
    spec:
      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}
      requirements:
        - key: karpenter.sh/capacity-type
          operator: In
          values: [on-demand]
        - key: karpenter.k8s.aws/instance-family
          operator: In
          values: [g6, g6e, p4d, p5]
        - key: topology.kubernetes.io/zone
          operator: In
          values: [us-west-2a, us-west-2b]
      taints:
        - key: nvidia.com/gpu
          effect: NoSchedule
  disruption:
    consolidationPolicy: WhenEmpty
    consolidateAfter: 20m
  limits:
    nvidia.com/gpu: "64"
)",
                     i);
}

std::string PodTemplateText(int i) {
  return fmt::format(R"(        template:
          metadata:
            labels:
              app: train
          spec:
            schedulerName: coscheduling
            nodeSelector:
              karpenter.sh/nodepool: gpu-{}
              topology.kubernetes.io/zone: us-west-2c
            tolerations:
              - key: nvidia.com/gpu
                operator: Exists
                effect: NoSchedule
            containers:
              - name: pytorch
                image: public.ecr.aws/deep-learning-containers/pytorch-training:2.8.0-gpu-py312
                command: [/bin/bash, -c]
                args:
                  - |
                    set -e
                    git clone https://example.com/training /workspace/code
                    cd /workspace/code
                    pip install -r requirements.txt
                    torchrun --nnodes 4 --nproc_per_node 8 train.py --epochs 3 --batch 32
                env:
                  - name: NCCL_SOCKET_IFNAME
                    value: ^docker,lo,veth
                  - name: HF_HOME
                    value: /cache
                resources:
                  requests:
                    cpu: "90"
                    memory: 1000Gi
                  limits:
                    nvidia.com/gpu: "8"
                    memory: 1000Gi
                volumeMounts:
                  - name: shm
                    mountPath: /dev/shm
            volumes:
              - name: shm
                emptyDir:
                  medium: Memory
                  sizeLimit: 64Gi
)",
                     i % kPools);
}

std::string Job(int i) {
  const std::string pods = PodTemplateText(i);
  const std::string metadata = fmt::format(
      "metadata:\n  name: train-{}\n  namespace: team-{}\n  labels:\n"
      "    kueue.x-k8s.io/queue-name: queue\nspec:\n",
      i, i % kNamespaces);
  if (i % 2 == 0) {
    return "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n" + metadata +
           "  nprocPerNode: \"8\"\n  pytorchReplicaSpecs:\n    Master:\n        replicas: 1\n" +
           pods + "    Worker:\n        replicas: 3\n" + pods;
  }
  return "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n" + metadata +
         "  replicatedJobs:\n    - name: node\n      template:\n        spec:\n          "
         "parallelism: "
         "4\n          completions: 4\n" +
         [&] {
           std::string indented;
           std::istringstream lines(pods);
           for (std::string line; std::getline(lines, line);) indented += "  " + line + "\n";
           return indented;
         }();
}

// One file per manifest, as `muster lint *.yaml` has them.
std::vector<SourceText> MakeManifests() {
  std::vector<SourceText> sources;
  const auto add = [&](std::string text) {
    sources.push_back({fmt::format("manifest-{}.yaml", sources.size()), std::move(text)});
  };
  for (int i = 0; i < kPools; ++i) {
    add(Pool(i));
    add(
        fmt::format("apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {{name: "
                    "gpu-{0}}}\nspec:\n  nodeLabels:\n    karpenter.sh/nodepool: gpu-{0}\n",
                    i));
    add(fmt::format(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {{name: queue-{0}}}\n"
        "spec:\n  namespaceSelector: {{}}\n  resourceGroups:\n    - coveredResources: "
        "[nvidia.com/gpu]\n      flavors:\n        - name: gpu-{0}\n          resources:\n"
        "            - {{name: nvidia.com/gpu, nominalQuota: 64}}\n",
        i));
  }
  for (int i = 0; i < kNamespaces; ++i) {
    add(fmt::format(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {{name: queue, "
        "namespace: team-{}}}\nspec: {{clusterQueue: queue-{}}}\n",
        i, i % kPools));
  }
  for (int i = 0; i < kGroups; ++i) {
    add(
        fmt::format("apiVersion: scheduling.x-k8s.io/v1alpha1\nkind: PodGroup\nmetadata: {{name: "
                    "train-{}, namespace: team-{}}}\nspec: {{minMember: 4, "
                    "scheduleTimeoutSeconds: 1200}}\n",
                    i, i % kNamespaces));
  }
  for (int i = 0; i < kJobs; ++i) add(Job(i));
  return sources;
}

// Each of the largest objects beside many NodePools, the best of five looks.
bool ObjectsAreFast() {
  KnownPolicies known;
  AddPoolsByRequirement(&known);
  bool all = true;
  for (const auto& [what, object] : LargestObjects()) {
    double least = kObjectLimitSeconds * 100;
    for (int i = 0; i < 5; ++i) {
      const double begin = bench::ThreadCpu();
      LintObject(object, "coscheduling", *known.All(), cluster::InstanceTypes::BuiltIn());
      least = std::min(least, bench::ThreadCpu() - begin);
    }
    const bool fast = least <= kObjectLimitSeconds;
    all = all && fast;
    fmt::print("{}: an object large by {}, {} bytes: {:.1f} ms of CPU time, at most {:.0f} ms\n",
               fast ? "passed" : "FAILED", what, object.size(), least * 1e3,
               kObjectLimitSeconds * 1e3);
  }
  return all;
}

int Run() {
  const std::vector<SourceText> sources = MakeManifests();
  size_t bytes = 0;
  for (const SourceText& source : sources) bytes += source.text.size();
  const bench::MachineLoad load;
  const double cpu = bench::ThreadCpu();
  const auto begin = std::chrono::steady_clock::now();
  const LintResult result = Lint(sources, cluster::InstanceTypes::BuiltIn());
  const size_t printed = TextOutput(result).size();
  const double used = bench::ThreadCpu() - cpu;
  const double clock =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("{} manifests, {} KiB: {} findings, {} KiB of text\n", sources.size(), bytes >> 10,
             result.findings.size(), printed >> 10);
  fmt::print("{}\n", load.Describe());
  // Each job has a zone that isn't offered, and resources that its queue doesn't cover.
  const size_t expected = size_t{kJobs} * 2;
  const bool whole =
      sources.size() == kManifests && result.errors.empty() && result.findings.size() == expected;
  if (!whole) {
    std::map<std::string, int> of_rule;
    for (const Finding& finding : result.findings) ++of_rule[std::string(finding.rule)];
    fmt::print("FAILED: {} findings were expected\n", expected);
    for (const auto& [rule, count] : of_rule) fmt::print("  {} {}\n", count, rule);
  }
  const bool fast = used <= kLimitSeconds;
  fmt::print("{}: {:.3f} s of CPU time, {:.3f} s by the clock, at most {:.1f} s\n",
             fast ? "passed" : "FAILED", used, clock, kLimitSeconds);
  const bool objects = ObjectsAreFast();
  return whole && fast && objects ? 0 : 1;
}

}  // namespace
}  // namespace muster::lint

int main() { return muster::lint::Run(); }
