#include "coscheduling/outbox.h"

#include <algorithm>
#include <variant>

namespace muster::coscheduling {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(10);
constexpr absl::Duration kRemembered = absl::Minutes(1);

absl::Duration PauseAfter(int attempts) {
  return std::min(kFirstPause * (1 << std::min(attempts - 1, 10)), kLongestPause);
}

}  // namespace

bool Outbox::MayAct(GangId gang, const std::string& target) {
  if (const auto under_way = under_way_.find(target); under_way != under_way_.end()) {
    under_way->second.insert(gang);
    return false;
  }
  const auto pause = pauses_.find(target);
  if (pause == pauses_.end() || pause->second.until <= agenda_->now()) return true;
  agenda_->NoteAt(gang, pause->second.until);
  return false;
}

bool Outbox::Act(GangId gang, const std::string& target, Action action, OnFinish on_finish) {
  if (!MayAct(gang, target)) return false;
  return Act(target, std::move(action),
             [agenda = agenda_, gang, then = std::move(on_finish)](const absl::Status& status,
                                                                   absl::Time now) {
               if (then) then(status, now);
               agenda->Note(gang);
             });
}

bool Outbox::Act(const std::string& target, Action action, OnFinish on_finish) {
  const auto pause = pauses_.find(target);
  if (pause != pauses_.end() && agenda_->now() < pause->second.until) return false;
  if (!under_way_.try_emplace(target).second) return false;
  by_id_[next_id_] = {target, std::move(on_finish), std::holds_alternative<EvictPod>(action)};
  pending_.push_back({next_id_++, std::move(action)});
  return true;
}

void Outbox::Finish(uint64_t action_id, const absl::Status& status) {
  auto entry = by_id_.extract(action_id);
  if (entry.empty()) return;
  const absl::Time now = agenda_->now();
  const auto& [target, on_finish, is_eviction] = entry.mapped();
  const auto ended = under_way_.extract(target);
  for (const GangId waits : ended.mapped()) agenda_->Note(waits);
  if (!status.ok()) {
    Pause& pause = pauses_[target];
    pause.until = now + PauseAfter(++pause.failures);
  } else if (is_eviction) {
    Pause& pause = pauses_[target];
    pause.failures = 0;
    pause.until = now + PauseAfter(++pause.evictions);
  } else {
    pauses_.erase(target);
  }
  if (on_finish) on_finish(status, now);
}

int Outbox::Failures(const std::string& target) const {
  const auto pause = pauses_.find(target);
  return pause == pauses_.end() ? 0 : pause->second.failures;
}

void Outbox::EndStep() {
  const absl::Time now = agenda_->now();
  absl::erase_if(pauses_,
                 [now](const auto& pause) { return pause.second.until + kRemembered < now; });
  for (const auto& [target, pause] : pauses_) {
    if (pause.until > now) agenda_->WakeAt(pause.until);
  }
}

}  // namespace muster::coscheduling
