// What is to be looked at, and when: the time of a step, the gangs about which something was
// learned, and those whose time has come.
//
// An owner that learns something about a gang notes it here; the engine takes the gangs in turn.
// Nothing else makes a gang be looked at, so a step costs what was noted: at most all gangs.
#pragma once

#include <algorithm>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "coscheduling/gang_key.h"

namespace muster::coscheduling {

class Agenda {
 public:
  // The time of what is observed and decided from now on. Never goes back.
  void AdvanceTo(absl::Time now) { now_ = std::max(now_, now); }
  absl::Time now() const { return now_; }

  // Something that the gang's decisions depend on has changed.
  void Note(GangId gang) { noted_.insert(gang); }
  bool HasNoted(GangId gang) const { return noted_.contains(gang); }
  // Only what is shown of it may have changed.
  void Show(GangId gang) { shown_.insert(gang); }
  // The gang is looked at once it is `time`. Of several times the earliest counts, until the gang
  // is taken.
  void NoteAt(GangId gang, absl::Time time);
  // There is a step at this time, whatever is observed until then.
  void WakeAt(absl::Time time) { wake_ = std::min(wake_, time); }

  // The gangs that were noted or whose time has come, each once; what was arranged for them by
  // NoteAt is over.
  absl::flat_hash_set<GangId> Take();
  // Those that were noted since, while they are being looked at: what was arranged for them stays.
  absl::flat_hash_set<GangId> TakeNoted() { return std::exchange(noted_, {}); }
  absl::flat_hash_set<GangId> TakeShown() { return std::exchange(shown_, {}); }
  void Forget(GangId gang);

  // Begins a step: what WakeAt said before is over.
  void BeginStep() { wake_ = absl::InfiniteFuture(); }
  // When the next step has something to do: now, if something was noted and not taken.
  absl::Time NextWake() const;

 private:
  void EndTimer(GangId gang);

  absl::Time now_ = absl::InfinitePast();
  absl::Time wake_ = absl::InfiniteFuture();
  absl::flat_hash_set<GangId> noted_;
  absl::flat_hash_set<GangId> shown_;
  std::set<std::pair<absl::Time, GangId>> timers_;
  absl::flat_hash_map<GangId, absl::Time> timer_of_;
};

}  // namespace muster::coscheduling
