#include "quota/preemption.h"

#include <algorithm>

#include "quota/borrowing.h"
#include "quota/preemption_candidates.h"

namespace muster::quota {

std::vector<Target> FindTargets(Ledger& ledger, const PreemptionRequest& request) {
  return request.fair_sharing ? FindFairTargets(ledger, request)
                              : FindClassicalTargets(ledger, request);
}

PreemptionOutlook ForeseePreemption(Ledger& ledger, PreemptionRequest request) {
  const std::vector<Target> targets = FindTargets(ledger, request);
  Removal removal(ledger);
  removal.TakeAll(targets);
  PreemptionOutlook outlook;
  const PairAmount& asked = request.usage.front();
  const int node = ledger.layout().queue(request.queue).node;
  outlook.borrowing = FindReach(ledger.tree(), node, asked.pair, asked.amount).height;
  if (targets.empty()) return outlook;
  const bool hits_own = std::any_of(targets.begin(), targets.end(), [&](const Target& target) {
    return target.reservation->queue == request.queue;
  });
  outlook.possible = hits_own ? Preemptability::kPreempt : Preemptability::kReclaim;
  return outlook;
}

}  // namespace muster::quota
