// The predicates against recorded verdicts of kube-scheduler's own filter plugins (v1.37.2) on
// random clusters. tests/verdicts makes the recording, and compares on fresh ones.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/verdicts/verdicts.h"

namespace muster::cluster {
namespace {

constexpr const char* kRecording = "tests/verdicts/recorded.jsonl";

TEST(KubeSchedulerVerdicts, AreOurs) {
  std::ifstream file(kRecording);
  ASSERT_TRUE(file) << kRecording << " can't be read; tests run from the project's root";
  testing::VerdictComparison comparison;
  for (std::string line; std::getline(file, line);) {
    for (const std::string& difference : comparison.Add(nlohmann::json::parse(line))) {
      ADD_FAILURE() << difference;
    }
  }
  // A recording in which a plugin refuses nothing, or all of them everything, would prove nothing.
  EXPECT_GE(comparison.verdicts(), 800);
  EXPECT_GT(comparison.passes(), comparison.verdicts() / 50);
  for (const auto& [plugin, tally] : comparison.plugins()) {
    if (plugin == "NodeName") continue;  // a pod that names its node is bound
    EXPECT_GT(tally.refusals, tally.verdicts / 100) << plugin;
  }
}

}  // namespace
}  // namespace muster::cluster
