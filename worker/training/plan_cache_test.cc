#include "worker/training/plan_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/checkpoint/test_directory.h"
#include "worker/training/on_ranks.h"

namespace muster::worker {
namespace {

using testing::HasSubstr;
using testing::Pointee;

constexpr absl::Duration kTimeout = absl::Seconds(60);

TimedPlan PlanOf(int number) {
  return {.milliseconds = static_cast<float>(number) / 3,
          .algorithm = {std::numeric_limits<uint64_t>::max(), static_cast<uint64_t>(number)}};
}

class PlanCacheTest : public testing::Test {
 protected:
  std::string File(int number = 0) const {
    return absl::StrCat(directory_.path(), "/plans-", number);
  }
  const TestDirectory directory_;
};

TEST_F(PlanCacheTest, WhatWasKeptIsThereAtTheNextStartToTheBit) {
  PlanCache cache(File());
  EXPECT_EQ(cache.Find("gpu/a"), nullptr);
  cache.Keep("gpu/a", PlanOf(1));
  cache.Keep("gpu/b", PlanOf(2));
  cache.Keep("gpu/a", PlanOf(7));
  EXPECT_THAT(PlanCache(File()).Find("gpu/a"), Pointee(PlanOf(7)));
  EXPECT_THAT(PlanCache(File()).Find("gpu/b"), Pointee(PlanOf(2)));
}

TEST_F(PlanCacheTest, WithoutAFilePlansLastAsLongAsTheCache) {
  PlanCache cache("");
  cache.Keep("a", PlanOf(1));
  EXPECT_THAT(cache.Find("a"), Pointee(PlanOf(1)));
}

TEST_F(PlanCacheTest, LinesThatMakeNoSenseArePassedOver) {
  PlanCache(File()).Keep("a", PlanOf(1));
  std::ofstream(File(), std::ios::app) << "\nb 1.5 what\nc\n\xFF\n";
  PlanCache cache(File());
  EXPECT_EQ(cache.Find("b"), nullptr);
  cache.Keep("d", PlanOf(4));
  EXPECT_THAT(PlanCache(File()).Find("a"), Pointee(PlanOf(1)));
  EXPECT_THAT(PlanCache(File()).Find("d"), Pointee(PlanOf(4)));
}

TEST_F(PlanCacheTest, ProcessesThatShareAFileLeaveOneAnothersPlans) {
  PlanCache one(File());
  PlanCache other(File());
  one.Keep("a", PlanOf(1));
  other.Keep("b", PlanOf(2));
  EXPECT_THAT(PlanCache(File()).Find("a"), Pointee(PlanOf(1)));
  EXPECT_THAT(PlanCache(File()).Find("b"), Pointee(PlanOf(2)));
}

// Ranks 0 and 2 have one kind of GPU, 1 and 3 another one. Each has a file that says otherwise than
// the others' for "old", and would time "new" differently from start to start.
class PlansOfRanks : public PlanCacheTest {
 protected:
  static constexpr int kRanks = 4;

  // Each rank's plans for "old" and "new"; `files` says whose file each rank reads.
  std::vector<std::vector<TimedPlan>> Start(const std::vector<int>& files) {
    std::vector<std::vector<TimedPlan>> made(kRanks);
    for (const absl::Status& status : OnRanks(kRanks, [&](Communicator& ranks) {
           const int rank = ranks.rank();
           PlanCache cache(File(files[rank]));
           const std::string kind = rank % 2 == 0 ? "even" : "odd";
           return MakePlansAlike(
               ranks, kind, cache,
               [&] {
                 for (const std::string name : {"/old", "/new"}) {
                   if (cache.Find(kind + name) == nullptr) {
                     cache.Keep(kind + name, PlanOf(++timings_));
                   }
                   made[rank].push_back(*cache.Find(kind + name));
                 }
                 return absl::OkStatus();
               },
               kTimeout);
         })) {
      EXPECT_TRUE(status.ok()) << status;
    }
    return made;
  }

  std::atomic<int> timings_ = 0;
};

TEST_F(PlansOfRanks, AreThoseOfTheFirstRankOfItsKind) {
  for (int rank = 0; rank < kRanks; ++rank) {
    PlanCache(File(rank)).Keep(rank % 2 == 0 ? "even/old" : "odd/old", PlanOf(100 + rank));
  }
  const auto made = Start({0, 1, 2, 3});
  EXPECT_EQ(timings_, 2);
  EXPECT_EQ(made[0].front(), PlanOf(100));
  EXPECT_EQ(made[1].front(), PlanOf(101));
  EXPECT_EQ(made[2], made[0]);
  EXPECT_EQ(made[3], made[1]);
  EXPECT_NE(made[0], made[1]);
  // Whoever comes first at the next start.
  EXPECT_EQ(Start({2, 3, 0, 1}), made);
}

TEST_F(PlansOfRanks, AreTheSameInTheNextStartFromAFileThatAllShare) {
  const auto made = Start({0, 0, 0, 0});
  EXPECT_EQ(timings_, 4);
  EXPECT_EQ(made[2], made[0]);
  EXPECT_EQ(made[3], made[1]);
  EXPECT_EQ(Start({0, 0, 0, 0}), made);
  EXPECT_EQ(timings_, 4);
}

TEST_F(PlansOfRanks, FailForAllWhereTheyFailForOne) {
  for (const int failing : {0, 1, 2, 3}) {
    for (const absl::Status& status : OnRanks(kRanks, [&](Communicator& ranks) {
           PlanCache cache("");
           return MakePlansAlike(
               ranks, ranks.rank() % 2 == 0 ? "even" : "odd", cache,
               [&] {
                 return ranks.rank() == failing ? absl::NotFoundError("no plan") : absl::OkStatus();
               },
               kTimeout);
         })) {
      EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("rank ", failing, ": no")));
    }
  }
}

}  // namespace
}  // namespace muster::worker
