#include "simulation/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "simulation/run_simulate.h"

namespace muster::simulation {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Its fourth node comes when Karpenter has given up the one that never registers, after 15 min.
constexpr const char* kNeverComes = R"(name: A node that never comes
instanceTypes:
- {name: g6.2xlarge, resources: {cpu: "8", memory: 32Gi, nvidia.com/gpu: "1", pods: "58"}, zones: [us-west-2a]}
nodePools:
- name: gpu
  instanceTypes: [g6.2xlarge]
  consolidateAfter: 0s
  delays: [{registration: 30s}, {registration: 30s}, {registration: 30s}, {neverRegisters: true}, {registration: 30s}]
options: {provisioningDeadline: 2m, backoffBase: 15m, backoffMax: 15m}
steps:
- at: 0s
  gang: {name: job, minMember: 4, members: 4, runTime: 5m, requests: {nvidia.com/gpu: "1"}}
- at: 3m
  expect: {gang: job, state: BACKING_OFF}
)";

GangOutcome Gang(std::optional<Millis> started, int64_t succeeded) {
  GangOutcome gang;
  gang.account.min_member = 2;
  gang.account.succeeded = succeeded;
  gang.account.created = 1'000;
  gang.account.started = started;
  return gang;
}

TEST(Comparison, FiguresCountWhoCompletedAndHowLongTheyWaited) {
  Outcome outcome;
  outcome.gangs = {Gang(3'000, 2), Gang(2'000, 1), Gang(std::nullopt, 0)};
  const Figures figures = FiguresOf(outcome);
  EXPECT_EQ(figures.gangs, 3);
  EXPECT_EQ(figures.completed, 1);
  EXPECT_EQ(figures.median_start, 2'000);
  EXPECT_EQ(figures.late_start, std::nullopt) << "one of three never started";
  EXPECT_EQ(FiguresOf(Outcome{}).median_start, std::nullopt);
}

TEST(Comparison, BothPoliciesStandBesideEachOtherWithTheirRatio) {
  const Ran result = RunText(kNeverComes, {.files = {}, .brief = true, .policy = "both"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("(seed 1, coscheduling)"));
  const std::string table = result.out.substr(result.out.rfind("POLICY"));
  EXPECT_EQ(table, R"(POLICY                                   muster      coscheduling     ratio
GPU-seconds wasted                     1582.080          3831.876    41.3 %
  idle for gangs                       1496.876          3719.876    40.2 %
    before their start                  595.996          3719.876    16.0 %
      coming up                         210.000           120.000   175.0 %
      never usable                      118.999           899.876    13.2 %
      waiting for a start                 0.000          2700.000     0.0 %
      waiting in vain                   266.997             0.000         -
    after they gave up                  900.880             0.000         -
  after a gang's end                     85.204           112.000    76.1 %
GPU-seconds used                       1204.000          1204.000   100.0 %
gangs completed                          1 of 1            1 of 1
seconds to start, median               1062.699           931.000
seconds to start, 95th in 100          1062.699           931.000
)");
}

TEST(Comparison, JsonHasTheFiguresOfEachPolicy) {
  const Ran result = RunText(kNeverComes, {.files = {}, .output = "json", .policy = "both"});
  const auto runs = nlohmann::json::parse(result.out).at("scenarios");
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].at("policy"), "muster");
  EXPECT_EQ(runs[1].at("policy"), "coscheduling");
  for (const auto& run : runs) {
    const auto& figures = run.at("figures");
    EXPECT_EQ(figures.at("gangs"), 1);
    EXPECT_EQ(figures.at("completed"), 1);
    EXPECT_EQ(figures.at("idleBeforeStartGpuMs"), run.at("gpuMs").at("bought").at("beforeStart"));
    EXPECT_EQ(figures.at("idleAfterGiveUpGpuMs"), run.at("gpuMs").at("bought").at("afterGiveUp"));
    EXPECT_EQ(figures.at("timeToStart95thMs"), run.at("gangs").at(0).at("startedMs"));
  }
}

TEST(Comparison, ExpectationsAreNotAskedOfMustersPeers) {
  const Ran result = RunText(kNeverComes, {.files = {}, .brief = true, .policy = "coscheduling"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("All invariants hold; expectations are Muster's."));
}

TEST(Comparison, AnUnknownPolicyIsNamedWithThoseThereAre) {
  const Ran result = RunText(kNeverComes, {.files = {}, .policy = "volcano"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "muster: --policy=volcano: want muster, coscheduling, both, no-reservation or guard\n");
  EXPECT_EQ(result.out, "");
}

}  // namespace
}  // namespace muster::simulation
