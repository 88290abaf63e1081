#include "worker/launch/pace.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

// A job of two ranks, looked at each second.
class PaceTest : public ::testing::Test {
 protected:
  void Pass(int seconds, const std::set<int>& active) {
    for (int i = 0; i < seconds; ++i) pace_.See(now_ += absl::Seconds(1), active, 2);
  }
  void Work(int seconds) { Pass(seconds, {0, 1}); }
  void Pause(int seconds) { Pass(seconds, {}); }

  absl::Duration now_ = absl::Hours(1);
  Pace pace_{{.least = absl::Seconds(40), .at_first = absl::Minutes(5)}};
};

TEST_F(PaceTest, AJobThatWorkedAndIsQuietStandsStill) {
  Work(10);
  Pause(39);
  EXPECT_FALSE(pace_.StandsStill());
  Pause(1);
  EXPECT_TRUE(pace_.StandsStill());
  EXPECT_EQ(pace_.quiet(), absl::Seconds(40));
}

TEST_F(PaceTest, ARankThatWorksIsWaitedForHoweverLong) {
  Work(10);
  Pass(3600, {1});
  EXPECT_FALSE(pace_.StandsStill());
}

TEST_F(PaceTest, AJobThatPausesForLongAgainMayDoSoAgain) {
  Work(10);
  Pause(35);
  Work(10);
  Pause(30);
  Work(10);
  EXPECT_EQ(pace_.longest_pause(), absl::Seconds(35));
  Pause(299);
  EXPECT_FALSE(pace_.StandsStill());
  Pause(1);
  EXPECT_TRUE(pace_.StandsStill());
}

// As it starts a job may be quiet for long, and never again.
TEST_F(PaceTest, APauseThatCameOnceSaysLess) {
  Work(1);
  Pause(15);
  Work(10);
  EXPECT_EQ(pace_.limit(), absl::Seconds(45));
  Pause(12);
  Work(10);
  EXPECT_EQ(pace_.limit(), absl::Seconds(120));
}

TEST_F(PaceTest, BeforeItHasWorkedThereIsMorePatience) {
  Pass(2, {0});
  Pause(100);
  EXPECT_FALSE(pace_.StandsStill());
  Pause(200);
  EXPECT_TRUE(pace_.StandsStill());
}

TEST_F(PaceTest, WhileTheLauncherItselfIsStoppedNoTimePasses) {
  Work(10);
  now_ += absl::Hours(1);
  Pause(30);
  EXPECT_FALSE(pace_.StandsStill());
}

TEST_F(PaceTest, NoPauseIsTooLongToBeNoticed) {
  Work(10);
  for (int i = 0; i < 2; ++i) {
    Pause(39);
    Work(1);
  }
  for (int i = 0; i < 2; ++i) {
    Pause(389);
    Work(1);
  }
  EXPECT_EQ(pace_.limit(), absl::Minutes(30));
}

}  // namespace
}  // namespace muster::worker
