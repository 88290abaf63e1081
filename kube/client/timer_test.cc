#include "kube/client/timer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

#include "absl/time/clock.h"
#include "kube/client/backoff.h"
#include "kube/client/manual_timer.h"

namespace muster::kube {
namespace {

using ::testing::ElementsAre;

TEST(ThreadTimer, RunsInOrderOfTime) {
  std::vector<int> order;
  std::promise<void> last;
  ThreadTimer timer;
  timer.After(absl::Milliseconds(60), [&] {
    order.push_back(3);
    last.set_value();
  });
  timer.After(absl::Milliseconds(10), [&] { order.push_back(1); });
  timer.After(absl::Milliseconds(30), [&] { order.push_back(2); });
  const absl::Time start = timer.Now();
  last.get_future().wait();
  EXPECT_THAT(order, ElementsAre(1, 2, 3));
  EXPECT_GE(timer.Now() - start, absl::Milliseconds(50));
  EXPECT_LT(absl::AbsDuration(timer.Now() - absl::Now()), absl::Seconds(1));
}

TEST(ThreadTimer, CancelKeepsACallbackFromRunningOrWaitsForIt) {
  ThreadTimer timer;
  const Timer::Id never = timer.After(absl::Milliseconds(50), [] { ADD_FAILURE(); });
  timer.Cancel(never);
  std::promise<void> started;
  std::atomic<bool> finished = false;
  const Timer::Id running = timer.After(absl::ZeroDuration(), [&] {
    started.set_value();
    absl::SleepFor(absl::Milliseconds(50));
    finished = true;
  });
  started.get_future().wait();
  timer.Cancel(running);
  EXPECT_TRUE(finished);
  timer.Cancel(running);
  timer.Cancel(0);
  absl::SleepFor(absl::Milliseconds(60));
}

TEST(ThreadTimer, StopWaitsForTheRunningCallbackAndNoOtherRuns) {
  ThreadTimer timer;
  std::promise<void> started;
  std::atomic<bool> finished = false;
  timer.After(absl::ZeroDuration(), [&] {
    started.set_value();
    absl::SleepFor(absl::Milliseconds(50));
    timer.After(absl::ZeroDuration(), [] { ADD_FAILURE(); });
    finished = true;
  });
  const Timer::Id set = timer.After(absl::Milliseconds(60), [] { ADD_FAILURE(); });
  started.get_future().wait();
  timer.Stop();
  EXPECT_TRUE(finished);
  timer.After(absl::ZeroDuration(), [] { ADD_FAILURE(); });
  timer.Cancel(set);
  timer.Stop();
  absl::SleepFor(absl::Milliseconds(80));
}

TEST(ThreadTimer, ACallbackMaySetAndCancel) {
  ThreadTimer timer;
  std::promise<void> done;
  std::promise<Timer::Id> self;
  const Timer::Id other = timer.After(absl::Seconds(60), [] { ADD_FAILURE(); });
  self.set_value(timer.After(absl::Milliseconds(20), [&] {
    timer.Cancel(other);
    timer.Cancel(self.get_future().get());
    timer.After(absl::ZeroDuration(), [&] { done.set_value(); });
  }));
  done.get_future().wait();
}

TEST(ManualTimer, RunsWhatFallsDueAtItsOwnTime) {
  const absl::Time start = absl::FromUnixSeconds(100);
  ManualTimer timer(start);
  std::vector<std::pair<int, absl::Duration>> ran;
  timer.After(absl::Seconds(2), [&] { ran.emplace_back(2, timer.Now() - start); });
  timer.After(absl::Seconds(1), [&] {
    ran.emplace_back(1, timer.Now() - start);
    timer.After(absl::Seconds(3), [&] { ran.emplace_back(4, timer.Now() - start); });
  });
  const Timer::Id never = timer.After(absl::Seconds(1), [] { ADD_FAILURE(); });
  timer.Cancel(never);
  EXPECT_EQ(timer.NextAlarm(), start + absl::Seconds(1));
  timer.Advance(absl::Seconds(5));
  EXPECT_THAT(ran, ElementsAre(std::pair(1, absl::Seconds(1)), std::pair(2, absl::Seconds(2)),
                               std::pair(4, absl::Seconds(4))));
  EXPECT_EQ(timer.Now(), start + absl::Seconds(5));
  EXPECT_EQ(timer.NextAlarm(), absl::InfiniteFuture());
}

TEST(Backoff, GrowsToItsLimitWithJitterAndStartsAnew) {
  BackoffOptions options;
  options.first = absl::Seconds(1);
  options.longest = absl::Seconds(10);
  options.factor = 2;
  Backoff backoff(options, 42);
  for (const int whole : {1, 2, 4, 8, 10, 10}) {
    const absl::Duration pause = backoff.Next();
    EXPECT_GE(pause, absl::Seconds(whole) / 2);
    EXPECT_LE(pause, absl::Seconds(whole));
  }
  backoff.Reset();
  EXPECT_LE(backoff.Next(), absl::Seconds(1));
}

}  // namespace
}  // namespace muster::kube
