// Seeded rounds in which answers and watches are late, lost, cut off and repeated (fault_rounds.h).
// Whatever happens: what invariants.h and settled.h say.
//
// A round that fails prints a scenario file, shrunk to what matters; `muster simulate` runs it.
// MUSTER_FAULTS_ROUNDS sets the number of rounds (20, with MUSTER_FULL=1 10,000),
// MUSTER_FAULTS_SEED the first seed, MUSTER_FAULTS_MAX how many failures end it (1).

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

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
constexpr int kRounds = 5, kAllRounds = 300;
#else
constexpr int kRounds = 20, kAllRounds = 10'000;
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
