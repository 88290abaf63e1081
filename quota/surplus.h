// Members beyond minMember: they are counted as far as they fit without preemption, each pod set
// as many as there is room for.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "quota/flavor_assigner.h"
#include "quota/ledger.h"
#include "quota/workload.h"

namespace muster::quota {

// Workload::surplus without what `admission` counts already.
std::vector<PodSet> UncountedSurplus(const Workload& workload, const Admission& admission);

struct SurplusGrant {
  std::vector<PodSetAssignment> pod_sets;  // with at least one pod; empty: nothing fits
  std::vector<PairAmount> usage;           // every pair once
  int borrowing = 0;
  std::vector<FlavorRefusal> refusals;
};

// How many pods of `asked` fit beside all that is counted now. A pod set that its gang has already
// under the same name gets the same flavors, others are assigned as for a workload.
// `demand` is that of `asked` in the reservation's queue.
SurplusGrant FitSurplus(Ledger& ledger, const Reservation& reservation,
                        const std::vector<PodSet>& asked, const Demand& demand,
                        const AssignmentRequest& request);

}  // namespace muster::quota
