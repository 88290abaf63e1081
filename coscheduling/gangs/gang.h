// A gang as everybody sees it: what was observed of its objects, and its standing. Gangs alone
// writes it; what else is kept of a gang is private to the owner that decides it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/time/time.h"
#include "coscheduling/gang_key.h"
#include "coscheduling/gangs/gang_state.h"
#include "coscheduling/gangs/job_gangs.h"
#include "coscheduling/reason.h"
#include "kube/objects/expected_runtime.h"
#include "kube/objects/not_honoured.h"
#include "kube/objects/topology_asked.h"
#include "kube/objects/workload.h"

namespace muster::coscheduling {

// A time after which something is to be looked at again; never, by default.
inline absl::Time Never() { return absl::InfiniteFuture(); }

struct Gang {
  GangId id = GangId::kNone;
  GangKey key;

  // --- observed ---
  std::shared_ptr<const kube::PodGroup> group;  // null: none, or a gang of one
  absl::btree_set<std::string> pods;            // UIDs of all that name it
  // What its pods' owner or Kueue's label says, if that is what makes it a gang.
  std::optional<DerivedGang> derived;
  // UID of a job of which it is all, that is suspended or whose pods are awaited: the gang is there
  // before them, and `derived` says what they will be. Empty: its pods alone make it a gang.
  std::string spec_of;

  // --- read off the above (Gangs::Read) ---
  std::vector<std::string> unbound;  // live members without a node, UIDs in rank order
  std::vector<std::string> bound;    // live members with a node, UIDs in rank order
  int64_t members = 0;               // pods that aren't being deleted
  int64_t running = 0;
  // Of the first member that has one: an owner that isn't known (Derivation::missing).
  std::optional<kube::OwnerReference> missing_owner;
  // Kueue's labels on the first member that has one, else on the PodGroup, else on the first
  // member's owners, innermost first. They stay once no member is live.
  std::string queue_name;
  std::string priority_class_name;
  std::string max_seconds;  // of execution
  bool unmade = false;      // spec_of, and none of its members is there yet, or any more
  bool ours = false;        // some member names our scheduler
  const kube::NotHonoured* not_honoured = nullptr;  // of what it asks for; null normally
  kube::TopologyAsked topology;                     // where its members ask to be
  kube::ExpectedRuntime expected_runtime;           // what it says that it runs
  int32_t priority = 0;
  bool preempts = true;  // no member's preemptionPolicy is Never
  absl::Time created = absl::InfinitePast();

  // --- its standing, put together by the engine from what all owners say (Gangs::Settle, Enter)
  // ---
  GangFacts facts;
  Reason blocker;              // while facts.blocked
  std::set<std::string> lost;  // live members whose nodes are lost
  v1::GangState state = v1::GANG_STATE_UNSPECIFIED;
  absl::Time state_since = absl::InfinitePast();

  // Of the PodGroup, or of the pod for a gang of one.
  std::string uid() const {
    if (group != nullptr) return group->meta.uid;
    return key.is_pod && !pods.empty() ? *pods.begin() : "";
  }
  // Members still to be placed for it to be whole.
  int64_t required() const {
    return std::max<int64_t>(0, facts.min_member - facts.succeeded - facts.bound);
  }
  // How many bound members, first in rank order, it needs to go on; the others are surplus.
  size_t kept() const {
    return static_cast<size_t>(std::max<int64_t>(0, facts.min_member - facts.succeeded));
  }
};

}  // namespace muster::coscheduling
