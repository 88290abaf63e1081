#include "simulation/faults.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "simulation/scenario_text.h"

namespace muster::simulation {
namespace {

using Fate = Faults::Trip::Fate;

const absl::Time kStart = absl::FromUnixSeconds(1'000'000);

TEST(Faults, EndWhenTheyAreSaidTo) {
  FaultSpec spec;
  spec.until = absl::Seconds(10);
  const Faults faults(&spec, kStart);
  EXPECT_TRUE(faults.Active(kStart));
  EXPECT_FALSE(faults.Active(kStart + absl::Seconds(10)));
  EXPECT_FALSE(Faults(nullptr, kStart).Active(kStart));
}

TEST(Faults, AnswersOfAKindTakeTheTimeOfTheKind) {
  FaultSpec spec;
  spec.writes["status"].answer = {absl::Seconds(5), absl::Seconds(5)};
  Faults faults(&spec, kStart);
  EXPECT_EQ(faults.OfWrite("status").back, absl::Seconds(5));
  EXPECT_EQ(faults.OfWrite("binding").back, absl::ZeroDuration());
  spec.writes["any"].request = {absl::Seconds(1), absl::Seconds(1)};
  EXPECT_EQ(faults.OfWrite("binding").there, absl::Seconds(1));
  EXPECT_EQ(faults.OfWrite("status").there, absl::ZeroDuration());
}

TEST(Faults, AnAnswerThatNeverComesIsWaitedForATime) {
  FaultSpec spec;
  spec.writes["any"].request = {absl::Seconds(1), absl::Seconds(1)};
  spec.writes["any"].unanswered = 100;
  Faults faults(&spec, kStart);
  const Faults::Trip trip = faults.OfWrite("binding");
  EXPECT_EQ(trip.fate, Fate::kUnanswered);
  EXPECT_EQ(trip.there + trip.back, kAnswerTimeout);
}

TEST(Faults, SharesAreKeptAndEqualSeedsDrawTheSame) {
  FaultSpec spec;
  spec.writes["any"].lost = 20;
  spec.writes["any"].refused = 10;
  Faults first(&spec, kStart), second(&spec, kStart);
  int lost = 0, refused = 0;
  for (int i = 0; i < 10'000; ++i) {
    const Faults::Trip trip = first.OfWrite("binding");
    EXPECT_EQ(trip.fate, second.OfWrite("binding").fate);
    lost += trip.fate == Fate::kLost;
    refused += trip.fate == Fate::kRefused;
  }
  EXPECT_NEAR(lost, 2'000, 150);
  EXPECT_NEAR(refused, 800, 150);
}

TEST(ScenarioTextForm, IsReadAsTheSameScenario) {
  const char* yaml = R"(name: "all of it: \"quoted\""
options: {repairDeadline: 60s, taintSuspects: true}
instanceTypes: [{name: g, resources: {cpu: "8"}, zones: [a]}]
nodePools: [{name: gpu, instanceTypes: [g], limits: {cpu: "8"}, delays: [{registration: 3s, neverRegisters: true}]}]
nodes: [{name: n, count: 2, resources: {cpu: "8"}, taints: ["a=b:NoSchedule"]}]
stocks: [{instanceType: g, most: 3}]
faults: {seed: 3, until: 1m, writes: {any: {lost: 2.5}}, watches: {pod: {latency: [1ms, 2s]}}, calls: {repeated: 5}}
steps:
- {at: 1s, gang: {name: g, minMember: 2, members: 2, requests: {cpu: "1"}, runTime: 5s, spec: {hostNetwork: true}}}
- {at: 1s, mayBeRefused: true, patchStatus: {object: pod/g-0, merge: {status: {phase: Failed}}}}
- {at: 1s, apply: {apiVersion: v1, kind: Namespace, metadata: {name: "7"}}}
- {at: 2s, reconcile: {object: job/g, only: 0}}
- {at: 2s, restart: {}}
- {at: 2s, delayBinds: {pod: g-0, for: 5s}}
- {at: 3s, expect: {gang: g, state: BOUND, bound: 2, within: 5s, settled: true}}
)";
  const absl::StatusOr<Scenario> written = ParseScenario(yaml, "f.yaml");
  ASSERT_TRUE(written.ok()) << written.status();
  const std::string text = ScenarioText(*written);
  const absl::StatusOr<Scenario> read = ParseScenario(text, "f.yaml");
  ASSERT_TRUE(read.ok()) << read.status() << "\n" << text;
  EXPECT_EQ(ScenarioText(*read), text);
  for (const char* part : {"\"7\"", "\"hostNetwork\":true", "\"within\":\"5s\"", "2.5"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

}  // namespace
}  // namespace muster::simulation
