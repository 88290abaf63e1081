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

TEST(EngineLoop, AFullQueueHoldsItsCallersBack) {
  std::atomic<bool> begun = false, go = false;
  EngineLoop loop(Options(4), [](const coscheduling::StepOutput&, const coscheduling::Engine&) {});
  loop.Start();
  loop.Post([&](coscheduling::Engine&, absl::Time) {
    begun = true;
    while (!go) absl::SleepFor(absl::Milliseconds(1));
  });
  while (!begun) absl::SleepFor(absl::Milliseconds(1));
  std::atomic<int> posted = 0;
  std::thread producer([&] {
    for (int i = 0; i < 50; ++i) {
      loop.Post([](coscheduling::Engine&, absl::Time) {});
      ++posted;
    }
  });
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_EQ(posted, 4);
  go = true;
  producer.join();
  EXPECT_EQ(posted, 50);
}

TEST(EngineLoop, TasksMayPostFromTheEnginesOwnThreadThoughTheQueueIsFull) {
  EngineLoop loop(Options(1), [](const coscheduling::StepOutput&, const coscheduling::Engine&) {});
  std::atomic<int> ran = 0;
  loop.Start();
  ASSERT_TRUE(loop.Run([&](coscheduling::Engine&, absl::Time) {
    for (int i = 0; i < 10; ++i) loop.Post([&](coscheduling::Engine&, absl::Time) { ++ran; });
  }));
  loop.Stop();
  EXPECT_EQ(ran, 10);
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
