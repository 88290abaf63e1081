// The same decisions as Kueue v0.19.2's own packages, on random cases.
//
// By default the recorded cases of tests/kueue/recorded_cases.jsonl are replayed: each line is
// {"case": ..., "answer": ...}. With MUSTER_KUEUE_ORACLE=path of the oracle (tests/kueue) fresh
// ones are asked of it: MUSTER_CASES many, 20,000 with MUSTER_FULL=1, from seed MUSTER_SEED on. No
// difference may be of a kind that README.md doesn't list: a decision that is gets printed. With
// MUSTER_RECORD=file the first cases of that run are written there.
#include <iostream>
#include <string>
#include <string_view>

#include "gtest/gtest.h"
#include "quota/testing/case_generator.h"
#include "quota/testing/difference_tally.h"
#include "quota/testing/known_differences.h"
#include "quota/testing/oracle_process.h"
#include "quota/testing/oracle_tests.h"
#include "quota/testing/quota_case.h"

namespace muster::quota {
namespace {

using nlohmann::json;
using testing::NumberSetting;
using testing::Setting;

class Comparison {
 public:
  explicit Comparison(const std::string& binary) : oracle_(binary) {}

  void Compare(const json& quota_case) {
    ++cases_;
    json answer = oracle_.Ask(quota_case);
    ASSERT_EQ(answer.value("error", ""), "") << quota_case.dump();
    const json ours = testing::AnswerCase(quota_case).at("results");
    tally_.AddCompared(static_cast<int64_t>(ours.size()));
    for (size_t i = 0; i < ours.size(); ++i) {
      const json& theirs = answer.at("results").at(i);
      if (!testing::Agrees(ours[i], theirs)) {
        Explain(testing::Alone(quota_case, i), ours[i], theirs);
      }
    }
    for (json& result : answer.at("results")) result.erase("reasons");
    recorder_.Add({{"case", quota_case}, {"answer", answer}});
  }

  void Judge() const {
    std::cout << cases_ << " cases: ";
    tally_.Judge("decisions");
  }

 private:
  void Explain(const json& alone, const json& ours, const json& theirs) {
    const std::string_view why = testing::WhyDecidedOtherwise(
        alone, theirs, [&](const json& question) { return oracle_.Ask(question); });
    tally_.AddDifference(why);
    if (!why.empty() || tally_.unlisted() > NumberSetting("MUSTER_SHOWN", 10)) return;
    std::cout << "of case " << alone.dump() << "\n  ours: " << ours.dump()
              << "\n  Kueue: " << theirs.dump() << "\n";
  }

  testing::OracleProcess oracle_;
  testing::Recorder recorder_;
  int64_t cases_ = 0;
  testing::DifferenceTally tally_;
};

TEST(KueueDifferential, RecordedCasesAreDecidedAlike) {
  const auto replay = [](const json& recorded) {
    const json ours = testing::AnswerCase(recorded.at("case")).at("results");
    const json& theirs = recorded.at("answer").at("results");
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(testing::Agrees(ours[i], theirs.at(i)))
          << "case " << recorded["case"]["id"] << ": ours " << ours[i] << ", Kueue's " << theirs[i];
    }
  };
  EXPECT_GE(testing::ForEachRecord("tests/kueue/recorded_cases.jsonl", replay), 300);
}

void DecideFreshCases(const std::string& binary) {
  const int64_t count =
      NumberSetting("MUSTER_CASES", Setting("MUSTER_FULL") == "1" ? 20'000 : 1'000);
  const int64_t seed = NumberSetting("MUSTER_SEED", 1);
  Comparison comparison(binary);
  for (int64_t i = 0; i < count; ++i) {
    comparison.Compare(testing::MakeCase(static_cast<uint64_t>(seed + i)));
  }
  comparison.Judge();
}

[[maybe_unused]] const bool kRegistered = testing::RegisterOracleTest(
    "KueueDifferential", "FreshCasesAreDecidedAlike", __FILE__, __LINE__, DecideFreshCases);

}  // namespace
}  // namespace muster::quota
