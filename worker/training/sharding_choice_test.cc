#include "worker/training/sharding_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "worker/training/on_ranks.h"

namespace muster::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

std::vector<ShardingNeed> Needs(int64_t ddp, int64_t zero1, int64_t zero3) {
  return {{Sharding::kDataParallel, ddp * kGiB, "D"},
          {Sharding::kZero1, zero1 * kGiB, "E"},
          {Sharding::kZero3, zero3 * kGiB, "F"}};
}

DeviceRoom Room(int64_t free) { return {.free_bytes = free * kGiB, .total_bytes = 80 * kGiB}; }

TEST(ChooseSharding, TakesTheFirstThatFits) {
  const std::vector<ShardingNeed> needs = Needs(70, 50, 30);
  for (int64_t free = 0; free <= 80; ++free) {
    SCOPED_TRACE(free);
    const absl::StatusOr<ShardingChoice> choice = ChooseSharding(needs, Room(free));
    const auto first = std::find_if(needs.begin(), needs.end(), [&](const ShardingNeed& need) {
      return need.bytes <= free * kGiB;
    });
    ASSERT_EQ(choice.ok(), first != needs.end());
    if (choice.ok()) {
      EXPECT_EQ(choice->sharding, first->sharding);
    }
  }
}

TEST(ChooseSharding, SaysWhyWithTheNumbers) {
  EXPECT_EQ(ChooseSharding(Needs(70, 50, 30), Room(75))->reason,
            "needs 70.00 GiB of a GPU's 80.00");
  EXPECT_EQ(ChooseSharding(Needs(70, 50, 30), Room(69))->reason,
            "needs 50.00 GiB of a GPU's 80.00; ddp needs 70.00");
  EXPECT_EQ(ChooseSharding(Needs(70, 50, 30), Room(30))->reason,
            "needs 30.00 GiB of a GPU's 80.00; zero1 needs 50.00");
}

TEST(ChooseSharding, RefusesWithEveryPlanWhatFitsInNoWay) {
  const absl::Status status = ChooseSharding(Needs(70, 50, 30), Room(29)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ddp D; zero1 E; zero3 F"),
                    HasSubstr("of the GPU's 80.00 GiB 29.00 are free"), HasSubstr("micro-batch")));
}

TEST(ChooseSharding, RanksWithDifferentRoomAgreeOnWhatFitsAll) {
  const std::vector<ShardingNeed> needs = Needs(70, 50, 30);
  for (const int64_t least : {75, 60, 40}) {
    std::vector<Sharding> chosen(3);
    for (const absl::Status& status : OnRanks(3, [&](Communicator& ranks) {
           const absl::StatusOr<ShardingChoice> choice = ChooseSharding(
               needs, Room(ranks.rank() == 1 ? least : 79), ranks, absl::Seconds(60));
           if (choice.ok()) chosen[ranks.rank()] = choice->sharding;
           return choice.status();
         })) {
      ASSERT_TRUE(status.ok()) << status;
    }
    const Sharding expected = ChooseSharding(needs, Room(least))->sharding;
    EXPECT_THAT(chosen, testing::Each(expected));
  }
}

TEST(ChooseSharding, ARankThatNothingFitsOnIsNamedByAll) {
  for (const absl::Status& status : OnRanks(3, [&](Communicator& ranks) {
         return ChooseSharding(Needs(70, 50, 30), Room(ranks.rank() == 2 ? 20 : 79), ranks,
                               absl::Seconds(60))
             .status();
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("rank 2: "), HasSubstr("20.00 are free")));
  }
}

}  // namespace
}  // namespace muster::worker
