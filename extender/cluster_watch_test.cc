#include "extender/cluster_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <future>
#include <iostream>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "cluster/snapshot.h"
#include "extender/engine_loop.h"
#include "fmt/format.h"
#include "kube/client/fake_transport.h"
#include "kube/client/manual_timer.h"

namespace muster::extender {
namespace {

using ::testing::HasSubstr;

constexpr const char* kWholePicture =
    R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1",)"
    R"("annotations":{"k8s.io/initial-events-end":"true"}}}})";

bool IsOfACrd(const std::string& path) {
  return path.starts_with("/apis/") && path.find('.') < path.find('/', 6) &&
         !path.starts_with("/apis/storage.k8s.io/") &&
         !path.starts_with("/apis/scheduling.k8s.io/");
}

class ClusterWatchTest : public ::testing::Test {
 protected:
  void Start(EngineIntake intake) {
    watch_ = std::make_unique<ClusterWatch>(transport_, timer_,
                                            ClusterWatchOptions{.scheduler_name = "coscheduling"},
                                            std::move(intake));
    watch_->Start();
  }
  // The open watch of a path.
  const kube::FakeTransport::OpenWatch& Of(const std::string& path) {
    for (const auto& watch : transport_.watches) {
      if (watch->request.path == path && !watch->destroyed) return *watch;
    }
    ADD_FAILURE() << "no watch of " << path;
    return *transport_.watches.front();
  }

  kube::FakeTransport transport_;
  kube::ManualTimer timer_{absl::FromUnixSeconds(1'700'000'000)};
  std::unique_ptr<ClusterWatch> watch_;
};

TEST_F(ClusterWatchTest, OnlyCrdsMayBeAbsentWhatEveryServerHasMustBeAnswered) {
  std::vector<EngineTask> tasks;
  Start({.post = [&](EngineTask task) { tasks.push_back(std::move(task)); },
         .post_latest = [](std::string_view, const EngineTask&) {},
         .await_room = [] {}});
  for (size_t i = 0; i < transport_.watches.size(); ++i) {
    // Another version's is opened at once, and comes after it.
    const auto watch = transport_.watches[i];
    watch->End(404);
  }
  EXPECT_TRUE(tasks.empty());
  for (const ClusterWatch::KindStats& kind : watch_->Stats()) {
    EXPECT_EQ(kind.reflector.state == kube::ReflectorState::kAbsent, IsOfACrd(kind.reflector.path))
        << kind.kind;
  }
  const std::string reason = watch_->NotReadyReason();
  for (const char* kind : {"pods", "nodes", "namespaces", "storageclasses", "daemonsets", "jobs"}) {
    EXPECT_THAT(reason, HasSubstr(fmt::format("{} are not synced: NOT_FOUND", kind)));
  }
  timer_.Advance(absl::Seconds(1));
  for (const auto& watch : transport_.watches) {
    const std::string& path = watch->request.path;
    if (!IsOfACrd(path) && path != "/api/v1/pods") watch->Line(kWholePicture);
  }
  EXPECT_TRUE(tasks.empty()) << "before the last is whole";
  Of("/api/v1/pods").Line(kWholePicture);
  EXPECT_EQ(watch_->NotReadyReason(), "");
  EXPECT_EQ(tasks.size(), 1u);
}

// Who names a queue waits whether it is known or not; who names none is under quota once its
// namespace has a LocalQueue `default`.
TEST_F(ClusterWatchTest, QueuesWhoseCrdWasAbsentAreSeenWithinASecond) {
  Start({.post = [](const EngineTask&) {},
         .post_latest = [](std::string_view, const EngineTask&) {},
         .await_room = [] {}});
  const auto open = [this](std::string_view kind) {
    return std::ranges::count_if(transport_.watches, [&](const auto& watch) {
      return !watch->destroyed && watch->request.path.ends_with(kind);
    });
  };
  for (size_t i = 0; i < transport_.watches.size(); ++i) {
    const auto watch = transport_.watches[i];
    if (IsOfACrd(watch->request.path)) watch->End(404);
  }
  EXPECT_EQ(open("/localqueues"), 0);
  EXPECT_EQ(open("/jobsets"), 0);
  timer_.Advance(absl::Seconds(1));
  EXPECT_EQ(open("/localqueues"), 1);
  EXPECT_EQ(open("/jobsets"), 0);
  timer_.Advance(absl::Seconds(9));
  EXPECT_EQ(open("/jobsets"), 1);
}

// A queue with room for one task. Two threads observe, one answers, one looks at the watches, as
// metrics and readiness do; the engine's own thread looks at them after each step, as it does
// before it writes the status of a queue.
TEST_F(ClusterWatchTest, ATinyQueueLocksNobodyUp) {
  EngineLoop::Options options;
  options.max_queued = 1;
  options.clock = absl::Now;
  std::atomic<ClusterWatch*> watched = nullptr;
  std::atomic<int> looks = 0;
  EngineLoop loop(std::move(options),
                  [&](const coscheduling::StepOutput&, const coscheduling::Engine&) {
                    ClusterWatch* watch = watched;
                    if (watch == nullptr) return;
                    (void)watch->VersionsOfQueues();
                    ++looks;
                  });
  loop.Start();
  Start({.post = [&](EngineTask task) { loop.Post(std::move(task)); },
         .post_latest = [&](std::string_view key,
                            EngineTask task) { loop.PostLatest(key, std::move(task)); },
         .await_room = [&] { loop.AwaitRoom(); }});
  watched = watch_.get();
  const auto& pods = Of("/api/v1/pods");
  const auto& queues = Of("/apis/kueue.x-k8s.io/v1beta2/clusterqueues");

  constexpr int kRounds = 600;
  constexpr int kObjects = 20;
  std::atomic<bool> ended = false;
  auto all = std::async(std::launch::async, [&] {
    const auto observe = [](const kube::FakeTransport::OpenWatch& watch) {
      for (int i = 1; i <= kRounds; ++i) {
        watch.Line(fmt::format(R"({{"type":"MODIFIED","object":{{"metadata":{{"name":"o{0}",)"
                               R"("namespace":"n","uid":"u{0}","resourceVersion":"{1}"}},)"
                               R"("spec":{{"schedulerName":"coscheduling"}}}}}})",
                               i % kObjects, i));
      }
    };
    std::vector<std::thread> threads;
    threads.emplace_back([&] { observe(pods); });
    threads.emplace_back([&] { observe(queues); });
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) loop.Post([](coscheduling::Engine&, absl::Time) {});
    });
    std::thread looker([&] {
      while (!ended) {
        (void)watch_->Stats();
        (void)watch_->NotReadyReason();
        timer_.Advance(absl::Milliseconds(1));
      }
    });
    for (std::thread& thread : threads) thread.join();
    ended = true;
    looker.join();
  });
  if (all.wait_for(std::chrono::seconds(100)) != std::future_status::ready) {
    std::cerr << "threads wait for each other\n";
    std::abort();
  }
  EXPECT_GT(looks, 0);
  size_t known = 0;
  ASSERT_TRUE(loop.Run([&](coscheduling::Engine& engine, absl::Time) {
    for (int i = 0; i < kObjects; ++i) {
      const kube::Pod* pod = engine.snapshot().FindPod(fmt::format("u{}", i));
      if (pod == nullptr) continue;
      ++known;
      EXPECT_GT(std::stoi(pod->meta.resource_version), kRounds - kObjects) << "the newest";
    }
  }));
  EXPECT_EQ(known, kObjects);
  watched = nullptr;
  watch_.reset();
  loop.Stop();
}

}  // namespace
}  // namespace muster::extender
