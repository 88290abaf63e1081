// What classical and fair preemption share: who may be preempted at all, and in which order.
#pragma once

#include <vector>

#include "quota/preemption.h"

namespace muster::quota {

struct Candidate {
  Reservation* reservation = nullptr;
  bool surplus_only = false;
  bool evicting = false;      // named as a victim before
  bool of_own_queue = false;  // of the one who asks
  VictimReason reason = VictimReason::kInClusterQueue;
  // Classical preemption only. At which cohort its way to the root meets that of the one who asks,
  // and whether it may be taken only if that one borrows nothing.
  int meeting = kNoNode;
  bool forbids_borrowing = false;
};

// Victims named before first; then other queues before the own; lower priority first; surplus
// before whole workloads; then what was reserved last; then by id.
bool ComesBefore(const Candidate& a, const Candidate& b);

// Adds the candidates of one queue that use what is needed and whose priority (or age) allows it.
// `like` is copied for each.
void AddCandidates(const Ledger& ledger, const PreemptionRequest& request, int queue,
                   const Candidate& like, std::vector<Candidate>& candidates);

// All of `needed` is used within what the node's subtree has.
bool IsWithinQuota(const QuotaTree& tree, int node, const std::vector<int>& needed);

// The request fits now; without borrowing, or also with.
bool Fits(const Ledger& ledger, const PreemptionRequest& request, bool may_borrow);

// Puts back what wasn't necessary, last taken first, and leaves out surplus of workloads that go as
// a whole. `targets` are what `removal` took, in that order.
std::vector<Target> FillBack(const Ledger& ledger, const PreemptionRequest& request,
                             Removal& removal, std::vector<Target> targets, bool may_borrow);

std::vector<Target> FindClassicalTargets(Ledger& ledger, const PreemptionRequest& request);
std::vector<Target> FindFairTargets(Ledger& ledger, const PreemptionRequest& request);

}  // namespace muster::quota
