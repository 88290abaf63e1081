// Classical preemption: which workloads may go follows from priorities and from who is closer to
// the quota that is used (Kueue v0.19.2, pkg/scheduler/preemption/classical).
//
// Candidates are of three kinds: workloads of the own queue; those that use quota of a subtree in
// which the request would fit within the subtree's own quota (the one who asks is closer to it, so
// priorities don't matter beyond reclaimWithinCohort); and all other workloads of queues that
// borrow, for which borrowWithinCohort decides.
#include <algorithm>
#include <iterator>
#include <vector>

#include "quota/preemption_candidates.h"

namespace muster::quota {
namespace {

class Candidates {
 public:
  Candidates(const Ledger& ledger, const PreemptionRequest& request)
      : ledger_(ledger), tree_(ledger.tree()), request_(request) {
    AddCandidates(ledger, request, request.queue, {}, own_);
    CollectOtherQueues();
  }

  bool any_of_other_queues() const { return !closer_.empty() || !others_.empty(); }
  bool any_closer() const { return !closer_.empty(); }

  // Those that are being evicted first, by kind; each kind in its order.
  std::vector<Candidate> InOrder() {
    std::vector<Candidate> all;
    for (std::vector<Candidate>* kind : {&closer_, &others_, &own_}) {
      std::sort(kind->begin(), kind->end(), ComesBefore);
      std::copy_if(kind->begin(), kind->end(), std::back_inserter(all),
                   [](const Candidate& each) { return each.evicting; });
    }
    for (std::vector<Candidate>* kind : {&closer_, &others_, &own_}) {
      std::copy_if(kind->begin(), kind->end(), std::back_inserter(all),
                   [](const Candidate& each) { return !each.evicting; });
    }
    return all;
  }

 private:
  // Walks up from the queue. At each cohort: who of its subtree, except the part seen before, uses
  // more than its own quota? Once the rest of the request, after what nodes below keep for
  // themselves, fits in a subtree's quota, the queue is closer to it than all that come after.
  void CollectOtherQueues() {
    const QueueConfig& queue = ledger_.layout().queue(request_.queue);
    if (queue.object->preemption.reclaim_within_cohort == kube::ReclaimPolicy::kNever) return;
    std::vector<Amount> rest(request_.usage.size());
    for (size_t i = 0; i < rest.size(); ++i) rest[i] = request_.usage[i].amount;
    bool is_closer = PassOn(queue.node, rest);
    int seen = kNoNode;
    for (int at = tree_.node(queue.node).parent; at != kNoNode; at = tree_.node(at).parent) {
      Candidate like;
      like.meeting = at;
      like.reason = VictimReason::kReclamation;
      CollectSubtree(at, seen, like, is_closer ? closer_ : others_);
      is_closer = PassOn(at, rest) || is_closer;
      seen = at;
    }
    for (Candidate& each : closer_) each.forbids_borrowing = false;
    for (Candidate& each : others_) {
      if (!each.forbids_borrowing) each.reason = VictimReason::kReclaimWhileBorrowing;
    }
  }

  // Does what is left of the request fit in the node's own quota? Leaves what its parent must give.
  bool PassOn(int node, std::vector<Amount>& rest) const {
    bool fits = true;
    for (size_t i = 0; i < rest.size(); ++i) {
      const int pair = request_.usage[i].pair;
      fits = fits && !tree_.BorrowsWith(node, pair, rest[i]);
      rest[i] = std::max(Amount(0), rest[i] - tree_.LocalAvailable(node, pair));
    }
    return fits;
  }

  void CollectSubtree(int cohort, int skip, const Candidate& like, std::vector<Candidate>& into) {
    for (int child : tree_.node(cohort).child_cohorts) {
      if (child == skip || IsWithinQuota(tree_, child, request_.needed)) continue;
      CollectSubtree(child, skip, like, into);
    }
    for (int child : tree_.node(cohort).child_queues) {
      const int queue = ledger_.layout().queue_of_node[static_cast<size_t>(child)];
      if (queue == request_.queue || IsWithinQuota(tree_, child, request_.needed)) continue;
      AddCandidates(ledger_, request_, queue, like, into);
    }
  }

  const Ledger& ledger_;
  const QuotaTree& tree_;
  const PreemptionRequest& request_;
  std::vector<Candidate> own_;
  std::vector<Candidate> closer_;
  std::vector<Candidate> others_;
};

// Taking others back may have brought its queue, or a cohort below where the ways meet, within its
// own quota.
bool StillBorrows(const Ledger& ledger, const PreemptionRequest& request,
                  const Candidate& candidate) {
  const QuotaTree& tree = ledger.tree();
  int at = ledger.layout().queue(candidate.reservation->queue).node;
  for (; at != candidate.meeting && at != kNoNode; at = tree.node(at).parent) {
    if (IsWithinQuota(tree, at, request.needed)) return false;
  }
  return true;
}

bool IsUnderNominal(const Ledger& ledger, const PreemptionRequest& request) {
  const int node = ledger.layout().queue(request.queue).node;
  return std::all_of(request.needed.begin(), request.needed.end(), [&](int pair) {
    return ledger.tree().Usage(node, pair) < Amount(ledger.tree().Nominal(node, pair));
  });
}

// With borrowing fewer candidates are allowed, without it less is available: either may do.
std::vector<bool> BorrowingAttempts(const Ledger& ledger, const PreemptionRequest& request,
                                    const Candidates& candidates) {
  const bool forbidden =
      !ledger.layout().queue(request.queue).object->preemption.borrow_from_lower_priority;
  if (!candidates.any_of_other_queues()) return {true};
  if (forbidden && !IsUnderNominal(ledger, request)) return {true};
  if (forbidden && !candidates.any_closer()) return {false, true};
  return {true, false};
}

}  // namespace

std::vector<Target> FindClassicalTargets(Ledger& ledger, const PreemptionRequest& request) {
  Candidates candidates(ledger, request);
  const std::vector<bool> attempts = BorrowingAttempts(ledger, request, candidates);
  const std::vector<Candidate> in_order = candidates.InOrder();
  for (const bool may_borrow : attempts) {
    Removal removal(ledger);
    std::vector<Target> targets;
    for (const Candidate& each : in_order) {
      if (!each.of_own_queue) {
        if (may_borrow && each.forbids_borrowing) continue;
        if (!StillBorrows(ledger, request, each)) continue;
      }
      targets.push_back({each.reservation, each.surplus_only, each.reason});
      removal.Take(targets.back());
      if (!Fits(ledger, request, may_borrow)) continue;
      return FillBack(ledger, request, removal, std::move(targets), may_borrow);
    }
  }
  return {};
}

}  // namespace muster::quota
