// Seeded rounds in which answers and watches are late, lost, cut off and repeated (fault_rounds.h).
// Whatever happens: what invariants.h and settled.h say.
//
// A round that fails prints a scenario file, shrunk to what matters; `muster simulate` runs it.
// MUSTER_FAULTS_ROUNDS sets the number of rounds (20, with MUSTER_FULL=1 10,000),
// MUSTER_FAULTS_SEED the first seed, MUSTER_FAULTS_MAX how many failures end it (1).

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <string_view>

#include "simulation/scenario_text.h"
#include "tests/scenarios/fault_rounds.h"

namespace muster::simulation {
namespace {

int FromEnvironment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// Sanitizers take some thirty times as long for a round.
#ifdef MUSTER_SANITIZED
constexpr int kRounds = 5, kAllRounds = 300, kKilledEvery = 10;
#else
constexpr int kRounds = 20, kAllRounds = 10'000, kKilledEvery = 1;
#endif
constexpr int kShrinkingRuns = 400;

TEST(Faults, ComeToRestWithoutPhantomsPartsOrLeftovers) {
  const int rounds = FromEnvironment("MUSTER_FAULTS_ROUNDS",
                                     FromEnvironment("MUSTER_FULL", 0) == 1 ? kAllRounds : kRounds);
  const int first = FromEnvironment("MUSTER_FAULTS_SEED", 1);
  const size_t most = static_cast<size_t>(FromEnvironment("MUSTER_FAULTS_MAX", 1));
  std::map<std::string, int> sorts;  // each is shown once
  for (int seed = first; seed < first + rounds && sorts.size() < most; ++seed) {
    const Scenario scenario = DrawRound(static_cast<uint64_t>(seed));
    const RoundResult result = RunRound(scenario);
    if (result.sort.empty() || sorts[result.sort]++ > 0) continue;
    const Scenario small = Shrunk(scenario, result.sort, kShrinkingRuns);
    ADD_FAILURE() << "seed " << seed << ": " << result.message.substr(0, result.message.find('\n'))
                  << "\n--- shrunk:\n"
                  << ScenarioText(small) << "--- fails so: " << RunRound(small).message;
  }
  for (const auto& [sort, times] : sorts) std::cout << times << " x " << sort << "\n";
}

// Quota for 24 GPUs. Each write takes a second and its answer another, so that they are told apart.
constexpr std::string_view kQuotaOf24 = R"(name: quota
nodes:
- {name: n, count: 4, resources: {cpu: "64", memory: 320Gi, nvidia.com/gpu: "8", pods: "58"}}
faults: {writes: {any: {request: [1s, 1s], answer: [1s, 1s]}}}
steps:
- at: 0s
  apply: {apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: any}}
- at: 0s
  apply:
    apiVersion: kueue.x-k8s.io/v1beta2
    kind: ClusterQueue
    metadata: {name: gpus}
    spec:
      namespaceSelector: {}
      preemption: {withinClusterQueue: LowerPriority}
      resourceGroups:
      - coveredResources: [nvidia.com/gpu]
        flavors: [{name: any, resources: [{name: nvidia.com/gpu, nominalQuota: 24}]}]
- at: 0s
  apply: {apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: default, namespace: default}, spec: {clusterQueue: gpus}}
)";

// A gang with a member beyond minMember is admitted and bound, then preempted, and another is
// admitted in its place.
constexpr std::string_view kAdmission = R"(- at: 1s
  gang: {name: low, minMember: 2, members: 3, requests: {nvidia.com/gpu: "8"}}
- at: 30s
  gang: {name: high, minMember: 3, members: 3, priority: 100, requests: {nvidia.com/gpu: "8"}}
- at: 4m
  expect: {gang: high, state: BOUND, bound: 3, reservedIn: gpus, reservedPods: 3}
- at: 4m
  expect: {gang: low, bound: 0, reservedIn: ""}
)";

// The same of a job with two stages, which share its Workload: the second comes, and both are
// preempted together, through their job.
constexpr std::string_view kStages = R"(- at: 1s
  apply:
    apiVersion: jobset.x-k8s.io/v1alpha2
    kind: JobSet
    metadata: {name: set, namespace: default}
    spec:
      replicatedJobs:
      - name: driver
        replicas: 1
        template:
          spec:
            parallelism: 1
            completions: 1
            template: &template
              spec:
                schedulerName: coscheduling
                restartPolicy: Never
                containers:
                - {name: main, image: train, resources: {requests: {nvidia.com/gpu: "8"}, limits: {nvidia.com/gpu: "8"}}}
      - name: node
        replicas: 1
        dependsOn: [{name: driver, status: Ready}]
        template: {spec: {parallelism: 2, completions: 2, template: *template}}
- at: 1s
  reconcile: {object: jobset/set, replicatedJob: driver, gang: set-driver}
- at: 20s
  reconcile: {object: jobset/set, replicatedJob: node, gang: set-node}
- at: 40s
  gang: {name: high, minMember: 3, members: 3, priority: 100, requests: {nvidia.com/gpu: "8"}}
- at: 60s
  reconcile: {object: jobset/set, gang: set-node}
- at: 90s
  reconcile: {object: jobset/set, gang: set-node}
- at: 5m
  expect: {gang: high, state: BOUND, bound: 3, reservedIn: gpus, reservedPods: 3}
- at: 5m
  expect: {gang: set, reservedIn: ""}
- at: 5m
  expect: {gang: set-driver, bound: 0}
- at: 5m
  expect: {gang: set-node, bound: 0}
)";

// What is at rest then is exact, and at every moment no flavor is used beyond its quota
// (invariants.h), wherever Muster was killed: what it had sent still arrives.
TEST(Faults, AdmissionIsExactWhereverMusterIsKilledBetweenTwoWrites) {
  for (const std::string_view text : {kAdmission, kStages}) {
    const absl::StatusOr<Scenario> read = ParseScenario(std::string(kQuotaOf24).append(text), "");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(RunRound(*read).message, "");
    for (int half_seconds = 0; half_seconds < 150; half_seconds += kKilledEvery) {
      Scenario scenario = *read;
      const absl::Duration at = absl::Milliseconds(1'250 + 500 * half_seconds);
      scenario.steps.push_back({.at = at, .action = RestartStep(), .line = 1});
      std::ranges::stable_sort(scenario.steps, {}, &Step::at);
      EXPECT_EQ(RunRound(scenario).message, "") << "killed at " << at << ":\n" << text;
    }
  }
}

TEST(Faults, ARoundReadFromItsTextRunsAsBefore) {
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    const Scenario scenario = DrawRound(seed);
    const std::string text = ScenarioText(scenario);
    const absl::StatusOr<Scenario> read = ParseScenario(text, "round.yaml");
    ASSERT_TRUE(read.ok()) << read.status() << "\n" << text;
    EXPECT_EQ(ScenarioText(*read), text);
    EXPECT_EQ(RunRound(*read).message, RunRound(scenario).message) << text;
  }
}

}  // namespace
}  // namespace muster::simulation
