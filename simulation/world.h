// A scenario's world in virtual time: the embedded API server, the simulators, and Muster's engine
// between them, or in its place what others run today, on one thread and one clock.
//
// Deterministic: equal scenarios and seeds give equal runs. Requests take effect when they are
// made, or, with a scenario's faults, when they arrive (faults.h); time passes only while nothing
// is left to do. The engine's actions go through the same requests as in the service
// (writes/action_requests.h), and what it observes is decoded from the same bytes a watch would
// carry.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kube/api.h"
#include "simulation/scenario.h"

namespace muster::coscheduling {
class Engine;
struct DecisionNote;
}  // namespace muster::coscheduling

namespace muster::kube::embedded {
class ApiServer;
}

namespace muster::simulation {

// Looks on without being part of the world. What it wants to know of objects it reads from the
// API server.
class WorldObserver {
 public:
  virtual ~WorldObserver() = default;
  // The world is about to begin: its nodes and NodePools are there. `server` is alive until
  // OnEnd.
  virtual void OnStart(kube::embedded::ApiServer* server, absl::Time start) = 0;
  // A decision of Muster's; what it led to hasn't happened yet.
  virtual void OnDecision(const coscheduling::DecisionNote& note, absl::Time now) = 0;
  virtual void OnRestart(absl::Time now) = 0;
  // Everything that can happen at this moment has happened. Moments never go back.
  virtual void OnMoment(absl::Time now) = 0;
  // The world is about to go, and `server` with it.
  virtual void OnEnd() = 0;
};

// Who sees to it that gangs start whole.
enum class Policy {
  kMuster,
  // Kueue for quota, and the coscheduling plugin in kube-scheduler (kueue_simulator.h,
  // kube/simulators/coscheduling_plugin.h), which know nothing of each other. Steps that are about
  // Muster (restart, loseWrites, hideNode) do nothing, and an expectation of a state, reason or
  // message never holds.
  kCoscheduling,
  // Muster, but the first in line for whom there is no room keeps none as it frees, or does so for
  // a minute in five once it has waited for five.
  kNoReservation,
  kGuard,
};
// "muster", "coscheduling", "no-reservation", "guard"
std::string_view PolicyName(Policy policy);

struct WorldOptions {
  uint64_t seed = 1;
  Policy policy = Policy::kMuster;
  // Muster alone, without a kube-scheduler, where the scenario doesn't say.
  bool standalone = false;
  WorldObserver* observer = nullptr;  // outlives the world
  // Asked for every write of Muster's, in order: true makes it fail as if the connection had broken
  // before it was sent.
  std::function<bool(std::string_view kind)> lose_write{};
  // As above, but after it took effect.
  std::function<bool(std::string_view kind)> lose_answer{};
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

  // When something happens next though nothing is done from outside; InfiniteFuture if never.
  absl::Time next_event() const;

  // OK if it holds now; else FailedPrecondition with what was found instead.
  // How many are gated isn't asked while nobody is (Engine::NeedsGate).
  absl::Status Check(const Expectation& expected) const;
  // What must hold at every moment: no gang bound in part by Muster alone, no node overcommitted,
  // no gang without a reason. Checked by RunUntil; the first breach ends the run.
  const absl::Status& broken_invariant() const;

  // Kills Muster and starts it again.
  void Restart();
  // One line per decision, "  12.0s default/job READY GATES_LIFTING ...".
  const std::vector<std::string>& timeline() const;
  // What reservations have kept idle, since Muster was started last.
  double kept_idle_gpu_seconds() const;
  kube::Response Call(const kube::Request& request);
  const coscheduling::Engine& engine() const;

 private:
  absl::Status Abandon(const AbandonStep& step);

  struct State;
  std::unique_ptr<State> state_;
};

// What stopped a step, or didn't hold at it.
struct StepFailure {
  const Step* step;  // of the scenario
  enum class Kind {
    kRefused,     // it can't be carried out: the scenario is wrong
    kUnexpected,  // an expectation doesn't hold
    kBroken,      // an invariant doesn't; the world stands still from then on
  };
  Kind kind = Kind::kUnexpected;
  absl::Status status;
};

// Carries out the steps in order, those up to `until` (since the start), and hands over each
// failure; goes on after it while `on_failure` says so and the world is whole.
void RunSteps(World* world, const Scenario& scenario, absl::Duration until,
              const std::function<bool(const StepFailure&)>& on_failure);

// Runs the whole scenario. FailedPrecondition as "FILE:LINE: want ..., found ..." with the timeline
// at the first expectation or invariant that doesn't hold.
absl::Status RunScenario(const Scenario& written, WorldOptions options = {});

}  // namespace muster::simulation
