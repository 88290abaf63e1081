// The engine's thread: the only one that touches the engine.
//
// Others post tasks. The loop takes all that have come, runs them in order, and makes one step;
// then it rests for twenty times as long as the step took (at most 200 ms), so that a storm of
// changes is taken together and costs a twentieth of a core, unless one step takes longer than
// 10 ms: the API server that has to write what is decided may need the rest. A bind call, or
// anything else posted as urgent, ends the rest.
//
// Posting never blocks, so that nobody who holds a lock, or on whom answers and leases wait, waits
// for the engine. The queue is bounded all the same: of what is observed of one object only the
// newest waits, and everything else is somebody's who has a bound (actions under way, bind calls
// held). Who can wait, the threads of the watches between two lines, asks for room.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "absl/time/time.h"
#include "coscheduling/engine.h"
#include "extender/executor.h"

namespace muster::extender {

struct EngineLoopStats {
  uint64_t steps = 0;
  uint64_t tasks = 0;       // that were run
  uint64_t superseded = 0;  // that a newer one of the same key took the place of
  size_t queued = 0;
  absl::Duration longest_step;  // since the last call, as the next
  absl::Duration longest_step_cpu;
  // In steps, and from when one was due until the processor was there to begin it; up to now, so
  // that one that takes minutes, or for ever, counts as it goes on.
  absl::Duration busy_time;
};

class EngineLoop {
 public:
  // Runs on the engine's thread after each step.
  using OnStep = std::function<void(coscheduling::StepOutput, const coscheduling::Engine&)>;

  struct Options {
    coscheduling::EngineOptions engine;
    // Past this many waiting tasks AwaitRoom waits.
    size_t max_queued = 100'000;
    std::function<absl::Time()> clock;
  };

  EngineLoop(Options options, OnStep on_step);
  // Stops.
  ~EngineLoop();

  void Start();
  // What has been posted is still run and stepped; afterwards tasks are dropped. Not from the
  // engine's thread.
  void Stop();

  // Thread-safe, never blocks.
  void Post(EngineTask task);
  void PostUrgent(EngineTask task);
  // As Post; a task of the same key that is still waiting is dropped: it says what has been.
  void PostLatest(std::string_view key, EngineTask task);
  // Waits while the queue is full, for 100 ms at most; not on the engine's thread. The caller must
  // hold no lock that others wait for.
  void AwaitRoom();
  // Runs `task` on the engine's thread and waits for it; false if the loop has stopped.
  bool Run(EngineTask task);

  EngineLoopStats TakeStats();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster::extender
