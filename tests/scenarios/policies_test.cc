// Muster and what others run today (Kueue with the coscheduling plugin) on the same drawn gangs and
// faults: what each buys and doesn't use, and how many gangs it brings to their end. The figures
// are printed; mixes/README.md says what they come to and why.
//
// MUSTER_POLICY_SEEDS sets how many seeds are run (1, with MUSTER_FULL=1 3, of all 200 gangs).

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "extender/simulation/comparison.h"
#include "extender/simulation/scenario.h"
#include "extender/simulation/simulate.h"
#include "tests/full.h"

namespace muster::simulation {
namespace {

constexpr const char* kMix = "tests/scenarios/mixes/two_hundred_gangs.yaml";
#ifdef MUSTER_SANITIZED
constexpr int kFewGangs = 5;
#else
constexpr int kFewGangs = 30;
#endif
// Until then every gang can have run.
constexpr absl::Duration kFewUntil = absl::Hours(4);
constexpr absl::Duration kAllUntil = absl::Hours(9);

// What Muster may waste, in percent of its peers' waste. The aim is 50.
constexpr int64_t kMostOfPeers = 130;

int Seeds() {
  const char* text = std::getenv("MUSTER_POLICY_SEEDS");
  if (text != nullptr) return std::atoi(text);
  return muster::testing::IsFull() ? 3 : 1;
}

TEST(Policies, MusterCompletesAsManyGangsAsItsPeersAndItsWasteIsBounded) {
  absl::StatusOr<Scenario> scenario = ReadScenario(kMix);
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  if (!muster::testing::IsFull()) scenario->mix->gangs = kFewGangs;
  const absl::Duration until = muster::testing::IsFull() ? kAllUntil : kFewUntil;
  ASSERT_GT(Seeds(), 0);
  for (int seed = 1; seed <= Seeds(); ++seed) {
    std::vector<Outcome> outcomes;
    for (const Policy policy : {Policy::kMuster, Policy::kCoscheduling}) {
      outcomes.push_back(Simulate(*scenario, seed, until, policy));
      ASSERT_TRUE(outcomes.back().failures.empty()) << outcomes.back().failures.front();
      ASSERT_FALSE(outcomes.back().refused) << *outcomes.back().refused;
    }
    std::cout << scenario->mix->gangs << " gangs, seed " << seed << "\n"
              << Comparison(outcomes) << std::endl;
    const Figures muster = FiguresOf(outcomes[0]);
    const Figures peers = FiguresOf(outcomes[1]);
    EXPECT_EQ(muster.gangs, scenario->mix->gangs);
    EXPECT_GE(muster.completed, peers.completed) << "seed " << seed;
    EXPECT_EQ(muster.completed, muster.gangs) << "seed " << seed;
    EXPECT_LE(muster.wasted * 100, peers.wasted * kMostOfPeers) << "seed " << seed;
  }
}

}  // namespace
}  // namespace muster::simulation
