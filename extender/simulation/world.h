// A scenario's world in virtual time: the embedded API server, the simulators, and Muster's engine
// between them, on one thread and one clock.
//
// Deterministic: equal scenarios and seeds give equal runs. Requests take effect when they are
// made; time passes only while nothing is left to do. The engine's actions go through the same
// requests as in the service (action_requests.h), and what it observes is decoded from the same
// bytes a watch would carry.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "extender/simulation/scenario.h"
#include "kube/api.h"

namespace muster::coscheduling {
class Engine;
}

namespace muster::simulation {

struct WorldOptions {
  uint64_t seed = 1;
  // Asked for every write of Muster's, in order: true makes it fail as if the connection had broken
  // before it was sent.
  std::function<bool(std::string_view kind)> lose_write;
  // As above, but after it took effect.
  std::function<bool(std::string_view kind)> lose_answer;
};

class World {
 public:
  World(const Scenario& scenario, WorldOptions options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  absl::Time start() const;
  absl::Time now() const;

  // Carries out a step that isn't an expectation, at once. InvalidArgument with the API server's
  // words if it refuses.
  absl::Status Perform(const Action& action);
  // Runs until `time`, stopping early as soon as `until` holds (checked whenever nothing is left to
  // do at a moment). Returns whether it did.
  bool RunUntil(absl::Time time, const std::function<bool()>& until = nullptr);

  // OK if it holds now; else FailedPrecondition with what was found instead.
  absl::Status Check(const Expectation& want) const;
  // What must hold at every moment: no gang bound in part by Muster alone, no node overcommitted,
  // no gang without a reason. Checked by RunUntil; the first breach ends the run.
  const absl::Status& broken_invariant() const;

  // Kills Muster and starts it again.
  void Restart();
  // One line per decision, "  12.0s default/job READY GATES_LIFTING ...".
  const std::vector<std::string>& timeline() const;
  kube::Response Call(const kube::Request& request);
  const coscheduling::Engine& engine() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Runs the whole scenario. FailedPrecondition as "FILE:LINE: want ..., found ..." with the timeline
// at the first expectation or invariant that doesn't hold.
absl::Status RunScenario(const Scenario& scenario, WorldOptions options = {});

}  // namespace muster::simulation
