// The line in front of one ClusterQueue: who is next, and who waits for a change.
//
// Rank: priority, then queued_at, then id. Entries with equal demands form a class: an attempt that
// quota refused would be refused to all of the class, and parks them at once. An attempt that
// something else decided (a placement) parks only its own entry. A change that may help wakes all.
// Adding, parking, waking and removing cost the logarithm of the number of classes or entries.
//
// As in Kueue v0.19.2, pkg/cache/queue/cluster_queue.go, but that a class is tried again when it
// gets another member (README.md).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "quota/demand.h"
#include "quota/flavor_assigner.h"
#include "quota/preemption.h"
#include "quota/quota_scheduler.h"
#include "quota/workload.h"

namespace muster::quota {

struct EntryClass;

// Something that waits: a workload, or what an admitted one wants beyond its minMember.
struct Entry {
  Workload workload;
  bool is_surplus = false;
  std::vector<PodSet> asked;  // of a surplus: what isn't counted yet

  // Where it stands. `blocked` says why it stands in no line.
  int queue = -1;
  EntryClass* kind = nullptr;  // null: in no line
  bool parked_alone = false;
  Wait blocked;

  // The last attempt, and what it was made on.
  Assignment assignment;
  std::vector<Target> targets;
  int64_t judged_version = -1;    // Ledger::Version
  int64_t full_version = -1;      // ... when all flavors were tried last; -1: to be tried again
  int64_t skipped_version = -1;   // ... when it left out a flavor that was another's in that pass
  std::vector<int> next_flavor;   // empty: all are tried
  int64_t next_flavor_wakes = 0;  // ... valid while the line was woken so often
  int64_t next_flavor_pass = 0;   // ... and in the pass after this one
  size_t flavor_attempts = 0;     // that left flavors out, on one state
  int64_t attempts_version = -1;  // ... which was this
  std::vector<Victim> reported;   // victims as last decided
  int64_t claimed_pass = -1;      // ... which were its own in this pass
  std::map<std::pair<int, int>, std::string> placements;  // by pod set and flavor
  int64_t placements_epoch = -1;
};

struct ByRank {
  bool operator()(const Entry* a, const Entry* b) const;
};

struct EntryClass {
  std::string key;
  Demand demand;
  std::set<Entry*, ByRank> ready;  // all of the class that aren't parked alone
  std::set<Entry*, ByRank> alone;
  bool parked = false;
  Assignment refused;  // the attempt that parked it
};

class WaitingLine {
 public:
  // `key` tells classes apart; `demand` is called for the first entry of a class.
  template <typename MakeDemandFunction>
  void Add(Entry* entry, std::string key, const MakeDemandFunction& demand) {
    std::unique_ptr<EntryClass>& kind = classes_[key];
    if (kind == nullptr) {
      kind = std::make_unique<EntryClass>();
      kind->key = std::move(key);
      kind->demand = demand();
    }
    Join(entry, kind.get());
  }
  void Remove(Entry* entry);

  // The next to be tried; null if there is none.
  Entry* Head() const;
  // What is tried before all others, unless it is parked, until it is removed or another takes its
  // place; null: nobody is.
  void Stick(Entry* entry);

  void ParkClass(Entry* entry);  // for the refusals of its assignment
  void ParkAlone(Entry* entry);
  // One that was parked, alone or with its class.
  void Wake(Entry* entry);
  // True if any was parked.
  bool WakeAll();
  int64_t wakes() const { return wakes_; }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // All of them, first in line first. Valid until the line changes.
  const std::vector<const Entry*>& InOrder() const;

 private:
  struct ByFirst {
    bool operator()(const EntryClass* a, const EntryClass* b) const {
      return ByRank()(*a->ready.begin(), *b->ready.begin());
    }
  };
  void Join(Entry* entry, EntryClass* kind);
  void Unlist(EntryClass* kind);  // before its first entry may change
  void List(EntryClass* kind);

  absl::flat_hash_map<std::string, std::unique_ptr<EntryClass>> classes_;
  std::set<EntryClass*, ByFirst> awake_;  // those with ready entries that aren't parked
  std::set<EntryClass*> asleep_;          // parked, or with entries that are parked alone
  Entry* sticky_ = nullptr;
  size_t size_ = 0;
  int64_t wakes_ = 0;
  // Made when asked for.
  mutable std::vector<const Entry*> in_order_;
  mutable bool order_is_current_ = false;
};

}  // namespace muster::quota
