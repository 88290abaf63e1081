#include "quota/preemption_candidates.h"

#include <algorithm>
#include <string_view>
#include <tuple>

namespace muster::quota {
namespace {

using Part = Reservation::Part;

bool UsesAny(const std::vector<PairAmount>& amounts, const std::vector<int>& pairs) {
  return std::any_of(amounts.begin(), amounts.end(), [&](const PairAmount& each) {
    return std::find(pairs.begin(), pairs.end(), each.pair) != pairs.end();
  });
}

bool AllowsWithinQueue(const kube::PreemptionPolicy& policy, const PreemptionRequest& request,
                       const Workload& candidate) {
  switch (policy.within_cluster_queue) {
    case kube::WithinQueuePolicy::kNever:
      return false;
    case kube::WithinQueuePolicy::kLowerPriority:
      return request.priority > candidate.priority;
    case kube::WithinQueuePolicy::kLowerOrNewerEqualPriority:
      return request.priority > candidate.priority ||
             (request.priority == candidate.priority && request.queued_at < candidate.queued_at);
  }
  return false;
}

bool AllowsWithinCohort(const kube::PreemptionPolicy& policy, const PreemptionRequest& request,
                        const Workload& candidate) {
  switch (policy.reclaim_within_cohort) {
    case kube::ReclaimPolicy::kNever:
      return false;
    case kube::ReclaimPolicy::kLowerPriority:
      return request.priority > candidate.priority;
    case kube::ReclaimPolicy::kAny:
      return true;
  }
  return false;
}

// Only of other queues, where borrowing is asked for while taking back.
bool ForbidsBorrowing(const kube::PreemptionPolicy& policy, const PreemptionRequest& request,
                      const Workload& candidate) {
  if (!policy.borrow_from_lower_priority || candidate.priority >= request.priority) return true;
  return policy.borrow_max_priority_threshold &&
         candidate.priority > *policy.borrow_max_priority_threshold;
}

}  // namespace

bool ComesBefore(const Candidate& a, const Candidate& b) {
  const Workload& left = a.reservation->workload;
  const Workload& right = b.reservation->workload;
  return std::tuple(!a.evicting, a.of_own_queue, left.priority, !a.surplus_only,
                    b.reservation->admission->reserved_at, std::string_view(left.id)) <
         std::tuple(!b.evicting, b.of_own_queue, right.priority, !b.surplus_only,
                    a.reservation->admission->reserved_at, std::string_view(right.id));
}

void AddCandidates(const Ledger& ledger, const PreemptionRequest& request, int queue,
                   const Candidate& like, std::vector<Candidate>& candidates) {
  const kube::PreemptionPolicy& policy = ledger.layout().queue(request.queue).object->preemption;
  for (Reservation* reservation : ledger.OnQueue(queue)) {
    Candidate candidate = like;
    candidate.reservation = reservation;
    candidate.of_own_queue = queue == request.queue;
    if (candidate.of_own_queue) {
      if (!AllowsWithinQueue(policy, request, reservation->workload)) continue;
      candidate.reason = VictimReason::kInClusterQueue;
    } else {
      if (!AllowsWithinCohort(policy, request, reservation->workload)) continue;
      candidate.forbids_borrowing = ForbidsBorrowing(policy, request, reservation->workload);
    }
    const bool surplus_uses = UsesAny(reservation->surplus, request.needed);
    const bool in_parts = !reservation->surplus.empty() && reservation->marked != Part::kAll;
    if (in_parts && surplus_uses && ledger.MayEvict(*reservation, true)) {
      candidate.surplus_only = true;
      candidate.evicting = reservation->marked == Part::kSurplus;
      candidates.push_back(candidate);
    }
    const bool whole_uses =
        UsesAny(reservation->base, request.needed) || (!in_parts && surplus_uses);
    if (whole_uses && ledger.MayEvict(*reservation, false)) {
      candidate.surplus_only = false;
      candidate.evicting = reservation->marked == Part::kAll;
      candidates.push_back(candidate);
    }
  }
}

bool IsWithinQuota(const QuotaTree& tree, int node, const std::vector<int>& needed) {
  return std::none_of(needed.begin(), needed.end(),
                      [&](int pair) { return tree.BorrowsWith(node, pair, 0); });
}

bool Fits(const QuotaTree& tree, int node, const std::vector<PairAmount>& usage) {
  return std::all_of(usage.begin(), usage.end(), [&](const PairAmount& each) {
    return each.amount == 0 || Amount(each.amount) <= tree.Available(node, each.pair);
  });
}

bool Fits(const Ledger& ledger, const PreemptionRequest& request, bool may_borrow) {
  const int node = ledger.layout().queue(request.queue).node;
  if (!Fits(ledger.tree(), node, request.usage)) return false;
  return may_borrow ||
         std::none_of(request.usage.begin(), request.usage.end(), [&](const PairAmount& each) {
           return ledger.tree().BorrowsWith(node, each.pair, each.amount);
         });
}

std::vector<Target> FillBack(const Ledger& ledger, const PreemptionRequest& request,
                             Removal& removal, std::vector<Target> targets, bool may_borrow) {
  for (size_t i = targets.size() - 1; i-- > 0;) {
    if (!removal.PutBack(targets[i])) continue;
    if (Fits(ledger, request, may_borrow)) {
      targets[i] = targets.back();
      targets.pop_back();
    } else {
      removal.Take(targets[i]);
    }
  }
  std::erase_if(targets, [](const Target& target) {
    return target.surplus_only && target.reservation->gone == Part::kAll;
  });
  return targets;
}

void Removal::Set(Reservation& reservation, Part gone) {
  const int node = ledger_.layout().queue(reservation.queue).node;
  const Part before = reservation.gone;
  if ((before == Part::kNothing) != (gone == Part::kNothing)) {
    if (gone == Part::kNothing) {
      ledger_.tree().AddUsage(node, reservation.surplus);
    } else {
      ledger_.tree().RemoveUsage(node, reservation.surplus);
    }
  }
  if ((before == Part::kAll) != (gone == Part::kAll)) {
    if (before == Part::kAll) {
      ledger_.tree().AddUsage(node, reservation.base);
    } else {
      ledger_.tree().RemoveUsage(node, reservation.base);
    }
  }
  reservation.gone = gone;
}

void Removal::Take(Target& target) {
  target.gone_before = target.reservation->gone;
  const Part gone = PartOf(target.surplus_only);
  if (target.gone_before >= gone) return;
  Set(*target.reservation, gone);
  taken_.push_back(target.reservation);
}

bool Removal::PutBack(const Target& target) {
  if (target.reservation->gone != PartOf(target.surplus_only)) return false;
  Set(*target.reservation, target.gone_before);
  return true;
}

Removal::~Removal() {
  for (Reservation* reservation : taken_) Set(*reservation, Part::kNothing);
}

}  // namespace muster::quota
