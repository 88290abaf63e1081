// The same decisions as Kueue v0.19.2's own packages, on random cases.
//
// By default the recorded cases of tests/kueue/recorded_cases.jsonl are replayed: each line is
// {"case": ..., "answer": ...}. With MUSTER_KUEUE_ORACLE=path of the oracle (tests/kueue) fresh
// ones are asked of it: MUSTER_CASES many, 20,000 with MUSTER_FULL=1, from seed MUSTER_SEED on.
// With MUSTER_RECORD=file the first cases of that run are written there. What is known to differ is
// listed in quota/README.md.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "quota/testing/case_generator.h"
#include "quota/testing/oracle_process.h"
#include "quota/testing/quota_case.h"

namespace muster::quota {
namespace {

using nlohmann::json;

std::optional<std::string> Environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

int64_t Number(const char* name, int64_t otherwise) {
  const auto text = Environment(name);
  return text ? std::stoll(*text) : otherwise;
}

struct Tally {
  int64_t cases = 0;
  int64_t different = 0;

  void Add(const json& quota_case, const json& answer) {
    ++cases;
    const std::string difference = testing::Difference(testing::AnswerCase(quota_case), answer);
    if (difference.empty()) return;
    ++different;
    if (different > 20) return;
    std::cout << "case " << quota_case.at("id") << ": " << difference << "\n";
    if (Environment("MUSTER_VERBOSE")) std::cout << quota_case.dump() << "\n";
  }
  void Judge() const {
    std::cout << different << " of " << cases << " cases differ from Kueue\n";
    ::testing::Test::RecordProperty("cases", std::to_string(cases));
    EXPECT_LE(different * 200, cases) << "more than 0.5 %";
  }
};

TEST(KueueDifferential, RecordedCasesAreDecidedAlike) {
  std::ifstream file("tests/kueue/recorded_cases.jsonl");
  Tally tally;
  for (std::string line; std::getline(file, line);) {
    const json recorded = json::parse(line);
    tally.Add(recorded.at("case"), recorded.at("answer"));
  }
  EXPECT_GE(tally.cases, 300);
  tally.Judge();
}

void DecideFreshCases(const std::string& binary) {
  const int64_t count = Number("MUSTER_CASES", Environment("MUSTER_FULL") == "1" ? 20'000 : 1'000);
  const int64_t seed = Number("MUSTER_SEED", 1);
  std::ofstream record;
  if (const auto path = Environment("MUSTER_RECORD")) record.open(*path);
  testing::OracleProcess oracle(binary);
  Tally tally;
  for (int64_t i = 0; i < count; ++i) {
    const json quota_case = testing::MakeCase(static_cast<uint64_t>(seed + i));
    json answer = oracle.Ask(quota_case);
    tally.Add(quota_case, answer);
    if (!record.is_open()) continue;
    for (json& result : answer.at("results")) result.erase("reasons");
    record << json{{"case", quota_case}, {"answer", answer}}.dump() << "\n";
  }
  tally.Judge();
}

class FreshCases : public ::testing::Test {
 public:
  explicit FreshCases(std::string binary) : binary_(std::move(binary)) {}
  void TestBody() override { DecideFreshCases(binary_); }

 private:
  const std::string binary_;
};

// There is such a test only where there is an oracle to ask: `./run test --full` builds it.
[[maybe_unused]] const bool kRegistered = [] {
  const auto binary = Environment("MUSTER_KUEUE_ORACLE");
  if (!binary) return false;
  ::testing::RegisterTest(
      "KueueDifferential", "FreshCasesAreDecidedAlike", nullptr, nullptr, __FILE__, __LINE__,
      [binary = *binary]() -> ::testing::Test* { return new FreshCases(binary); });
  return true;
}();

}  // namespace
}  // namespace muster::quota
