// From the engine to those who ask: turns what changed in a step into published messages.
//
// Runs on the engine's thread. Gangs are published at once, each that changed; the list of nodes
// (one message of all nodes) at most once per interval, because thousands of nodes change often.
#pragma once

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "coscheduling/engine.h"
#include "extender/state_store.h"

namespace muster::extender {

class Publisher {
 public:
  explicit Publisher(StateStore* store, absl::Duration node_interval = absl::Milliseconds(250))
      : store_(store), node_interval_(node_interval) {}

  // After each step.
  void OnStep(const coscheduling::StepOutput& output, const coscheduling::Engine& engine,
              absl::Time now);
  // Publishes nodes that were put off, if their time has come. To be called now and then.
  void Flush(const coscheduling::Engine& engine, absl::Time now);
  // When Flush has something to do; InfiniteFuture if nothing is put off.
  absl::Time NextFlush() const;

 private:
  void PublishGangs(const std::vector<coscheduling::GangKey>& keys,
                    const coscheduling::Engine& engine);

  StateStore* const store_;
  const absl::Duration node_interval_;
  bool nodes_changed_ = false;
  absl::Time nodes_published_ = absl::InfinitePast();
};

}  // namespace muster::extender
