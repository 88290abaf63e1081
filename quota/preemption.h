// Whose quota to take back so that a workload fits (Kueue v0.19.2, pkg/scheduler/preemption).
//
// What an admitted workload has beyond its minMember (its surplus) is a candidate of its own: it
// stands before whole workloads of the same priority. Without any surplus the choice is Kueue's.
//
// All functions leave the ledger as they found it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "quota/ledger.h"
#include "quota/quota_scheduler.h"

namespace muster::quota {

// Who asks, for what.
struct PreemptionRequest {
  int queue = 0;
  int64_t priority = 0;
  absl::Time queued_at = {};
  std::vector<PairAmount> usage = {};  // every pair once
  std::vector<int> needed = {};        // pairs of which there is too little now
  bool fair_sharing = false;
};

// A part of a reservation that is to be taken back.
struct Target {
  Reservation* reservation = nullptr;
  bool surplus_only = false;
  VictimReason reason = VictimReason::kInClusterQueue;
  Reservation::Part gone_before = Reservation::Part::kNothing;  // of it, when this was taken
};

// The victims; empty if none suffice.
std::vector<Target> FindTargets(Ledger& ledger, const PreemptionRequest& request);

enum class Preemptability { kNoCandidates, kPreempt, kReclaim };
struct PreemptionOutlook {
  Preemptability possible = Preemptability::kNoCandidates;
  int borrowing = 0;  // afterwards (borrowing.h)
};
// Would preemption help with one pair alone? kReclaim if only other queues' workloads are hit.
PreemptionOutlook ForeseePreemption(Ledger& ledger, PreemptionRequest request);

// This much more fits on the queue at `node` now.
bool Fits(const QuotaTree& tree, int node, const std::vector<PairAmount>& usage);

// Takes usage of reservations out of the tree for as long as it lives.
class Removal {
 public:
  explicit Removal(Ledger& ledger) : ledger_(ledger) {}
  ~Removal();
  Removal(const Removal&) = delete;
  Removal& operator=(const Removal&) = delete;

  // Notes in the target what was gone before.
  void Take(Target& target);
  void TakeAll(std::vector<Target> targets) {
    for (Target& target : targets) Take(target);
  }
  // Undoes Take. False, and nothing done, if more of the same workload was taken since.
  bool PutBack(const Target& target);

 private:
  void Set(Reservation& reservation, Reservation::Part gone);

  Ledger& ledger_;
  std::vector<Reservation*> taken_;  // some may have been put back
};

}  // namespace muster::quota
