#include "coscheduling/agenda.h"

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

void Agenda::EndTimer(GangId gang) {
  const auto timer = timer_of_.extract(gang);
  if (!timer.empty()) timers_.erase({timer.mapped(), gang});
}

absl::flat_hash_set<GangId> Agenda::Take() {
  while (!timers_.empty() && timers_.begin()->first <= now_) {
    const GangId gang = timers_.begin()->second;
    EndTimer(gang);
    noted_.insert(gang);
  }
  for (GangId gang : noted_) EndTimer(gang);
  return TakeNoted();
}

void Agenda::Forget(GangId gang) {
  noted_.erase(gang);
  shown_.erase(gang);
  EndTimer(gang);
}

absl::Time Agenda::NextWake() const {
  if (!noted_.empty() || !shown_.empty()) return now_;
  return timers_.empty() ? wake_ : std::min(wake_, timers_.begin()->first);
}

}  // namespace muster::coscheduling
