// What has been asked of the shell and isn't finished, and how long to leave alone what failed.
//
// One entry per target ("bind/<uid>"), so nothing is asked twice at the same time. Bounded by the
// number of targets: each pod, node and gang has a fixed few.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coscheduling/actions.h"

namespace muster::coscheduling {

class InFlight {
 public:
  // Runs when the action has finished, before the target may be asked again.
  using OnFinish = std::function<void(const absl::Status&, absl::Time now)>;

  // May `target` be asked now: neither under way nor in the pause after a failure?
  bool MayStart(const std::string& target, absl::Time now) const;
  bool IsUnderWay(const std::string& target) const;
  // Returns the action's id.
  uint64_t Start(const std::string& target, OnFinish on_finish);
  // Ignores an id it doesn't know. A failure pauses the target: 100 ms, doubling to 10 s.
  void Finish(uint64_t id, const absl::Status& status, absl::Time now);
  // The end of the pause after its last failure; InfinitePast if it has none.
  absl::Time PausedUntil(const std::string& target) const;
  // Consecutive failures of this target.
  int Failures(const std::string& target) const;
  // The end of the earliest pause that isn't over at `now`.
  absl::Time NextRetry(absl::Time now) const;
  // Drops pauses that ended more than a minute ago.
  void Prune(absl::Time now);
  size_t size() const { return targets_by_id_.size(); }

 private:
  struct Entry {
    std::string target;
    OnFinish on_finish;
  };
  struct Pause {
    int failures = 0;
    absl::Time until;
  };
  uint64_t next_id_ = 1;
  absl::flat_hash_map<uint64_t, Entry> targets_by_id_;
  absl::flat_hash_map<std::string, uint64_t> under_way_;
  absl::flat_hash_map<std::string, Pause> pauses_;
};

}  // namespace muster::coscheduling
