// What is asked of the shell: one action per target ("bind/<uid>") at a time, with growing pauses
// after failures, and after evictions: their answer doesn't hold the pod, so it is seen later.
//
// Nothing is remembered as "done": an owner asks again until it sees the effect. A gang is looked
// at again when an action that it asked for has finished, and when one may be tried again that
// could not be. Bounded by the number of targets: each pod, node and gang has a fixed few.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coscheduling/actions.h"
#include "coscheduling/agenda.h"

namespace muster::coscheduling {

// The API server refused the write. A conflict, or an object that is there already, is none: what
// was in the way has been read by now.
inline bool IsRefusal(const absl::Status& status) {
  return !status.ok() && status.code() != absl::StatusCode::kAborted &&
         status.code() != absl::StatusCode::kAlreadyExists;
}

// Keeps the last refusal, until one is accepted, of a gang that is still known then.
template <typename Known>
auto KeepRefusal(const Known& gangs, GangId gang, PerGang<std::string>* errors) {
  return [&gangs, gang, errors](const absl::Status& status, absl::Time) {
    if (gangs.Find(gang) == nullptr) return;
    (*errors)[gang] = IsRefusal(status) ? std::string(status.message()) : "";
  };
}

class Outbox {
 public:
  // Runs when the action has finished; must not assume that anything still is as it was.
  using OnFinish = std::function<void(const absl::Status&, absl::Time now)>;

  // `agenda` outlives it.
  explicit Outbox(Agenda* agenda) : agenda_(agenda) {}

  // Starts the action if its target may be asked: neither under way nor pausing. True if it was.
  bool Act(GangId gang, const std::string& target, Action action, OnFinish on_finish = nullptr);
  // The same of an action that isn't a gang's: a node's, a job's, a queue's.
  bool Act(const std::string& target, Action action, OnFinish on_finish = nullptr);
  // Whether Act would start one; if not, the gang is looked at again when it may.
  bool MayAct(GangId gang, const std::string& target);
  // For actions without an outcome worth waiting for.
  void Tell(Action action) { pending_.push_back({0, std::move(action)}); }
  // Ignores an id it doesn't know. A failure, or an eviction, pauses the target: 100 ms, doubling
  // to 10 s.
  void Finish(uint64_t action_id, const absl::Status& status);

  bool IsUnderWay(const std::string& target) const { return under_way_.contains(target); }
  // Consecutive failures of this target, forgotten a minute after the pause.
  int Failures(const std::string& target) const;
  size_t in_flight() const { return by_id_.size(); }

  std::vector<NumberedAction> Take() { return std::exchange(pending_, {}); }
  // Forgets pauses that are long over, and has the agenda wake for the others.
  void EndStep();

 private:
  struct Entry {
    std::string target;
    OnFinish on_finish;
    bool is_eviction = false;
  };
  struct Pause {
    int failures = 0;
    int evictions = 0;
    absl::Time until;
  };

  Agenda* agenda_;
  std::vector<NumberedAction> pending_;
  uint64_t next_id_ = 1;
  absl::flat_hash_map<uint64_t, Entry> by_id_;
  absl::flat_hash_map<std::string, std::set<GangId>> under_way_;  // with who else would act
  absl::flat_hash_map<std::string, Pause> pauses_;
};

}  // namespace muster::coscheduling
