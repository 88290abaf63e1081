// Whole histories go as they go by Kueue v0.19.2's own scheduler, cache, queue manager and
// controllers.
//
// By default the recorded histories of tests/kueue/recorded_histories.jsonl are replayed: each line
// is {"history": ..., "course": ...}. With MUSTER_KUEUE_ORACLE=path of the oracle (tests/kueue)
// fresh ones are asked of it: MUSTER_HISTORIES many from seed MUSTER_SEED on, for at most
// MUSTER_SECONDS. No difference may be of a kind that README.md doesn't list: a history that has
// one is made as short as it can be and printed. With MUSTER_RECORD=file the first histories of
// that run are written there.
#include <chrono>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "quota/testing/case_generator.h"
#include "quota/testing/difference_tally.h"
#include "quota/testing/known_differences.h"
#include "quota/testing/oracle_process.h"
#include "quota/testing/oracle_tests.h"
#include "quota/testing/quota_history.h"

namespace muster::quota {
namespace {

using nlohmann::json;
using testing::FirstDifference;
using testing::FollowHistory;
using testing::NumberSetting;
using testing::Until;
using testing::Woken;

void Print(const json& history, const json& theirs) {
  const std::vector<json> our_states = testing::StatesOf(FollowHistory(history));
  const std::vector<json> their_states = testing::StatesOf(theirs);
  std::cout << "fairSharing: " << history.at("fairSharing") << "\n";
  json before = json::object();
  for (size_t i = 0; i < history.at("events").size(); ++i) {
    std::cout << "  " << history["events"][i].dump() << "\n";
    if (i >= their_states.size()) {
      std::cout << "    Kueue: " << theirs.value("error", "") << "\n";
      return;
    }
    const json& now = our_states[i];
    if (now != before) std::cout << "    ours: " << now.dump() << "\n";
    if (now != their_states[i]) {
      std::cout << "    DIFFERENT: " << testing::Changes(now, their_states[i]).dump() << "\n";
      return;
    }
    before = now;
  }
}

class Comparison {
 public:
  explicit Comparison(const std::string& binary) : oracle_(binary, "histories") {}

  void Compare(uint64_t seed, json history) {
    ++histories_;
    for (bool is_first = true;; is_first = false) {
      const json ours = FollowHistory(history);
      json theirs;
      if (GoesAlike(history, ours, theirs)) {
        tally_.AddCompared(static_cast<int64_t>(history.at("events").size()));
        if (is_first) recorder_.Add({{"history", history}, {"course", theirs}});
        return;
      }
      const int64_t event = FirstDifference(ours, theirs);
      if (const std::string_view known = Sleep(history, event); !known.empty()) {
        tally_.AddDifference(known);
        history = Woken(std::move(history), event);
        continue;
      }
      tally_.AddCompared(event + 1);
      const std::string_view known = Known(history, ours, theirs);
      tally_.AddDifference(known);
      if (known.empty()) Show(seed, event, history);
      return;
    }
  }

  void Judge() const {
    std::cout << histories_ << " histories: ";
    tally_.Judge("events");
  }

 private:
  // Kueue takes whichever it meets first in a walk over a map: it may go several ways.
  bool GoesAlike(const json& history, const json& ours, json& theirs) {
    for (int attempt = 0; attempt < (history.at("fairSharing") ? 16 : 4); ++attempt) {
      theirs = oracle_.Ask(history);
      if (FirstDifference(ours, theirs) < 0) return true;
    }
    return false;
  }
  bool GoesAlike(const json& history) {
    json theirs;
    return GoesAlike(history, FollowHistory(history), theirs);
  }
  // Why one of the two has to be woken by the event to come to where the other is; empty if that
  // isn't why they differ.
  std::string_view Sleep(const json& history, int64_t event) {
    const json asleep = Until(history, event);
    const json woken = Woken(asleep, event);
    if (woken == asleep || !GoesAlike(woken)) return "";
    if (testing::StatesOf(FollowHistory(woken)).back() ==
        testing::StatesOf(FollowHistory(asleep)).back()) {
      return testing::WhyAsleep(history, event);
    }
    return testing::FreesNothing(history, event) ? "what frees nothing wakes it" : "";
  }
  // But for what sleeps in one of the two.
  bool GoesAlikeAwake(json history) {
    while (true) {
      const json ours = FollowHistory(history);
      json theirs;
      if (GoesAlike(history, ours, theirs)) return true;
      const int64_t event = FirstDifference(ours, theirs);
      if (Sleep(history, event).empty()) return false;
      history = Woken(std::move(history), event);
    }
  }
  std::string_view Known(const json& history, const json& ours, const json& theirs) {
    const int64_t event = FirstDifference(ours, theirs);
    return testing::KnownDifference(testing::ForkAfter(history, event, ours, theirs),
                                    [&](const json& other) { return GoesAlikeAwake(other); });
  }
  void Show(uint64_t seed, int64_t event, const json& history) {
    std::cout << "history " << seed << " goes another way after event " << event << "\n";
    if (tally_.unlisted() > NumberSetting("MUSTER_SHOWN", 10)) return;
    const json shortest = testing::Shrink(history, [&](const json& part) {
      json theirs;
      const json ours = FollowHistory(part);
      if (GoesAlike(part, ours, theirs)) return false;
      const int64_t at = FirstDifference(ours, theirs);
      return Sleep(part, at).empty() && Known(part, ours, theirs).empty();
    });
    Print(shortest, oracle_.Ask(shortest));
  }

  testing::OracleProcess oracle_;
  testing::Recorder recorder_;
  int64_t histories_ = 0;
  testing::DifferenceTally tally_;
};

TEST(KueueHistories, RecordedOnesGoAlike) {
  const auto replay = [](const json& recorded) {
    const json& history = recorded.at("history");
    const json& course = recorded.at("course");
    const int64_t event = FirstDifference(FollowHistory(history), course);
    if (event < 0) return;
    Print(history, course);
    ADD_FAILURE() << "a history goes another way after event " << event;
  };
  EXPECT_GE(testing::ForEachRecord("tests/kueue/recorded_histories.jsonl", replay), 20);
}

void FollowFreshHistories(const std::string& binary) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(NumberSetting("MUSTER_SECONDS", 120));
  const int64_t count = NumberSetting("MUSTER_HISTORIES", 200);
  const int64_t seed = NumberSetting("MUSTER_SEED", 1);
  Comparison comparison(binary);
  for (int64_t i = 0; i < count && Clock::now() < end; ++i) {
    const auto each = static_cast<uint64_t>(seed + i);
    comparison.Compare(each, testing::MakeHistory(each));
  }
  comparison.Judge();
}

[[maybe_unused]] const bool kRegistered = testing::RegisterOracleTest(
    "KueueHistories", "FreshOnesGoAlike", __FILE__, __LINE__, FollowFreshHistories);

}  // namespace
}  // namespace muster::quota
