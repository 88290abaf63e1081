// A gang as the engine sees it: what was observed, and what has been decided about it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coscheduling/admission/record.h"
#include "coscheduling/commit/losses.h"
#include "coscheduling/engine.h"
#include "coscheduling/gangs/gang_state.h"
#include "coscheduling/gangs/job_gangs.h"
#include "coscheduling/placement/planner/planner.h"
#include "coscheduling/placement/refused_nodes.h"
#include "coscheduling/provisioning/feasibility.h"
#include "coscheduling/reason.h"
#include "kube/objects/workload.h"

namespace muster::coscheduling {

// A time after which something is to be looked at again; never, by default.
inline absl::Time Never() { return absl::InfiniteFuture(); }

struct Gang;
// Gangs by the places that their descriptions show.
using ShownOn = std::map<std::string, std::set<Gang*>>;

// What quota/ knows of a gang.
struct GangQuota {
  // As it was told last.
  struct Known {
    quota::Workload workload;
    std::optional<quota::Admission> admission;  // counted; nullopt: in the queue
    size_t uncounted = 0;
  };
  std::optional<Known> known;
  bool Waits() const { return known && !known->admission; }
  // Decided, but not yet in the record.
  std::optional<quota::Admission> granted;
  std::optional<Eviction> eviction;
  // Unbound members that no quota was given for.
  std::set<std::string> uncounted;
  // The last refusal of a patch that gives a member its flavors, until one is accepted.
  std::string flavors_error;
  // Since when nothing of the gang stands or may start, though it holds quota.
  absl::Time idle_since = Never();
};

// Another flavor that its queue has, for a gang that gave up on those that its members carry.
struct Fallback {
  std::string flavor;
  std::string why;      // a sentence: what was tried, what can be used instead
  std::string why_not;  // its members can't be made anew, or mustn't; empty: its job is restarted
  std::string fix;      // of why_not
};

struct Gang {
  GangKey key;

  // --- observed ---
  std::shared_ptr<const kube::PodGroup> group;  // null: none, or a gang of one
  std::set<std::string> pods;                   // UIDs of all that name it
  // What its pods' owner or Kueue's label says, if that is what makes it a gang.
  std::optional<DerivedGang> derived;
  // From the PodGroup's annotation; kept only here for a gang of one.
  std::optional<AdmissionRecord> record;

  // --- derived from the above by Refresh (membership.cc) ---
  GangFacts facts;
  std::vector<std::string> unbound;  // live members without a node, UIDs in rank order
  std::vector<std::string> bound;    // live members with a node, UIDs in rank order
  std::set<std::string> lost;        // those of them whose nodes are lost
  Losses losses;                     // since it was last whole
  int64_t members = 0;               // pods that aren't being deleted
  int64_t running = 0;
  Reason blocker;  // while facts.blocked
  // Of the first member that has one: an owner that isn't known.
  std::optional<kube::OwnerReference> missing_owner;
  // Kueue's labels on the first member that has one, else on the PodGroup, else on the first
  // member's owners, innermost first. They stay once no member is live.
  std::string queue_name;
  std::string priority_class_name;
  bool ours = false;  // some member names our scheduler
  int32_t priority = 0;
  absl::Time created = absl::InfinitePast();

  // --- decided by the placement pass (placement.cc) ---
  // Places that are being carried out: assumed in the snapshot, on usable nodes.
  std::map<std::string, std::string> fixed;
  // Places counted on while nodes come: assumed too if `tentative_assumed`.
  std::map<std::string, std::string> tentative;
  bool tentative_assumed = false;
  bool coming_suffices = false;  // `tentative` is complete
  bool short_of_nodes = false;   // not even what is coming suffices
  bool min_resources_short = false;
  // While backing off: what is free suffices, or may with what capacity there is again.
  bool fits_now = false;
  PlanShortfall shortfall;
  RefusedNodes refused_nodes;

  // Of what it asks for first of all; null: it isn't asked, because something of it stands or is
  // being carried out.
  std::shared_ptr<const Feasibility> feasibility;

  GangQuota quota;
  std::optional<Fallback> fallback;
  // Its job was being restarted a moment ago: members may not be there yet.
  absl::Time remade_until = absl::InfinitePast();

  // --- under way ---
  std::string record_error;  // the last refusal of the admission record, until it is accepted
  absl::Time missing_owner_since = Never();
  bool group_behind = false;  // its derived PodGroup is to be created or changed
  bool signalled = false;     // stays until the gang leaves PROVISIONING
  bool commit_started = false;
  std::map<std::string, absl::Time> posted;  // member UID -> binding accepted, not seen yet
  absl::Time signalled_at = absl::InfinitePast();
  // Since when NodePools can't make the nodes that it is short of within their limits, and how many
  // of them they can.
  absl::Time limits_reached_since = Never();
  int64_t missing = 0;
  int64_t makeable = 0;
  absl::Time next_late = Never();  // when a node that only takes its time becomes a setback
  absl::Time guard_since = absl::InfinitePast();  // starvation guard
  absl::Time repairing_since = Never();
  absl::Time woken_at = absl::InfinitePast();
  std::string binding_error;  // the last failed binding, until it is bound

  // --- shown ---
  v1::GangState state = v1::GANG_STATE_UNSPECIFIED;
  Reason reason;
  absl::Time state_since = absl::InfinitePast();
  std::optional<absl::Time> bound_at;
  uint64_t revision = 0;
  bool stale = true;                            // what is shown may be old
  size_t shown_digest = 0;                      // of the description shown last; 0: none
  std::vector<ShownOn::iterator> shown_places;  // in it
  absl::Time status_written = absl::InfinitePast();
  std::string status_digest;  // of the status written last
  v1::GangState status_state = v1::GANG_STATE_UNSPECIFIED;

  bool dirty = true;
  // All that it waits for is being written: it has nothing to place, and nothing to decide.
  bool awaits_writes = false;
  // Waits for quota or for other NodePools, or for writes that are under way, and there was nothing
  // to do for it when it was looked at last.
  bool at_rest = false;

  std::string uid() const;   // of the PodGroup, or of the pod for a gang of one
  int64_t required() const;  // members still to be placed for the gang to be whole
};

// First claim first: gangs that already have members bound, then priority, then age, then name.
bool PlacedBefore(const Gang& a, const Gang& b);

}  // namespace muster::coscheduling
