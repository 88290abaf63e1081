#include "simulation/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "simulation/run_simulate.h"

namespace muster::simulation {
namespace {

using ::testing::HasSubstr;

// Two of three nodes come in time, twice; once the third has come, the gang starts with it.
constexpr const char* kLateNode = R"(name: The third node comes after two give-ups
instanceTypes:
- {name: g6.2xlarge, resources: {cpu: "8", memory: 32Gi, nvidia.com/gpu: "1", pods: "58"}, zones: [us-west-2a]}
nodePools:
- name: gpu
  instanceTypes: [g6.2xlarge]
  consolidateAfter: 0s
  delays: [{registration: 3s}, {registration: 3s}, {registration: 1m}, {registration: 3s}]
options: {backoffBase: 30s}
steps:
- at: 0s
  gang: {name: job, minMember: 3, members: 3, runTime: 2m, scheduleTimeoutSeconds: 10, requests: {nvidia.com/gpu: "1"}}
- at: 11s
  expect: {gang: job, state: BACKING_OFF}
- at: 11s
  expect: {gang: job, state: FINISHED, within: 5m}
)";

std::string Write(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::vector<std::string> ScenarioFiles() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("tests/scenarios")) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  return files;
}

// Sanitizers see all of them in scenario_test already.
#ifdef MUSTER_SANITIZED
constexpr size_t kEvery = 10;
#else
constexpr size_t kEvery = 1;
#endif

TEST(Simulate, WhatIsBoughtIsUsedOrWastedInEveryScenario) {
  const std::vector<std::string> files = ScenarioFiles();
  for (size_t i = 0; i < files.size(); i += kEvery) {
    const std::string& file = files[i];
    const absl::StatusOr<Scenario> scenario = ReadScenario(file);
    ASSERT_TRUE(scenario.ok()) << scenario.status();
    const Outcome outcome = Simulate(*scenario, 1, std::nullopt);
    EXPECT_TRUE(outcome.failures.empty() && !outcome.refused) << file;
    GpuAccount sum;
    for (const NodeAccount& node : outcome.nodes) {
      EXPECT_EQ(node.gpu.bought, node.gpu.used + node.gpu.Wasted()) << file << ": " << node.id;
      EXPECT_EQ(node.gpu.Wasted(),
                node.gpu.BeforeStart() + node.gpu.Of(Idle::kGaveUp) + node.gpu.Otherwise());
      EXPECT_EQ(node.gpu.bought, node.facts.gpus * (node.until.value_or(outcome.end) - *node.from))
          << file << ": " << node.id;
      sum.Add(node.gpu);
    }
    GpuAccount total = outcome.bought;
    total.Add(outcome.from_the_start);
    EXPECT_EQ(total, sum) << file;
  }
}

TEST(Simulate, EqualSeedsGiveEqualRuns) {
  EXPECT_EQ(RunText(kLateNode).out, RunText(kLateNode).out);
  EXPECT_NE(RunText(kLateNode).out, RunText(kLateNode, {.files = {}, .seed = 2}).out)
      << "names at least are drawn";
}

