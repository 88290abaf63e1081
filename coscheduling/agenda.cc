#include "coscheduling/agenda.h"

#include <algorithm>

namespace muster::coscheduling {

void Agenda::NoteAt(GangId gang, absl::Time time) {
  if (time == absl::InfiniteFuture()) return;
  auto [known, inserted] = timer_of_.try_emplace(gang, time);
  if (!inserted) {
    if (known->second <= time) return;
    timers_.erase({known->second, gang});
    known->second = time;
  }
  timers_.emplace(time, gang);
}

std::vector<GangId> Agenda::Take() {
  while (!timers_.empty() && timers_.begin()->first <= now_) {
    const GangId gang = timers_.begin()->second;
    timers_.erase(timers_.begin());
    timer_of_.erase(gang);
    noted_.insert(gang);
  }
  std::vector<GangId> taken(noted_.begin(), noted_.end());
  noted_.clear();
  for (GangId gang : taken) {
    const auto timer = timer_of_.find(gang);
    if (timer == timer_of_.end()) continue;
    timers_.erase({timer->second, gang});
    timer_of_.erase(timer);
  }
  return taken;
}

std::vector<GangId> Agenda::TakeNoted() {
  std::vector<GangId> taken(noted_.begin(), noted_.end());
  noted_.clear();
  return taken;
}

std::vector<GangId> Agenda::TakeShown() {
  std::vector<GangId> taken(shown_.begin(), shown_.end());
  shown_.clear();
  return taken;
}

void Agenda::Forget(GangId gang) {
  noted_.erase(gang);
  shown_.erase(gang);
  const auto timer = timer_of_.find(gang);
  if (timer == timer_of_.end()) return;
  timers_.erase({timer->second, gang});
  timer_of_.erase(timer);
}

absl::Time Agenda::NextWake() const {
  if (!noted_.empty() || !shown_.empty()) return now_;
  return timers_.empty() ? wake_ : std::min(wake_, timers_.begin()->first);
}

}  // namespace muster::coscheduling
