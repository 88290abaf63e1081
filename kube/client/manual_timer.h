// A timer in virtual time: it stands still until it is advanced.
#pragma once

#include <map>
#include <utility>

#include "kube/client/timer.h"

namespace muster::kube {

// Not thread-safe: alarms run inside Advance, on its caller's thread.
class ManualTimer : public Timer {
 public:
  explicit ManualTimer(absl::Time start) : now_(start) {}

  absl::Time Now() const override { return now_; }
  Id After(absl::Duration delay, Callback callback) override;
  void Cancel(Id id) override;

  // Moves the clock on, running what falls due in order of time, then of setting, each at its own
  // time; also what those alarms set in turn.
  void Advance(absl::Duration step);
  // When the next alarm falls due; InfiniteFuture if none is set.
  absl::Time NextAlarm() const;

 private:
  absl::Time now_;
  Id last_id_ = 0;
  std::map<std::pair<absl::Time, Id>, Callback> alarms_;
};

}  // namespace muster::kube
