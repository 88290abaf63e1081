// The same decisions as Kueue v0.19.2's own packages, on random cases.
//
// By default the recorded cases of tests/kueue/recorded_cases.jsonl are replayed: each line is
// {"case": ..., "answer": ...}. With MUSTER_KUEUE_ORACLE=path of the oracle (tests/kueue) fresh
// ones are asked of it: MUSTER_CASES many, 20,000 with MUSTER_FULL=1, from seed MUSTER_SEED on.
// With MUSTER_RECORD=file the first cases of that run are written there. What is known to differ is
// listed in quota/README.md.
#include <iostream>
#include <string>

#include "gtest/gtest.h"
#include "quota/testing/case_generator.h"
#include "quota/testing/oracle_process.h"
#include "quota/testing/oracle_tests.h"
#include "quota/testing/quota_case.h"

namespace muster::quota {
namespace {

using nlohmann::json;
using testing::NumberSetting;
using testing::Setting;

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
    if (Setting("MUSTER_VERBOSE")) std::cout << quota_case.dump() << "\n";
  }
  void Judge() const {
    std::cout << different << " of " << cases << " cases differ from Kueue\n";
    ::testing::Test::RecordProperty("cases", std::to_string(cases));
    EXPECT_LE(different * 200, cases) << "more than 0.5 %";
  }
};

TEST(KueueDifferential, RecordedCasesAreDecidedAlike) {
  Tally tally;
  testing::ForEachRecord("tests/kueue/recorded_cases.jsonl", [&](const json& recorded) {
    tally.Add(recorded.at("case"), recorded.at("answer"));
  });
  EXPECT_GE(tally.cases, 300);
  tally.Judge();
}

void DecideFreshCases(const std::string& binary) {
  const int64_t count =
      NumberSetting("MUSTER_CASES", Setting("MUSTER_FULL") == "1" ? 20'000 : 1'000);
  const int64_t seed = NumberSetting("MUSTER_SEED", 1);
  testing::Recorder recorder;
  testing::OracleProcess oracle(binary);
  Tally tally;
  for (int64_t i = 0; i < count; ++i) {
    const json quota_case = testing::MakeCase(static_cast<uint64_t>(seed + i));
    json answer = oracle.Ask(quota_case);
    tally.Add(quota_case, answer);
    for (json& result : answer.at("results")) result.erase("reasons");
    recorder.Add({{"case", quota_case}, {"answer", answer}});
  }
  tally.Judge();
}

[[maybe_unused]] const bool kRegistered = testing::RegisterOracleTest(
    "KueueDifferential", "FreshCasesAreDecidedAlike", __FILE__, __LINE__, DecideFreshCases);

}  // namespace
}  // namespace muster::quota
