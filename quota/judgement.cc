#include "quota/judgement.h"

#include "quota/cycle.h"
#include "quota/scheduler_state.h"
#include "quota/wait_reason.h"

namespace muster::quota {

Judgement Judge::Alone(QuotaScheduler& scheduler, const Workload& workload,
                       const Feasibility& feasible) {
  QuotaScheduler::State& state = *scheduler.state_;
  state.Refresh();
  state.room.EnterGang(workload);
  Entry& entry = *state.room.Find(workload.id);
  Judgement judgement;
  judgement.wait = entry.blocked;
  if (entry.kind != nullptr) {
    std::vector<Decision> none;
    Cycle cycle(state.ledger, state.room, state.options, absl::Time(), feasible, none);
    cycle.Judge(entry);
    judgement.mode = entry.assignment.mode;
    if (judgement.mode == AssignmentMode::kNoFit) {
      judgement.wait = ExplainRefusal(state.ledger, entry);
    } else {
      judgement.borrowing = entry.assignment.borrowing;
      judgement.pod_sets = cycle.AdmissionOf(entry).pod_sets;
    }
    for (const Target& target : entry.targets) {
      judgement.victims.push_back(
          {target.reservation->workload.id, target.reason, target.surplus_only});
    }
  }
  state.room.Leave(workload.id);
  return judgement;
}

}  // namespace muster::quota
