#include "extender/engine_loop.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "extender/cpu_time.h"

namespace muster::extender {
namespace {

constexpr int kRestPerStep = 20;  // times the step
constexpr absl::Duration kLongestRest = absl::Milliseconds(200);
// How long the loop sleeps when the engine has nothing planned.
constexpr absl::Duration kLongestSleep = absl::Seconds(10);
constexpr std::chrono::milliseconds kLongestWaitForRoom(100);
// So many that are superseded may lie in the queue before they are looked for.
constexpr size_t kFewSuperseded = 64;

}  // namespace

struct EngineLoop::State {
  State(Options o, OnStep s)
      : options(std::move(o)), on_step(std::move(s)), engine(options.engine) {}

  size_t Queued() const { return tasks.size() - superseded; }

  void Enqueue(EngineTask task, bool is_urgent) {
    const std::lock_guard lock(mutex);
    if (stopped) return;
    Add(std::move(task));
    urgent |= is_urgent;
    WakeUnlessResting();
  }

  void Add(EngineTask task) {
    if (tasks.empty()) waiting_since = options.clock();
    tasks.push_back(std::move(task));
  }

  // The newest goes to the end: what was posted between the two sees what it would have seen.
  void EnqueueLatest(std::string_view key, EngineTask task) {
    EngineTask dropped;  // ends after the lock does
    const std::lock_guard lock(mutex);
    if (stopped) return;
    const auto [at, is_new] =
        newest.try_emplace(absl::string_view(key.data(), key.size()), tasks.size());
    if (!is_new) {
      dropped.swap(tasks[at->second]);
      at->second = tasks.size();
      ++superseded;
      ++stats.superseded;
    }
    Add(std::move(task));
    if (superseded > kFewSuperseded && superseded > tasks.size() / 2) Compact();
    WakeUnlessResting();
  }

  // Who rests looks by himself when that is over.
  void WakeUnlessResting() {
    if (!resting || urgent) has_work.notify_one();
  }

  void Compact() {
    std::vector<size_t> moved_to(tasks.size());
    size_t kept = 0;
    for (size_t i = 0; i < tasks.size(); ++i) {
      moved_to[i] = kept;
      if (!tasks[i]) continue;
      if (kept != i) tasks[kept] = std::move(tasks[i]);
      ++kept;
    }
    tasks.resize(kept);
    for (auto& [key, index] : newest) index = moved_to[index];
    superseded = 0;
  }

  void AwaitRoom() {
    std::unique_lock lock(mutex);
    if (std::this_thread::get_id() == thread.get_id()) return;
    has_room.wait_for(lock, kLongestWaitForRoom,
                      [this] { return stopping || Queued() < options.max_queued; });
  }

  // From when a step is due; InfiniteFuture: none is.
  absl::Time DueSince() const {
    return tasks.empty() ? absl::InfiniteFuture() : std::max(waiting_since, rest_until);
  }

  // Takes what is there once it is time to; empty when only the clock calls. Busy from here on.
  std::vector<EngineTask> Wait() {
    std::unique_lock lock(mutex);
    const absl::Time now = options.clock();
    const absl::Time wake = std::min(engine.NextWake(), now + kLongestSleep);
    auto sleep_until = [&](absl::Time time, auto ready) {
      const absl::Duration left = std::max(absl::ZeroDuration(), time - options.clock());
      has_work.wait_for(lock, absl::ToChronoNanoseconds(left), ready);
    };
    resting = true;
    sleep_until(rest_until, [this] { return stopping || urgent; });
    resting = false;
    sleep_until(wake, [this] { return stopping || !tasks.empty(); });
    urgent = false;
    busy_since = std::min(DueSince(), options.clock());
    std::vector<EngineTask> taken = std::exchange(tasks, {});
    newest = {};
    stats.tasks += taken.size() - std::exchange(superseded, 0);
    has_room.notify_all();
    return taken;
  }

  void Loop() {
    for (;;) {
      std::vector<EngineTask> taken = Wait();
      const absl::Time started = options.clock();
      const absl::Duration cpu_before = ThreadCpuTime();
      engine.AdvanceTo(started);
      for (EngineTask& task : taken) {
        if (task) task(engine, started);
      }
      taken = {};
      coscheduling::StepOutput output = engine.Step(options.clock());
      on_step(std::move(output), engine);
      const absl::Duration cpu = ThreadCpuTime() - cpu_before;
      const std::lock_guard lock(mutex);
      const absl::Time ended = options.clock();  // not before the lock: what was told grows only
      const absl::Duration took = ended - started;
      rest_until = ended + std::min(took * kRestPerStep, kLongestRest);
      ++stats.steps;
      stats.busy_time += ended - std::exchange(busy_since, absl::InfiniteFuture());
      stats.longest_step = std::max(stats.longest_step, took);
      stats.longest_step_cpu = std::max(stats.longest_step_cpu, cpu);
      if (stopping && tasks.empty()) {
        stopped = true;
        return;
      }
    }
  }

  const Options options;
  const OnStep on_step;
  coscheduling::Engine engine;
  std::mutex mutex;
  std::condition_variable has_work;
  std::condition_variable has_room;
  std::vector<EngineTask> tasks;                    // null: superseded
  size_t superseded = 0;                            // of them
  absl::Time waiting_since;                         // while there are some: the first
  absl::Time rest_until = absl::InfinitePast();     // after a step
  absl::Time busy_since = absl::InfiniteFuture();   // with a step; else the future
  absl::flat_hash_map<std::string, size_t> newest;  // where in `tasks` the one of a key is
  bool urgent = false;
  bool resting = false;  // after a step, unless something is urgent
  bool stopping = false;
  bool stopped = false;
  EngineLoopStats stats;
  std::thread thread;
};

EngineLoop::EngineLoop(Options options, OnStep on_step)
    : state_(std::make_unique<State>(std::move(options), std::move(on_step))) {}

EngineLoop::~EngineLoop() { Stop(); }

void EngineLoop::Start() {
  const std::lock_guard lock(state_->mutex);
  state_->thread = std::thread([this] {
    pthread_setname_np(pthread_self(), "engine");
    state_->Loop();
  });
}

void EngineLoop::Stop() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->has_work.notify_all();
    state_->has_room.notify_all();
  }
  if (state_->thread.joinable()) state_->thread.join();
}

void EngineLoop::Post(EngineTask task) { state_->Enqueue(std::move(task), false); }
void EngineLoop::PostUrgent(EngineTask task) { state_->Enqueue(std::move(task), true); }
void EngineLoop::PostLatest(std::string_view key, EngineTask task) {
  state_->EnqueueLatest(key, std::move(task));
}
void EngineLoop::AwaitRoom() { state_->AwaitRoom(); }

bool EngineLoop::Run(EngineTask task) {
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> finished = done->get_future();
  PostUrgent([task = std::move(task), done](coscheduling::Engine& engine, absl::Time now) {
    task(engine, now);
    done->set_value();
  });
  // A loop that has stopped drops the task, and with it the promise.
  done.reset();
  try {
    finished.get();
    return true;
  } catch (const std::future_error&) {
    return false;
  }
}

EngineLoopStats EngineLoop::TakeStats() {
  const std::lock_guard lock(state_->mutex);
  EngineLoopStats stats = state_->stats;
  stats.queued = state_->Queued();
  const absl::Time since = std::min(state_->busy_since, state_->DueSince());
  stats.busy_time += std::max(absl::ZeroDuration(), state_->options.clock() - since);
  state_->stats.longest_step = state_->stats.longest_step_cpu = absl::ZeroDuration();
  return stats;
}

}  // namespace muster::extender