TEST(Simulate, TextTellsTheStoryAndTheSums) {
  const Ran result = RunText(kLateNode);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, R"(The third node comes after two give-ups
- (seed 1)

      0.000  gang    default/job: WAITING_FOR_MEMBERS RECORD_PENDING: the admission record is being written
      0.000  gang    default/job: PROVISIONING CAPACITY_SHORT: 0 of 3 members have room: no node that could take a member
      0.000  members default/job: 3 ask for nodes: job-0, job-1, job-2
      1.000  node    gpu: 3 requested: gpu-stmmb, gpu-72bs5, gpu-dhs2d
      1.000  node    gpu: 3 launched as g6.2xlarge in us-west-2a: gpu-72bs5, gpu-dhs2d, gpu-stmmb
      1.000  gang    default/job: PROVISIONING NODES_COMING: 0 of 3 nodes usable; waiting for nodeclaim/gpu-72bs5 (launched, its Node hasn't appeared); nodeclaim/gpu-dhs2d (launched, its Node hasn't appeared); nodeclaim/gpu-stmmb (launched, its Node hasn't appeared)
      4.000  node    gpu: 2 registered: gpu-72bs5 as ip-10-58-236-235, gpu-dhs2d as ip-10-237-40-32
      4.000  node    gpu: 2 usable: ip-10-58-236-235, ip-10-237-40-32
      4.000  node    gpu: 2 held: ip-10-237-40-32, ip-10-58-236-235
      9.999  gang    default/job: BACKING_OFF NODE_NOT_REGISTERED: nodes for all members didn't come within 10s (attempt 1): 2 of 3 members have usable nodes; nodeclaim/gpu-stmmb (g6.2xlarge in us-west-2a, NodePool gpu) was launched at 00:00:01Z and isn't registered: launched, its Node hasn't appeared; next attempt at 00:00:40Z
      9.999  members default/job: 3 no longer ask for nodes: job-0, job-1, job-2
      9.999  node    gpu: 2 no longer held: ip-10-237-40-32, ip-10-58-236-235
     25.000  node    gpu: 2 being removed: gpu-72bs5, gpu-dhs2d
     30.000  node    gpu: 2 removed: gpu-72bs5, gpu-dhs2d
     40.389  gang    default/job: WAITING_FOR_MEMBERS RECORD_PENDING: the admission record is being written
     40.389  gang    default/job: PROVISIONING CAPACITY_SHORT: 1 of 3 members have room: 1 node(s) not enough free: nodeclaim/gpu-stmmb: nvidia.com/gpu: wants 1, 0 of 1 free
     40.389  members default/job: 3 ask for nodes: job-0, job-1, job-2
     41.389  node    gpu: 2 requested: gpu-z6pm5, gpu-4dl77
     41.389  node    gpu: 2 launched as g6.2xlarge in us-west-2a: gpu-4dl77, gpu-z6pm5
     41.389  gang    default/job: PROVISIONING NODES_COMING: 0 of 3 nodes usable; waiting for nodeclaim/gpu-4dl77 (launched, its Node hasn't appeared); nodeclaim/gpu-stmmb (launched, its Node hasn't appeared); nodeclaim/gpu-z6pm5 (launched, its Node hasn't appeared)
     44.389  node    gpu: 2 registered: gpu-4dl77 as ip-10-104-156-73, gpu-z6pm5 as ip-10-137-81-146
     44.389  node    gpu: 2 usable: ip-10-104-156-73, ip-10-137-81-146
     44.389  node    gpu: 2 held: ip-10-104-156-73, ip-10-137-81-146
     50.389  gang    default/job: BACKING_OFF NODE_NOT_REGISTERED: nodes for all members didn't come within 10s (attempt 2): 2 of 3 members have usable nodes; nodeclaim/gpu-stmmb (g6.2xlarge in us-west-2a, NodePool gpu) was launched at 00:00:01Z and isn't registered: launched, its Node hasn't appeared; next attempt at 00:01:51Z
     50.389  members default/job: 3 no longer ask for nodes: job-0, job-1, job-2
     50.389  node    gpu: 2 no longer held: ip-10-104-156-73, ip-10-137-81-146
     61.000  node    gpu: 1 registered: gpu-stmmb as ip-10-74-162-85
     61.000  node    gpu: 1 usable: ip-10-74-162-85
     61.000  gang    default/job: READY GATES_LIFTING: 3 members have places on usable nodes; 3 gates are being lifted
     61.000  gang    default/job: READY WAITING_FOR_SCHEDULER: 3 members have places on usable nodes; waiting for kube-scheduler to ask for the bindings
     61.000  gang    default/job: BINDING BINDINGS_POSTED: 0 of 3 members bound
     61.000  members default/job: 3 bound: job-1 on ip-10-137-81-146, job-0 on ip-10-104-156-73, job-2 on ip-10-74-162-85
     61.000  node    gpu: 3 held: ip-10-104-156-73, ip-10-137-81-146, ip-10-74-162-85
     61.000  gang    default/job: BOUND ALL_BOUND: 3 of 3 members bound
     61.000  node    gpu: 3 no longer held: ip-10-104-156-73, ip-10-137-81-146, ip-10-74-162-85
    182.000  members default/job: 3 succeeded: job-1, job-0, job-2
    182.000  gang    default/job: FINISHED GANG_SUCCEEDED: 3 members succeeded, 0 failed
    205.000  node    gpu: 3 being removed: gpu-4dl77, gpu-stmmb, gpu-z6pm5
    210.000  node    gpu: 3 removed: gpu-4dl77, gpu-stmmb, gpu-z6pm5
    210.000  end: nothing waits, will end or idles any more

NODE       TYPE        POOL  FROM    UNTIL    GPUS  GPU-H  USED   IDLE   WHY IDLE
gpu-stmmb  g6.2xlarge  gpu   1.000   210.000  1     0.058  0.034  0.024  coming up 0.005, after a gang's end 0.008, after a give-up 0.011
gpu-72bs5  g6.2xlarge  gpu   1.000   30.000   1     0.008  0.000  0.008  coming up 0.001, waiting in vain 0.002, after a give-up 0.006
gpu-dhs2d  g6.2xlarge  gpu   1.000   30.000   1     0.008  0.000  0.008  coming up 0.001, waiting in vain 0.002, after a give-up 0.006
gpu-z6pm5  g6.2xlarge  gpu   41.389  210.000  1     0.047  0.034  0.013  coming up 0.001, waiting in vain 0.002, after a gang's end 0.008, after a give-up 0.003
gpu-4dl77  g6.2xlarge  gpu   41.389  210.000  1     0.047  0.034  0.013  coming up 0.001, waiting in vain 0.002, after a gang's end 0.008, after a give-up 0.003

GANG         MEMBERS  CREATED  WAITED  STARTED  ENDED    RESTARTS  GAVE UP  STATE     REASON
default/job  3/3      0.000    61.000  61.000   182.000  0         2        FINISHED  GANG_SUCCEEDED

GPU-time is bought from a node's launch (if it was there from the start: from then) until it
is gone, and used while a bound member of a whole gang has the GPU. The rest is wasted: before
the start of a gang that waits for the node, after such a gang gave up, or otherwise.

NODES BOUGHT                  GPU-hours       GPU-seconds    share
bought                            0.168           604.222  100.0 %
  used                            0.101           363.000   60.1 %
  wasted                          0.067           241.222   39.9 %
    before a gang's start         0.015            54.997    9.1 %
      coming up                   0.009            30.999    5.1 %
      waiting in vain             0.007            23.998    4.0 %
    after a give-up               0.028           102.225   16.9 %
    otherwise                     0.023            84.000   13.9 %
      after a gang's end          0.023            84.000   13.9 %

POLICY                                   muster
GPU-seconds wasted                      241.222
  idle for gangs                        157.222
    before their start                   54.997
      coming up                          30.999
      waiting in vain                    23.998
    after they gave up                  102.225
  after a gang's end                     84.000
GPU-seconds used                        363.000
gangs completed                          1 of 1
seconds to start, median                 61.000
seconds to start, 95th in 100            61.000

All expectations and invariants hold.
)");
}

TEST(Simulate, JsonHasTheSameInWholeMilliseconds) {
  const Ran result = RunText(kLateNode, {.files = {}, .output = "json"});
  const auto run = nlohmann::json::parse(result.out).at("scenarios").at(0);
  EXPECT_EQ(run.at("name"), "The third node comes after two give-ups");
  EXPECT_EQ(run.at("failures").size(), 0U);
  const auto& gpu = run.at("gpuMs").at("bought");
  EXPECT_EQ(gpu.at("used"), 3 * 120'000 + 3 * 1'000);
  EXPECT_EQ(gpu.at("bought").get<int64_t>(),
            gpu.at("used").get<int64_t>() + gpu.at("wasted").get<int64_t>());
  EXPECT_EQ(run.at("gangs").at(0).at("gaveUp"), 2);
  EXPECT_EQ(run.at("timeline").at(0).at("state"), "WAITING_FOR_MEMBERS");
}

TEST(Simulate, UntilEndsTheRunThere) {
  const Ran result = RunText(kLateNode, {.files = {}, .brief = true, .until = "5s"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("5.000  end: as asked"));
  for (const char* wrong : {"soon", "-1s", "inf", "9999h"}) {
    const Ran refused = RunText(kLateNode, {.files = {}, .until = wrong});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr(wrong));
  }
}

TEST(Simulate, WhatDoesNotHoldIsToldWithItsLineAndTheRunGoesOn) {
  const Ran result = RunText(R"(name: Wrong twice
nodes: [{name: n, resources: {cpu: "8", memory: 32Gi, nvidia.com/gpu: "1", pods: "58"}}]
steps:
- gang: {name: job, minMember: 1, requests: {nvidia.com/gpu: "1"}}
- at: 3s
  expect: {gang: job, state: PROVISIONING}
- at: 4s
  expect: {gang: job, bound: 2}
)");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("-:5: want state PROVISIONING, found BOUND"));
  EXPECT_THAT(result.err, HasSubstr("-:7: want bound 2, found 1"));
  EXPECT_THAT(result.out, HasSubstr("FAILED  -:7:"));
}

TEST(Simulate, AWorldThatNeverComesToRestEndsAnHourAfterItsLastStep) {
  const Ran result = RunText(R"(name: A node that never registers
instanceTypes: [{name: g, resources: {cpu: "8", memory: 32Gi, nvidia.com/gpu: "1", pods: "58"}, zones: [z1]}]
nodePools: [{name: gpu, instanceTypes: [g], delays: [{neverRegisters: true}]}]
steps:
- at: 10s
  gang: {name: job, requests: {nvidia.com/gpu: "1"}}
)",
                             {.files = {}, .brief = true});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("3610.000  end: that is 1h after the last step"));
}

