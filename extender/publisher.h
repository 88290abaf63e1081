// From the engine to those who ask: turns what changed in a step into published messages.
//
// Runs on the engine's thread. Gangs are published at once, each that changed; lists (one message
// of all nodes, queues or flavors) at most once per interval, because thousands of nodes change
// often.
#pragma once

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "coscheduling/engine.h"
#include "extender/state_store.h"

namespace muster::extender {

class Publisher {
 public:
  explicit Publisher(StateStore* store, absl::Duration list_interval = absl::Milliseconds(250))
      : store_(store), list_interval_(list_interval) {}

  // After each step.
  void OnStep(const coscheduling::StepOutput& output, const coscheduling::Engine& engine,
              absl::Time now);
  // Publishes lists that were put off, if their time has come. To be called now and then.
  void Flush(const coscheduling::Engine& engine, absl::Time now);
  // When Flush has something to do; InfiniteFuture if nothing is put off.
  absl::Time NextFlush() const;

 private:
  void PublishGangs(const std::vector<coscheduling::GangKey>& keys,
                    const coscheduling::Engine& engine);
  void PublishNodes(const coscheduling::Engine& engine);
  void PublishQueues(const coscheduling::Engine& engine);

  StateStore* const store_;
  const absl::Duration list_interval_;
  bool nodes_changed_ = false;
  bool queues_changed_ = false;
  absl::Time published_ = absl::InfinitePast();
};

}  // namespace muster::extender
