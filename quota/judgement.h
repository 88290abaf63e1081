// For tests that compare with another scheduler: what would be decided about one workload alone,
// and what without rules that are Muster's own.
#pragma once

#include <vector>

#include "quota/flavor_assigner.h"
#include "quota/quota_scheduler.h"

namespace muster::quota {

struct Judgement {
  AssignmentMode mode = AssignmentMode::kNoFit;  // kPreempt also where no victims would do
  int borrowing = 0;
  std::vector<PodSetAssignment> pod_sets;  // empty of kNoFit
  std::vector<Victim> victims;             // only of kPreempt
  Wait wait;                               // only of kNoFit
};

// Rules of README.md that Kueue doesn't have.
struct OwnRules {
  bool keeps_victims = true;  // and flavors, while they leave one after the other
  bool tries_again = true;    // with all flavors whom another was before with the first ones
  bool counts_pods = true;    // in what victims make room for; only of one workload alone
};

class Judge {
 public:
  // Against what is admitted now; nothing changes by asking. The workload must not wait in
  // `scheduler`, nor be admitted there.
  static Judgement Alone(QuotaScheduler& scheduler, const Workload& workload,
                         const Feasibility& feasible, const OwnRules& rules = {});
  // QuotaScheduler::Schedule without some of them. That may go round for ever, so there are at most
  // 100 passes under each root.
  static std::vector<Decision> Schedule(QuotaScheduler& scheduler, absl::Time now,
                                        const OwnRules& rules);
};

}  // namespace muster::quota
