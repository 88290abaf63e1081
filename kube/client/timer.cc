#include "kube/client/timer.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/time/clock.h"

namespace muster::kube {

namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

constexpr absl::Duration kLongestDelay = absl::Hours(24 * 365);

absl::Duration SinceBoot() {
  timespec time = {};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return absl::DurationFromTimespec(time);
}

}  // namespace

struct ThreadTimer::State {
  const absl::Time booted = absl::Now() - SinceBoot();
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<SteadyTime, Id>, Callback> alarms;
  std::map<Id, SteadyTime> due;
  Id last_id = 0;
  Id running = 0;
  bool stopping = false;
  std::thread thread;

  void Run();
};

void ThreadTimer::State::Run() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    if (alarms.empty()) {
      changed.wait(lock);
      continue;
    }
    const auto first = alarms.begin();
    const auto [when, id] = first->first;
    if (std::chrono::steady_clock::now() < when) {
      changed.wait_until(lock, when);
      continue;
    }
    Callback callback = std::move(first->second);
    alarms.erase(first);
    due.erase(id);
    running = id;
    lock.unlock();
    callback();
    callback = nullptr;
    lock.lock();
    running = 0;
    changed.notify_all();
  }
}

ThreadTimer::ThreadTimer() : state_(std::make_unique<State>()) {
  state_->thread = std::thread([state = state_.get()] { state->Run(); });
}

ThreadTimer::~ThreadTimer() { Stop(); }

void ThreadTimer::Stop() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
  }
  if (state_->thread.joinable()) state_->thread.join();
}

absl::Time ThreadTimer::Now() const { return state_->booted + SinceBoot(); }

Timer::Id ThreadTimer::After(absl::Duration delay, Callback callback) {
  const SteadyTime when =
      std::chrono::steady_clock::now() +
      absl::ToChronoNanoseconds(std::clamp(delay, absl::ZeroDuration(), kLongestDelay));
  std::lock_guard lock(state_->mutex);
  const Id id = ++state_->last_id;
  const auto at = state_->alarms.emplace(std::pair(when, id), std::move(callback)).first;
  state_->due.emplace(id, when);
  if (at == state_->alarms.begin()) state_->changed.notify_all();
  return id;
}

void ThreadTimer::Cancel(Id id) {
  if (id == 0) return;
  Callback dropped;  // destroyed without the lock: it may own what cancels in turn
  std::unique_lock lock(state_->mutex);
  if (const auto at = state_->due.find(id); at != state_->due.end()) {
    const auto alarm = state_->alarms.find({at->second, id});
    dropped = std::move(alarm->second);
    state_->alarms.erase(alarm);
    state_->due.erase(at);
    lock.unlock();
    return;
  }
  if (std::this_thread::get_id() == state_->thread.get_id()) return;
  state_->changed.wait(lock, [&] { return state_->running != id; });
}

}  // namespace muster::kube
