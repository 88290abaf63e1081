// What is asked of the shell: one action per target at a time, with growing pauses after failures
// (in_flight.h).
//
// Nothing is remembered as "done": an owner asks again until it sees the effect. A gang is looked
// at again when an action that it asked for has finished, and when one may be tried again that
// could not be.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "coscheduling/actions.h"
#include "coscheduling/agenda.h"
#include "coscheduling/in_flight.h"

namespace muster::coscheduling {

class Outbox {
 public:
  using OnFinish = InFlight::OnFinish;

  // `agenda` outlives it.
  explicit Outbox(Agenda* agenda) : agenda_(agenda) {}

  // Starts the action if its target may be asked; true if it was started. `on_finish` runs when it
  // has finished, and must not assume that anything still is as it was.
  bool Act(GangId gang, const std::string& target, Action action, OnFinish on_finish = nullptr);
  // The same of an action that isn't a gang's: a node's, a job's, a queue's.
  bool Act(const std::string& target, Action action, OnFinish on_finish = nullptr);
  // Whether Act would start one; if not, the gang is looked at again when it may.
  bool MayAct(GangId gang, const std::string& target);
  // For actions without an outcome worth waiting for.
  void Tell(Action action) { pending_.push_back({0, std::move(action)}); }

  bool IsUnderWay(const std::string& target) const { return in_flight_.IsUnderWay(target); }
  // Consecutive failures of this target.
  int Failures(const std::string& target) const { return in_flight_.Failures(target); }
  void Finish(uint64_t action_id, const absl::Status& status, absl::Time now) {
    in_flight_.Finish(action_id, status, now);
  }

  std::vector<NumberedAction> Take() { return std::exchange(pending_, {}); }
  // Forgets pauses that are long over, and has the agenda wake for the others.
  void EndStep();
  size_t in_flight() const { return in_flight_.size(); }

 private:
  Agenda* agenda_;
  InFlight in_flight_;
  std::vector<NumberedAction> pending_;
};

}  // namespace muster::coscheduling
