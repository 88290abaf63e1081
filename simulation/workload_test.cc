#include "simulation/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace muster::simulation {
namespace {

using ::testing::HasSubstr;

constexpr const char* kMix = R"(name: mix
nodePools:
- name: gpu
  launches: {launch: 2s, registration: [40s, 4m], neverRegisters: 10, insufficientCapacity: 50}
mix:
  gangs: 200
  every: 30s
  shapes:
  - {weight: 1, members: [2, 8], runTime: [10m, 1h], gang: {name: large, requests: {nvidia.com/gpu: "8"}}}
  - {weight: 3, members: [1, 1], runTime: 5m, gang: {name: small}}
steps:
- at: 10m
  restart: {}
)";

Scenario Parsed(const std::string& yaml) {
  absl::StatusOr<Scenario> scenario = ParseScenario(yaml, "f.yaml");
  EXPECT_TRUE(scenario.ok()) << scenario.status();
  return scenario.ok() ? *std::move(scenario) : Scenario{};
}

TEST(Workload, DrawsAsManyGangsAsAskedWithinTheirBounds) {
  const Scenario drawn = Drawn(Parsed(kMix), 7);
  ASSERT_EQ(drawn.steps.size(), 201U);
  std::set<std::string> names;
  int small = 0;
  absl::Duration previous;
  for (const Step& step : drawn.steps) {
    EXPECT_GE(step.at, previous);
    EXPECT_LE(step.at - previous, absl::Minutes(1)) << "at most twice the average";
    previous = step.at;
    const auto* gang = std::get_if<GangSpec>(&step.action);
    if (gang == nullptr) continue;
    names.insert(gang->name);
    EXPECT_EQ(gang->min_member, gang->members);
    if (gang->name.starts_with("small")) {
      ++small;
      EXPECT_EQ(gang->members, 1);
      EXPECT_EQ(gang->run_time, absl::Minutes(5));
    } else {
      EXPECT_TRUE(gang->members >= 2 && gang->members <= 8) << gang->members;
      EXPECT_TRUE(gang->run_time >= absl::Minutes(10) && gang->run_time <= absl::Hours(1));
    }
  }
  EXPECT_EQ(names.size(), 200U);
  EXPECT_TRUE(small > 120 && small < 180) << small << " of 200, three in four on average";
}

TEST(Workload, TheSeedDecidesAndNothingElse) {
  const Scenario one = Drawn(Parsed(kMix), 7);
  const Scenario same = Drawn(Parsed(kMix), 7);
  const Scenario other = Drawn(Parsed(kMix), 8);
  bool differs = false;
  for (size_t i = 0; i < one.steps.size(); ++i) {
    EXPECT_EQ(one.steps[i].at, same.steps[i].at);
    differs |= one.steps[i].at != other.steps[i].at;
  }
  EXPECT_TRUE(differs);
  std::string without_mix = kMix;
  without_mix.erase(without_mix.find("mix:\n"),
                    without_mix.find("steps:") - without_mix.find("mix:\n"));
  const Scenario alone = Drawn(Parsed(without_mix), 7);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(alone.node_pools[0].delays[i].registration, one.node_pools[0].delays[i].registration)
        << "launches don't depend on the mix";
  }
}

TEST(Workload, LaunchesFailAsOftenAsAsked) {
  const NodePoolSpec pool = Drawn(Parsed(kMix), 1).node_pools[0];
  ASSERT_EQ(pool.delays.size(), static_cast<size_t>(kDrawnLaunches));
  int lost = 0;
  int refused = 0;
  for (const NodeDelays& delays : pool.delays) {
    EXPECT_EQ(delays.launch, absl::Seconds(2));
    EXPECT_TRUE(delays.registration >= absl::Seconds(40) &&
                delays.registration <= absl::Minutes(4));
    lost += delays.never_registers;
    refused += delays.insufficient_capacity;
  }
  EXPECT_NEAR(lost, 0.1 * kDrawnLaunches, 0.02 * kDrawnLaunches);
  EXPECT_NEAR(refused, 0.5 * kDrawnLaunches, 0.02 * kDrawnLaunches);
}

TEST(Workload, WhoLosesPatienceDoesSoThatLongAfterTheGangCame) {
  std::string yaml = kMix;
  yaml.replace(yaml.find("runTime: 5m"), 11, "runTime: 5m, patience: 1h");
  const Scenario drawn = Drawn(Parsed(yaml), 7);
  std::map<std::string, absl::Duration> came;
  int abandoned = 0;
  absl::Duration previous;
  for (const Step& step : drawn.steps) {
    EXPECT_GE(step.at, previous) << "in order of time";
    previous = step.at;
    if (const auto* gang = std::get_if<GangSpec>(&step.action)) came[gang->name] = step.at;
    const auto* abandon = std::get_if<AbandonStep>(&step.action);
    if (abandon == nullptr) continue;
    ++abandoned;
    EXPECT_EQ(step.at, came.at(abandon->name) + absl::Hours(1));
    EXPECT_TRUE(abandon->name.starts_with("small"));
  }
  EXPECT_EQ(abandoned, std::ranges::count_if(
                           came, [](const auto& gang) { return gang.first.starts_with("small"); }));
}

