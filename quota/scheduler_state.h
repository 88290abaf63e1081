// What a QuotaScheduler is made of. Only its own sources include this.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "quota/ledger.h"
#include "quota/quota_scheduler.h"
#include "quota/waiting_room.h"

namespace muster::quota {

struct QuotaScheduler::State {
  explicit State(QuotaOptions given) : options(std::move(given)), room(ledger, options.resources) {
    ledger.SetMayEvict([this](std::string_view id, bool surplus_only) {
      if (const auto orphan = orphans.find(id); orphan != orphans.end()) return orphan->second;
      return options.may_evict == nullptr || options.may_evict(id, surplus_only);
    });
  }

  // Of what the ledger is made from; returns `changed`.
  bool Note(bool changed) {
    if (changed) ledger.MarkStale();
    return changed;
  }

  // Brings layout, usage and lines up to date with the objects.
  void Refresh() {
    if (!ledger.Refresh()) return;
    room.Resettle();
    ledger.ReserveRoom(room.entries().size());
  }

  // kNoNode if it isn't counted, or may not be where it was.
  int RootOf(const Reservation* reservation) const;
  void Wake(int root);  // unless it is kNoNode
  void GiveBack(std::string_view id);
  // The root of the quota tree that the workload's queue is in; kNoNode if there is none.
  int RootOf(const kube::Workload& workload) const;
  bool IsHeld(int root) const { return held.contains(root); }
  // Of an orphan: what its pods use is paid for, so not unadmitted as well.
  void SetPaid(const Reservation& orphan, bool paid);

  const QuotaOptions options;
  Ledger ledger;
  WaitingRoom room;
  Wait closed;                                       // why nobody is admitted
  std::set<int> held;                                // roots under which nobody is
  std::map<std::string, bool, std::less<>> orphans;  // counted, by id; true: going
};

}  // namespace muster::quota
