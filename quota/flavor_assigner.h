// Which flavor each resource of a workload gets, and what stands in the way where none is free
// (Kueue v0.19.2, pkg/scheduler/flavorassigner/flavorassigner.go).
//
// Pod set by pod set, and in each resource group by resource group, flavors are tried in the order
// of the ClusterQueue. All resources of a group get the same flavor, as bad as the worst of them is
// there; flavorFungibility says when a flavor is good enough not to look at the next, and which of
// those looked at is the best. What earlier pod sets got counts for later ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "quota/demand.h"
#include "quota/ledger.h"
#include "quota/preemption.h"

namespace muster::quota {

enum class AssignmentMode { kNoFit, kPreempt, kFit };

// Why a flavor wasn't given. Numbers are those of the moment of the decision.
struct FlavorRefusal {
  enum class Kind { kNotCovered, kMismatch, kTooSmall, kInUse, kNotPlaceable };
  Kind kind = Kind::kMismatch;
  int pod_set = 0;
  int flavor = -1;    // not of kNotCovered
  int resource = -1;  // not of kMismatch and kNotPlaceable
  int64_t wanted = 0;
  int64_t unadmitted = 0;   // of `wanted`, what runs in its namespace without admission
  int64_t limit = 0;        // kTooSmall: what there could be at most; kInUse: what is unused
  std::string detail = {};  // of kMismatch and kNotPlaceable
};

struct Assignment {
  struct Choice {
    int pod_set = 0;
    int resource = 0;
    int flavor = 0;
    int pair = 0;
    int64_t amount = 0;
    AssignmentMode mode = AssignmentMode::kFit;
  };
  // The worst of its choices; kNoFit if a pod set has none (`choices` ends before or in it).
  AssignmentMode mode = AssignmentMode::kFit;
  int borrowing = 0;              // borrowing.h
  std::vector<Choice> choices;    // by pod set
  std::vector<PairAmount> usage;  // of all pod sets, every pair once
  std::vector<int> needed;        // pairs that only preemption can make available
  // Flavors that weren't free, in the order in which they were tried, of groups that got none that
  // is free. From `decisive` on of the group that got none at all (kNoFit).
  std::vector<FlavorRefusal> refusals;
  size_t decisive = 0;
  // By group of each pod set in turn: how many flavors the next attempt leaves out; 0 after the
  // last flavor.
  std::vector<int> next_flavor;

  bool HasUntriedFlavors() const;
  // Of the decisive refusals, is there one of this kind?
  bool IsRefusedFor(FlavorRefusal::Kind kind) const;
};

struct AssignmentRequest {
  int queue = 0;
  int64_t priority = 0;
  absl::Time queued_at = {};
  bool fair_sharing = false;
  const Demand* demand = nullptr;
  const std::vector<int>* next_flavor = nullptr;  // of the last attempt; may be null
  // What it must fit beside, though it isn't counted (Ledger::UnadmittedIn); may be null.
  const std::vector<PairAmount>* unadmitted = nullptr;
  // "" if this pod set may have this flavor, as far as nodes go. May be empty: it always may.
  std::function<const std::string&(int pod_set, const GroupFlavor&)> placeable = nullptr;
};

// Leaves the ledger as it found it.
Assignment AssignFlavors(Ledger& ledger, const AssignmentRequest& request);

}  // namespace muster::quota
