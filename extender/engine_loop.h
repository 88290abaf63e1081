// The engine's thread: the only one that touches the engine.
//
// Others post tasks. The loop takes all that have come, runs them in order, and makes one step;
// then it rests for twenty times as long as the step took (at most 50 ms), so that a storm of
// changes is taken together and costs a twentieth of a core, unless one step takes longer than
// 2.5 ms: the API server that has to write what is decided may need the rest. A bind call, or
// anything else posted as urgent, ends the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "coscheduling/engine.h"
#include "extender/executor.h"

namespace muster::extender {

struct EngineLoopStats {
  uint64_t steps = 0;
  uint64_t tasks = 0;
  size_t queued = 0;
  absl::Duration longest_step;  // since the last call
  absl::Duration step_time;
};

class EngineLoop {
 public:
  // Runs on the engine's thread after each step.
  using OnStep = std::function<void(coscheduling::StepOutput, const coscheduling::Engine&)>;

  struct Options {
    coscheduling::EngineOptions engine;
    // Past this many waiting tasks Post blocks its caller, which slows down the watches.
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

  // Thread-safe. Blocks while the queue is full, unless on the engine's own thread.
  void Post(EngineTask task);
  void PostUrgent(EngineTask task);
  // Runs `task` on the engine's thread and waits for it; false if the loop has stopped.
  bool Run(EngineTask task);

  EngineLoopStats TakeStats();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster::extender
