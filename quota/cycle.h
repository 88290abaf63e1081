// One pass over the heads of all queues under one root of the quota tree (Kueue v0.19.2,
// pkg/scheduler/scheduler.go): each is given flavors on the same state, then they are admitted, or
// get their victims named, one after the other, as long as what the earlier ones took leaves room.
//
// What a pass only sets aside, for somebody whose victims still run or who can't be helped yet, is
// set aside for this pass. Trees under different roots share nothing, so each has passes of its
// own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "quota/ledger.h"
#include "quota/quota_scheduler.h"
#include "quota/waiting_room.h"

namespace muster::quota {

class Cycle {
 public:
  // All arguments must outlive it. Appends to `decisions`.
  Cycle(Ledger& ledger, WaitingRoom& room, const QuotaOptions& options, absl::Time now,
        const Feasibility& feasible, std::vector<Decision>& decisions)
      : ledger_(ledger),
        room_(room),
        options_(options),
        now_(now),
        feasible_(feasible),
        decisions_(decisions) {}

  // Of passes that repeat until one comes to the same.
  void Begin(int root) { first_pass_ = room_.LastPass(root) + 1; }
  // False once another pass would come to the same.
  bool Run(int root);

  // Gives the entry flavors and victims on the present state, unless it has them from this very
  // state. The judging half of a pass, also for one workload alone.
  void Judge(Entry& entry);
  // What a judged entry that isn't surplus would be given.
  Admission AdmissionOf(const Entry& entry) const;

 private:
  // Used in this pass by those who don't have it yet; given back at its end.
  struct SetAside {
    int node = 0;
    std::vector<PairAmount> usage;
  };

  void JudgeGang(Entry& entry);
  void JudgeSurplus(Entry& entry);
  // Of the attempt before; whether it stands.
  bool KeepsChoice(Entry& entry, Assignment& before);
  bool IsPlaceable(Entry& entry, const Assignment& assignment) const;
  AssignmentRequest RequestOf(Entry& entry) const;
  // What there must be for it to get `usage`.
  std::vector<PairAmount> Needed(const Entry& entry, std::vector<PairAmount> usage) const;
  const std::string& Placement(Entry& entry, int pod_set, const GroupFlavor& flavor) const;

  static bool StepsAside(const Entry& entry);
  // All four say whether the next pass may differ because of it.
  bool Process(Entry& entry);
  bool Admit(Entry& entry);
  bool NameVictims(Entry& entry);
  bool Requeue(Entry& entry);
  // Whether the next attempt leaves out the flavors that this one tried.
  bool KeepFlavors(Entry& entry);

  bool FitsBeside(const Entry& entry);
  void Reserve(const Entry& entry);
  void Use(const Entry& entry, std::vector<PairAmount> usage);
  void Announce(const Entry& entry, std::shared_ptr<const Admission> admission);

  Ledger& ledger_;
  WaitingRoom& room_;
  const QuotaOptions& options_;
  const absl::Time now_;
  const Feasibility& feasible_;
  std::vector<Decision>& decisions_;
  NameMap<size_t> admitted_now_;  // index in decisions_
  int64_t first_pass_ = 0;        // since Begin

  // Of the running pass.
  std::vector<Target> victims_;
  std::vector<SetAside> set_aside_;
};

}  // namespace muster::quota
