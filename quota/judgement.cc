#include "quota/judgement.h"

#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "quota/cycle.h"
#include "quota/scheduler_state.h"
#include "quota/wait_reason.h"

namespace muster::quota {
namespace {

// What victims would make room for if the count of pods were left out.
std::vector<Target> TargetsWithoutPods(Ledger& ledger, const Entry& entry, bool fair_sharing) {
  std::vector<PairAmount> usage = entry.assignment.usage;
  std::erase_if(usage, [&](const PairAmount& each) {
    const int resource = ledger.names().Of(each.pair).resource;
    return each.amount == 0 || ledger.names().ResourceName(resource) == "pods";
  });
  return FindTargets(ledger, {.queue = entry.queue,
                              .priority = entry.workload.priority,
                              .queued_at = entry.workload.queued_at,
                              .usage = std::move(usage),
                              .needed = entry.assignment.needed,
                              .fair_sharing = fair_sharing});
}

}  // namespace

Judgement Judge::Alone(QuotaScheduler& scheduler, const Workload& workload,
                       const Feasibility& feasible, const OwnRules& rules) {
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
    if (!rules.counts_pods && entry.assignment.mode == AssignmentMode::kPreempt) {
      entry.targets = TargetsWithoutPods(state.ledger, entry, state.options.fair_sharing);
    }
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

std::vector<Decision> Judge::Schedule(QuotaScheduler& scheduler, absl::Time now,
                                      const OwnRules& rules) {
  constexpr int kMostPasses = 100;
  QuotaScheduler::State& state = *scheduler.state_;
  state.Refresh();
  std::vector<Decision> decisions;
  const Feasibility anywhere;
  Cycle cycle(state.ledger, state.room, state.options, now, anywhere, decisions);
  for (const int root : std::exchange(state.room.changed_roots(), {})) {
    cycle.Begin(root);
    bool may_differ = true;
    for (int pass = 0; may_differ && pass < kMostPasses; ++pass) {
      for (const std::unique_ptr<Entry>& entry : state.room.entries()) {
        entry->judged_version = -1;
        if (!rules.keeps_victims) entry->claimed_pass = -1;
        if (!rules.tries_again) entry->full_version = std::numeric_limits<int64_t>::max();
      }
      may_differ = cycle.Run(root);
    }
  }
  state.room.changed_roots().clear();
  return decisions;
}

}  // namespace muster::quota
