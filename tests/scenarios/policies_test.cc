// Muster and what others run today (Kueue with the coscheduling plugin) on the same drawn gangs and
// faults: what each buys and doesn't use, and how many gangs it brings to their end. The figures
// are printed, by cause; mixes/README.md says what they come to and why.
//
// MUSTER_POLICY_SEEDS sets how many seeds are run (3; with MUSTER_FULL=1 of all gangs of a mix).

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "simulation/comparison.h"
#include "simulation/scenario.h"
#include "simulation/simulate.h"
#include "tests/full.h"

namespace muster::simulation {
namespace {

#ifdef MUSTER_SANITIZED
constexpr int kFewGangs = 5;
#else
constexpr int kFewGangs = 30;
#endif

struct Mix {
  const char* file;
  // Until then every gang can have run: the first few, and all.
  absl::Duration few_until, all_until;
  // What Muster may let idle for gangs until they start or give up, and what it may waste in all;
  // in percent of its peers.
  int64_t most_idle, most_wasted;
  // How much of the former on nodes that have come up, for the first few and for all.
  int64_t few_idle_on_usable, all_idle_on_usable;
  // How many gangs fewer it may complete within their users' patience, of the first few and of all:
  // who gives nodes back may find none when it asks again.
  int few_fewer, all_fewer;
  bool all_can_start;      // and so must complete
  bool withdraws = false;  // engine.withdrawNodes

  std::string Name() const { return std::string(file) + (withdraws ? "_withdrawing_nodes" : ""); }
  friend std::ostream& operator<<(std::ostream& out, const Mix& mix) { return out << mix.Name(); }
};

int Seeds() {
  const char* text = std::getenv("MUSTER_POLICY_SEEDS");
  return text == nullptr ? 3 : std::atoi(text);
}

GpuTime IdleOnUsable(const GpuAccount& bought) {
  return bought.Of(Idle::kWaiting) + bought.Of(Idle::kInVain);
}

class Policies : public ::testing::TestWithParam<Mix> {};

TEST_P(Policies, GangsCompletedAndWasteAreBoundedByThoseOfThePeers) {
  const Mix& mix = GetParam();
  absl::StatusOr<Scenario> scenario =
      ReadScenario("tests/scenarios/mixes/" + std::string(mix.file) + ".yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  scenario->options.withdraw_nodes = mix.withdraws;
  const bool all = muster::testing::IsFull();
  if (!all) scenario->mix->gangs = kFewGangs;
  ASSERT_GT(Seeds(), 0);
  for (int seed = 1; seed <= Seeds(); ++seed) {
    std::vector<Outcome> outcomes;
    for (const Policy policy : {Policy::kMuster, Policy::kCoscheduling}) {
      outcomes.push_back(Simulate(*scenario, seed, all ? mix.all_until : mix.few_until, policy));
      ASSERT_TRUE(outcomes.back().failures.empty()) << outcomes.back().failures.front();
      ASSERT_FALSE(outcomes.back().refused) << *outcomes.back().refused;
    }
    std::cout << mix << ", " << scenario->mix->gangs << " gangs, seed " << seed << "\n"
              << Comparison(outcomes) << std::endl;
    const Figures muster = FiguresOf(outcomes[0]);
    const Figures peers = FiguresOf(outcomes[1]);
    EXPECT_EQ(muster.gangs, scenario->mix->gangs);
    EXPECT_GE(muster.completed + (all ? mix.all_fewer : mix.few_fewer), peers.completed)
        << "seed " << seed;
    if (mix.all_can_start) EXPECT_EQ(muster.completed, muster.gangs) << "seed " << seed;
    EXPECT_LE(muster.bought.BeforeStart() * 100, peers.bought.BeforeStart() * mix.most_idle)
        << "seed " << seed;
    EXPECT_LE(IdleOnUsable(muster.bought) * 100,
              IdleOnUsable(peers.bought) * (all ? mix.all_idle_on_usable : mix.few_idle_on_usable))
        << "seed " << seed;
    EXPECT_LE(muster.bought.Wasted() * 100, peers.bought.Wasted() * mix.most_wasted)
        << "seed " << seed;
  }
}

const std::vector<Mix>& Mixes() {
  static const auto* mixes = new std::vector<Mix>{
      {"two_hundred_gangs", absl::Hours(4), absl::Hours(9), 130, 130, 140, 140, 0, 0, true},
#ifndef MUSTER_SANITIZED
      // Few of its gangs say nothing: most of what is wasted is wasted on few.
      {"evenings", absl::Hours(7), absl::Hours(30), 90, 105, 80, 50, 1, 4, false},
      {"evenings", absl::Hours(7), absl::Hours(30), 78, 82, 50, 40, 1, 3, false, true},
#endif
  };
  return *mixes;
}

INSTANTIATE_TEST_SUITE_P(Mixes, Policies, ::testing::ValuesIn(Mixes()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace muster::simulation
