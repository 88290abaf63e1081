#include "coscheduling/outbox.h"

namespace muster::coscheduling {

bool Outbox::MayAct(GangId gang, const std::string& target) {
  if (in_flight_.MayStart(target, agenda_->now())) return true;
  // While it is under way its end brings the gang back.
  if (!in_flight_.IsUnderWay(target)) agenda_->NoteAt(gang, in_flight_.PausedUntil(target));
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
  if (!in_flight_.MayStart(target, agenda_->now())) return false;
  pending_.push_back({in_flight_.Start(target, std::move(on_finish)), std::move(action)});
  return true;
}

void Outbox::EndStep() {
  in_flight_.Prune(agenda_->now());
  agenda_->WakeAt(in_flight_.NextRetry(agenda_->now()));
}

}  // namespace muster::coscheduling
