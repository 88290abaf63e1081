#include "extender/engine_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"

namespace muster::extender {
namespace {

EngineLoop::Options Options(size_t max_queued = 1000) {
  EngineLoop::Options options;
  options.max_queued = max_queued;
  options.clock = absl::Now;
  return options;
}

TEST(EngineLoop, TasksRunInOrderOnOneThreadEachFollowedByAStep) {
  std::atomic<int> steps = 0;
  EngineLoop loop(Options(),
                  [&](const coscheduling::StepOutput&, const coscheduling::Engine&) { ++steps; });
  loop.Start();
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  for (int i = 0; i < 100; ++i) {
    loop.Post([&, i](coscheduling::Engine&, absl::Time) {
      order.push_back(i);
      threads.push_back(std::this_thread::get_id());
    });
  }
  ASSERT_TRUE(loop.Run([](coscheduling::Engine&, absl::Time) {}));
  loop.Stop();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
  for (std::thread::id id : threads) EXPECT_EQ(id, threads[0]);
  EXPECT_NE(threads[0], std::this_thread::get_id());
  EXPECT_GE(steps, 1);
  EXPECT_EQ(loop.TakeStats().tasks, 101u);
}

TEST(EngineLoop, AStormOfTasksIsTakenTogether) {
  EngineLoop loop(Options(100'000),
                  [](const coscheduling::StepOutput&, const coscheduling::Engine&) {
                    absl::SleepFor(absl::Milliseconds(20));  // a step that takes its time
                  });
  loop.Start();
  for (int i = 0; i < 10'000; ++i) loop.Post([](coscheduling::Engine&, absl::Time) {});
  ASSERT_TRUE(loop.Run([](coscheduling::Engine&, absl::Time) {}));
  loop.Stop();
  const EngineLoopStats stats = loop.TakeStats();
  EXPECT_EQ(stats.tasks, 10'001u);
  EXPECT_LT(stats.steps, 100u);
}

// Here the thread doesn't exist yet; a processor that others have is the same to it.
TEST(EngineLoop, TimeInWhichAStepIsDueAndNobodyBeginsItIsBusy) {
  std::atomic<int64_t> seconds = 1000;
  EngineLoop::Options options = Options();
  options.clock = [&] { return absl::FromUnixSeconds(seconds); };
  EngineLoop loop(options, [&](const coscheduling::StepOutput&, const coscheduling::Engine&) {});
  seconds = 1100;
  loop.Post([](coscheduling::Engine&, absl::Time) {});
  seconds = 1105;
  loop.Post([&](coscheduling::Engine&, absl::Time) { seconds = 1107; });
  loop.Start();
  loop.Stop();
  EXPECT_EQ(loop.TakeStats().busy_time, absl::Seconds(7));
}

TEST(EngineLoop, AStepIsBusyWhileItGoesOnAndCountsOnce) {
  std::atomic<int64_t> seconds = 1000;
  std::atomic<bool> begun = false, go = false;
  EngineLoop::Options options = Options();
  options.clock = [&] { return absl::FromUnixSeconds(seconds); };
  EngineLoop loop(options, [&](const coscheduling::StepOutput&, const coscheduling::Engine&) {});
  loop.Post([&](coscheduling::Engine&, absl::Time) {
    begun = true;
    while (!go) absl::SleepFor(absl::Milliseconds(1));
  });
  seconds = 1003;  // nobody has begun it
  EXPECT_EQ(loop.TakeStats().busy_time, absl::Seconds(3));
  loop.Start();
  while (!begun) absl::SleepFor(absl::Milliseconds(1));
  seconds = 1060;
  loop.Post([](coscheduling::Engine&, absl::Time) {});  // due once this step has ended
  EXPECT_EQ(loop.TakeStats().busy_time, absl::Seconds(60));
  seconds = 1100;
  EXPECT_EQ(loop.TakeStats().busy_time, absl::Seconds(100));
  go = true;
  loop.Stop();
  EXPECT_EQ(loop.TakeStats().busy_time, absl::Seconds(100));
  seconds = 1200;
  EXPECT_EQ(loop.TakeStats().busy_time, absl::Seconds(100));
}

// An engine whose thread is held in a task until the test lets it go.
class HeldLoop {
 public:
  explicit HeldLoop(size_t max_queued)
      : loop(Options(max_queued),
             [](const coscheduling::StepOutput&, const coscheduling::Engine&) {}) {
    loop.Start();
    loop.Post([this](coscheduling::Engine&, absl::Time) {
      begun_ = true;
      while (!go_) absl::SleepFor(absl::Milliseconds(1));
    });
    while (!begun_) absl::SleepFor(absl::Milliseconds(1));
  }
  void LetGo() { go_ = true; }

 private:
  std::atomic<bool> begun_ = false, go_ = false;

 public:
  EngineLoop loop;
};

TEST(EngineLoop, AFullQueueHoldsNobodyBackWhoPosts) {
  HeldLoop held(4);
  std::atomic<int> ran = 0;
  for (int i = 0; i < 50; ++i) held.loop.Post([&](coscheduling::Engine&, absl::Time) { ++ran; });
  EXPECT_EQ(held.loop.TakeStats().queued, 50u);
  held.LetGo();
  held.loop.Stop();
  EXPECT_EQ(ran, 50);
}

TEST(EngineLoop, WhoAsksForRoomWaitsForAMomentWhileThereIsNone) {
  HeldLoop held(4);
  const auto wait = [&] {
    const absl::Time started = absl::Now();
    held.loop.AwaitRoom();
    return absl::Now() - started;
  };
  for (int i = 0; i < 3; ++i) held.loop.Post([](coscheduling::Engine&, absl::Time) {});
  EXPECT_LT(wait(), absl::Milliseconds(50));
  held.loop.Post([](coscheduling::Engine&, absl::Time) {});
  EXPECT_GE(wait(), absl::Milliseconds(90));
  held.LetGo();
  ASSERT_TRUE(held.loop.Run([&](coscheduling::Engine&, absl::Time) { held.loop.AwaitRoom(); }));
  EXPECT_LT(wait(), absl::Milliseconds(50));
}

TEST(EngineLoop, OfOneKeyOnlyTheNewestWaitsAndInItsOwnPlace) {
  HeldLoop held(1000);
  std::vector<std::string> ran;
  const auto post = [&](const char* key, const std::string& text) {
    held.loop.PostLatest(key,
                         [&, text](coscheduling::Engine&, absl::Time) { ran.push_back(text); });
  };
  post("a", "a1");
  post("b", "b1");
  held.loop.Post([&](coscheduling::Engine&, absl::Time) { ran.emplace_back("answer"); });
  post("a", "a2");
  EXPECT_EQ(held.loop.TakeStats().queued, 3u);
  held.LetGo();
  held.loop.Stop();
  EXPECT_EQ(ran, (std::vector<std::string>{"b1", "answer", "a2"}));
  EXPECT_EQ(held.loop.TakeStats().superseded, 1u);
}

TEST(EngineLoop, WhateverIsObservedOfAFewObjectsTheQueueStaysSmall) {
  HeldLoop held(1000);
  std::vector<int> last(10, -1);
  for (int i = 0; i < 100'000; ++i) {
    held.loop.PostLatest(std::to_string(i % 10),
                         [&last, i](coscheduling::Engine&, absl::Time) { last[i % 10] = i; });
  }
  EXPECT_EQ(held.loop.TakeStats().queued, 10u);
  held.LetGo();
  held.loop.Stop();
  for (int k = 0; k < 10; ++k) EXPECT_EQ(last[k], 99'990 + k);
}

TEST(EngineLoop, AfterItsEndTasksAreDroppedAndRunSaysSo) {
  EngineLoop loop(Options(), [](const coscheduling::StepOutput&, const coscheduling::Engine&) {});
  loop.Start();
  std::atomic<int> ran = 0;
  for (int i = 0; i < 20; ++i) loop.Post([&](coscheduling::Engine&, absl::Time) { ++ran; });
  loop.Stop();
  EXPECT_EQ(ran, 20);  // what was there before is still done
  loop.Post([&](coscheduling::Engine&, absl::Time) { ++ran; });
  EXPECT_FALSE(loop.Run([&](coscheduling::Engine&, absl::Time) { ++ran; }));
  EXPECT_EQ(ran, 20);
  loop.Stop();
}

}  // namespace
}  // namespace muster::extender
