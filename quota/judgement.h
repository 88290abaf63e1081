// What would be decided about one workload alone, against what is admitted now. For tests that
// compare with another scheduler; nothing changes by asking.
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

class Judge {
 public:
  // The workload must not wait in `scheduler`, nor be admitted there.
  static Judgement Alone(QuotaScheduler& scheduler, const Workload& workload,
                         const Feasibility& feasible);
};

}  // namespace muster::quota