TEST(Workload, AFirstMemberAsksForWhatItsOwnTemplateSays) {
  std::string yaml = kMix;
  yaml.replace(yaml.find("gang: {name: large"), 6, "masterRequests: {cpu: '1'}, gang: ");
  int whole = 0;
  const GangSpec* master = nullptr;
  const Scenario drawn = Drawn(Parsed(yaml), 7);
  for (const Step& step : drawn.steps) {
    const auto* gang = std::get_if<GangSpec>(&step.action);
    if (gang == nullptr || !gang->name.starts_with("large")) continue;
    if (gang->create_group) {
      master = gang;
      EXPECT_EQ(gang->members, 1);
      EXPECT_EQ(gang->requests, (Quantities{{"cpu", "1"}}));
      continue;
    }
    ++whole;
    ASSERT_NE(master, nullptr);
    EXPECT_EQ(gang->name, master->name);
    EXPECT_EQ(gang->min_member, master->min_member);
    EXPECT_EQ(gang->first, 1);
    EXPECT_EQ(gang->members + 1, *gang->min_member);
    EXPECT_EQ(gang->requests, (Quantities{{"nvidia.com/gpu", "8"}}));
  }
  EXPECT_GT(whole, 20);
}

TEST(Workload, SomeNodesLackDevicesForATime) {
  std::string yaml = kMix;
  yaml.replace(yaml.find("insufficientCapacity: 50"), 24,
               "incomplete: 20, devices: [5m, 10m], devicesBefore: {nvidia.com/gpu: '7'}");
  int incomplete = 0;
  const Scenario drawn = Drawn(Parsed(yaml), 1);
  for (const NodeDelays& delays : drawn.node_pools[0].delays) {
    if (delays.devices == absl::ZeroDuration()) continue;
    ++incomplete;
    EXPECT_TRUE(delays.devices >= absl::Minutes(5) && delays.devices <= absl::Minutes(10));
    EXPECT_EQ(delays.devices_before.at("nvidia.com/gpu"), "7");
  }
  EXPECT_NEAR(incomplete, 0.2 * kDrawnLaunches, 0.02 * kDrawnLaunches);
}

TEST(Workload, WhatCannotBeDrawnIsNamedWithItsLine) {
  const std::string gang = "gang: {name: g}}]}\n";
  for (const auto& [yaml, message] : std::vector<std::pair<std::string, std::string>>{
           {"name: x\nmix: {gangs: 0, shapes: []}\n", "f.yaml:2: mix.gangs: 0, want 1 to 10000"},
           {"name: x\nmix: {gangs: 1, shapes: []}\n", "f.yaml:2: mix.shapes: there is none"},
           {"name: x\nmix: {gangs: 9, every: 999h, shapes: [{runTime: 1s, " + gang,
            "f.yaml:2: mix: want from and every such"},
           {"name: x\nmix: {gangs: 9, shapes: [{members: [3, 2], runTime: 1s, " + gang,
            "f.yaml:2: shapes.members: want [fewest, most]"},
           {"name: x\nmix: {gangs: 9, shapes: [{runTime: [2s, 1s], " + gang,
            "f.yaml:2: shapes.runTime: want a duration, or [low, high]"},
           {"name: x\nmix: {gangs: 9, shapes: [{" + gang, "f.yaml:2: shapes.runTime: missing"},
           {"name: x\nnodePools:\n- {name: p, launches: {neverRegisters: 101}}\n",
            "f.yaml:3: launches.neverRegisters: want 0 to 100 percent"},
           {"name: x\nmix: {gangs: 9, shapes: [{patience: 0s, runTime: 1s, " + gang,
            "f.yaml:2: shapes.patience: want more than 0"},
           {"name: x\nstocks:\n- {instanceType: t, most: -1}\n",
            "f.yaml:3: stocks.most: -1, want 0 to 10000"},
           {"name: x\nnodePools:\n- {name: p, delays: [{}], launches: {}}\n",
            "f.yaml:3: nodePools.launches: there are delays as well"},
       }) {
    const absl::StatusOr<Scenario> scenario = ParseScenario(yaml, "f.yaml");
    ASSERT_FALSE(scenario.ok()) << yaml;
    EXPECT_THAT(std::string(scenario.status().message()), HasSubstr(message));
  }
}

}  // namespace
}  // namespace muster::simulation
