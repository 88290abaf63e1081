// Events on PodGroups and pods, as kubectl describe shows them.
//
// Equal events (object, type, reason, message) are one Event object whose count and lastTimestamp
// grow. Bounded: a token bucket limits what is sent, and how much of it may be under way at once; a
// queue what waits, a cache what is remembered. Of what waits the newest goes first, dated when it
// happened: somebody looks at the gang that has just come, and what is old news by now is dropped
// and counted when the queue is full. An event is never worth a decision's delay.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "coscheduling/actions.h"
#include "kube/api.h"
#include "kube/client/timer.h"

namespace muster::extender {

struct EventRecorderOptions {
  double per_second = 50;
  size_t burst = 500;
  // Few, so that a burst of events doesn't stand before decisions on their way to the API server,
  // and a busy one gets fewer of them.
  size_t max_in_flight = 2;
  size_t max_waiting = 5'000;
  size_t max_remembered = 10'000;
  std::string instance = {};  // reportingInstance: this process
};

class EventRecorder {
 public:
  // Transport and timer must outlive it.
  EventRecorder(kube::Transport& transport, kube::Timer& timer, EventRecorderOptions options);
  ~EventRecorder();

  // Thread-safe, never blocks.
  void Record(const coscheduling::EmitEvent& event);
  // Drops what waits and what is remembered: another process tells what happens from now on.
  void Forget();

  struct Stats {
    uint64_t sent = 0;
    uint64_t dropped = 0;
    uint64_t failed = 0;  // but for those about a namespace that goes
    size_t waiting = 0;
    size_t remembered = 0;
  };
  Stats stats() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::extender
