// A job of eight ranks that stand still, and what each source says of them.
#include "worker/launch/standstill.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

const std::vector<Frame> kInAllReduce = {
    {"/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py", 1534, "all_reduce"},
    {"/work/train.py", 31, "step"}};
const std::vector<Frame> kInBarrier = {
    {"/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py", 3000, "barrier"},
    {"/work/train.py", 50, "save"}};
const std::vector<Frame> kLoading = {{"/work/train.py", 12, "load"},
                                     {"/work/train.py", 30, "step"}};

class StandstillTest : public ::testing::Test {
 protected:
  StandstillTest() {
    for (int rank = 0; rank < 8; ++rank) {
      ranks_.push_back({.rank = rank, .state = 'S', .wait_channel = "futex_wait_queue"});
    }
  }
  Standstill Told(const Standstill& ras = {}) const { return WhoIsBehind(ranks_, ras); }

  std::vector<RankPicture> ranks_;
};

TEST_F(StandstillTest, AStoppedRankIsNamedWhateverElseIsKnown) {
  ranks_[5].state = 'T';
  ranks_[2].stack = kLoading;
  EXPECT_EQ(Told({.rank = 1, .detail = ""}).rank, 5);
  EXPECT_EQ(Told().detail, "rank 5 was stopped by a signal (SIGSTOP) and doesn't run");
}

TEST_F(StandstillTest, ARankThatIsElsewhereInItsProgramIsNamedWithBothPlaces) {
  for (RankPicture& rank : ranks_) rank.stack = kInAllReduce;
  ranks_[3].stack = kLoading;
  const Standstill told = Told();
  EXPECT_EQ(told.rank, 3);
  EXPECT_EQ(told.detail,
            "rank 3 is at train.py:12 (load) while the 7 others wait at train.py:31 (step)");
}

TEST_F(StandstillTest, OfRanksThatWaitForDifferentThingsTheOddOneIsNamed) {
  for (RankPicture& rank : ranks_) rank.stack = kInAllReduce;
  ranks_[6].stack = kInBarrier;
  const Standstill told = Told();
  EXPECT_EQ(told.rank, 6);
  EXPECT_EQ(told.detail,
            "rank 6 is at train.py:50 (save) while the 7 others wait at train.py:31 (step)");
}

TEST_F(StandstillTest, OfTwoRanksTheOneThatDoesNotWaitForOthersIsNamed) {
  ranks_.resize(2);
  ranks_[0].stack = kInAllReduce;
  ranks_[1].stack = kLoading;
  EXPECT_EQ(Told().rank, 1);
}

TEST_F(StandstillTest, WhatNcclKnowsCountsMoreThanPlaces) {
  for (RankPicture& rank : ranks_) rank.stack = kInAllReduce;
  ranks_[3].stack = kLoading;
  EXPECT_EQ(Told({.rank = 4, .detail = "rank 4 has launched fewer"}).rank, 4);
}

TEST_F(StandstillTest, ARankInTheKernelsHandsWaitsForStorage) {
  ranks_[7].state = 'D';
  ranks_[7].wait_channel = "nfs_wait_bit_killable";
  EXPECT_EQ(Told().rank, 7);
  EXPECT_EQ(Told().detail,
            "rank 7 waits for a device or a volume in the kernel (nfs_wait_bit_killable)");
}

TEST_F(StandstillTest, AnIdleGpuAmongSpinningOnesIsTheOneBehind) {
  for (RankPicture& rank : ranks_) rank.gpu_use = 100;
  ranks_[2].gpu_use = 0;
  EXPECT_EQ(Told().rank, 2);
}

TEST_F(StandstillTest, OneThatTheKernelHoldsElsewhereIsNamedLast) {
  ranks_[1].wait_channel = "hrtimer_nanosleep";
  EXPECT_EQ(Told().rank, 1);
  EXPECT_EQ(Told().detail, "rank 1 is in hrtimer_nanosleep while others are in futex_wait_queue");
}

TEST_F(StandstillTest, TheOnlyRankOfAPodIsWhoItIs) {
  ranks_.resize(1);
  ranks_[0].stack = kLoading;
  EXPECT_EQ(Told().rank, 0);
  EXPECT_EQ(Told().detail, "rank 0 is at train.py:12 (load)");
}

TEST_F(StandstillTest, WhereAllAreAlikeNobodyIsNamed) {
  EXPECT_FALSE(Told().rank.has_value());
  EXPECT_EQ(Told().detail, "all ranks of this pod wait alike");
  for (RankPicture& rank : ranks_) rank.stack = kInAllReduce;
  EXPECT_EQ(Told().detail, "all ranks of this pod wait at train.py:31 (step)");
}

}  // namespace
}  // namespace muster::worker
