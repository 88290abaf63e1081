#include "kube/client/manual_timer.h"

#include <algorithm>

namespace muster::kube {

Timer::Id ManualTimer::After(absl::Duration delay, Callback callback) {
  const Id id = ++last_id_;
  alarms_.emplace(std::pair(now_ + std::max(delay, absl::ZeroDuration()), id), std::move(callback));
  return id;
}

void ManualTimer::Cancel(Id id) {
  const auto at = std::find_if(alarms_.begin(), alarms_.end(),
                               [id](const auto& alarm) { return alarm.first.second == id; });
  if (at == alarms_.end()) return;
  const Callback dropped = std::move(at->second);
  alarms_.erase(at);
}

void ManualTimer::Advance(absl::Duration step) {
  const absl::Time until = now_ + step;
  while (!alarms_.empty() && alarms_.begin()->first.first <= until) {
    const auto first = alarms_.begin();
    now_ = std::max(now_, first->first.first);
    const Callback callback = std::move(first->second);
    alarms_.erase(first);
    callback();
  }
  now_ = until;
}

absl::Time ManualTimer::NextAlarm() const {
  return alarms_.empty() ? absl::InfiniteFuture() : alarms_.begin()->first.first;
}

}  // namespace muster::kube