TEST(Simulate, WhatCannotBeReadIsNamedByFileLineAndField) {
  const std::string head = "name: x\nsteps:\n";
  struct Case {
    const char* what;
    std::string text;
    const char* message;
  };
  for (const Case& c : {
           Case{"unknown field", "name: x\nstepz: []\n", "-:2: scenario.stepz: unknown field"},
           Case{"empty", "", "-:1: there is no scenario in it"},
           Case{"two documents", "name: x\n---\nname: y\n", "-:3: a second document"},
           Case{"tab", "name: x\nsteps:\n\t- at: 1s\n", "-:3: a tab in the indentation"},
           Case{"duplicate key", "name: x\nname: y\n",
                "-:2: key name stands twice, first in line 1"},
           Case{"not UTF-8", "name: x\n# caf\xE9\n", "-:2: byte 0xe9 is not UTF-8"},
           Case{"50 MB", std::string(50 << 20, '\n'), "the file goes on past 8388608 bytes"},
           Case{"recursive anchor", "name: x\nsteps: &a [*a]\n", "-:2: an alias inside the value"},
           Case{"merge key", "name: &n {a: b}\nsteps: [{<<: *n}]\n",
                "-:1: scenario.name: wrong type"},
           Case{"no mapping", "- 1\n", "-:1: scenario: want a mapping"},
           Case{"steps no list", "name: x\nsteps: {a: b}\n", "-:2: scenario.steps: want a list"},
           Case{"infinite", head + "- {at: inf, restart: {}}\n", "-:3: steps.at"},
           Case{"before the start", head + "- {at: -1s, restart: {}}\n", "-:3: steps.at"},
           Case{"no members", head + "- gang: {name: g, members: -1}\n", "-:3: gang.members"},
           Case{"too many members", head + "- gang: {name: g, members: 2000000000}\n",
                "-:3: gang.members"},
           Case{"too many nodes", "name: x\nnodes: [{name: n, count: 2000000000}]\n",
                "-:2: nodes.count"},
           Case{"refused by the API server", head + "- gang: {name: 'No Such Name!'}\n", "-:3: "},
           Case{"unknown kind", head + "- delete: thing/x\n", "-:3: scenarios know no kind"},
       }) {
    const Ran result = RunText(c.text);
    EXPECT_EQ(result.exit_code, 2) << c.what << "\n" << result.err;
    EXPECT_THAT(result.err, HasSubstr(c.message)) << c.what;
  }
}

TEST(Simulate, AFileThatCannotBeReadDoesNotKeepTheOthersFromRunning) {
  const std::string good = Write("good.yaml", kLateNode);
  const Ran result = RunText("", {.files = {"/nowhere/a.yaml", good}, .brief = true});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("/nowhere/a.yaml:1: No such file or directory"));
  EXPECT_THAT(result.out, HasSubstr("All expectations and invariants hold."));
}

}  // namespace
}  // namespace muster::simulation
