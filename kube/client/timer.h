// A clock with alarms: what retries, watches and leases wait on.
//
// Two kinds: ThreadTimer runs in real time on its own thread; ManualTimer (manual_timer.h) stands
// still until it is advanced, for virtual time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace muster::kube {

class Timer {
 public:
  using Id = uint64_t;  // never 0
  using Callback = std::function<void()>;

  virtual ~Timer() = default;

  // Never steps back, and goes on while the machine sleeps.
  virtual absl::Time Now() const = 0;

  // Runs `callback` once, not before `delay` has passed, on the timer's thread; it must not block.
  // Callers bound what they schedule: each of them keeps a fixed number of alarms set.
  virtual Id After(absl::Duration delay, Callback callback) = 0;

  // Afterwards the callback won't run; if it is running on another thread it is waited for, so hold
  // no lock that it takes. A callback may cancel any alarm. No effect on one that has run,
  // nor for 0.
  virtual void Cancel(Id id) = 0;
};

// Real time: the wall clock of the moment it was made plus what has passed since, so that a stepped
// wall clock changes nothing.
class ThreadTimer : public Timer {
 public:
  ThreadTimer();
  ~ThreadTimer() override;

  // Waits for the callback that is running; no other runs afterwards, of those that are set nor of
  // those that are still asked for. Not to be called from a callback; the destructor does it too.
  void Stop();

  absl::Time Now() const override;
  Id After(absl::Duration delay, Callback callback) override;
  void Cancel(Id id) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster::kube
