// Runs every scenario file of this folder in virtual time.

#include "simulation/scenario.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "simulation/world.h"

namespace muster::simulation {
namespace {

constexpr const char* kFolder = "tests/scenarios";

std::vector<std::string> ScenarioFiles() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  return files;
}

// Those that say something of both modes.
std::vector<std::string> ScenarioFilesOfBoth() {
  std::vector<std::string> files = ScenarioFiles();
  std::erase_if(files, [](const std::string& file) {
    const absl::StatusOr<Scenario> scenario = ReadScenario(file);
    return scenario.ok() && scenario->mode != Mode::kAny;
  });
  return files;
}

std::string NameOf(const testing::TestParamInfo<std::string>& info) {
  return std::filesystem::path(info.param).stem().string();
}

class ScenarioTest : public testing::TestWithParam<std::string> {};
class StandaloneScenarioTest : public testing::TestWithParam<std::string> {};

TEST_P(ScenarioTest, Holds) {
  absl::StatusOr<Scenario> scenario = ReadScenario(GetParam());
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  const absl::Status status = RunScenario(*scenario);
  EXPECT_TRUE(status.ok()) << scenario->name << "\n" << status.message();
}

TEST_P(StandaloneScenarioTest, Holds) {
  absl::StatusOr<Scenario> scenario = ReadScenario(GetParam());
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  const absl::Status status = RunScenario(*scenario, {.standalone = true});
  EXPECT_TRUE(status.ok()) << scenario->name << "\n" << status.message();
}

INSTANTIATE_TEST_SUITE_P(Muster, ScenarioTest, testing::ValuesIn(ScenarioFiles()), NameOf);
INSTANTIATE_TEST_SUITE_P(Muster, StandaloneScenarioTest, testing::ValuesIn(ScenarioFilesOfBoth()),
                         NameOf);

TEST(ScenarioForm, SaysFileLineAndFieldOfAMistake) {
  struct Case {
    const char* yaml;
    const char* message;
  };
  for (const Case& c : {
           Case{"name: x\nstepz: []\n", "f.yaml:2: scenario.stepz: unknown field"},
           Case{"steps: []\n", "scenario.name: missing"},
           Case{"name: x\nsteps:\n- at: soon\n  restart: {}\n", "f.yaml:3: steps.at"},
           Case{"name: x\nsteps:\n- at: 2s\n  restart: {}\n- at: 1s\n  restart: {}\n",
                "f.yaml:5: steps.at: before the step above"},
           Case{"name: x\nsteps:\n- at: 2s\n", "want exactly one of"},
           Case{"name: x\nsteps:\n- expect: {gang: g, state: HAPPY}\n", "unknown HAPPY"},
           Case{"name: x\nsteps:\n- gang: {name: g, members: many}\n", "gang.members: wrong type"},
           Case{"name: x\nfaults: {writes: {any: {lost: 200}}}\n",
                "f.yaml:2: writes.lost: want 0 to 100 percent"},
           Case{"name: x\nfaults: {writes: {any: {answer: [2s, 1s]}}}\n",
                "writes.answer: want a duration, or [low, high]"},
           Case{"name: x\nfaults: {watches: [pod]}\n", "faults.watches: want a map"},
           Case{"name: x\nfaults: {calls: {late: 1}}\n", "calls.late: unknown field"},
           Case{"name: [\n", "f.yaml:"},
       }) {
    absl::StatusOr<Scenario> scenario = ParseScenario(c.yaml, "f.yaml");
    ASSERT_FALSE(scenario.ok()) << c.yaml;
    EXPECT_NE(std::string(scenario.status().message()).find(c.message), std::string::npos)
        << scenario.status();
  }
}

}  // namespace
}  // namespace muster::simulation
