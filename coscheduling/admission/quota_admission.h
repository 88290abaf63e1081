// Quota of gangs: who waits for it, holds it, gives it back, and what it gives them.
//
// A gang holds quota while its record says so. What quota/ decides is counted there at once and
// kept here as granted until the record shows it, so nothing is given twice meanwhile. Usage is
// the sum of the records, so a restart counts the same.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_map.h"
#include "cluster/disruption_budgets.h"
#include "cluster/snapshot.h"
#include "coscheduling/admission/attempts.h"
#include "coscheduling/admission/records.h"
#include "coscheduling/agenda.h"
#include "coscheduling/engine_options.h"
#include "coscheduling/gangs/gangs.h"
#include "coscheduling/outbox.h"
#include "kube/objects/quota.h"
#include "quota/quota_scheduler.h"

namespace muster::coscheduling {

class QuotaAdmission {
 public:
  // May this pod set of the gang be given the flavor? "" if so, or if that can't be known; else why
  // not. Must answer the same until Invalidate.
  using Placeable = std::function<std::string(const Gang&, const quota::Workload&,
                                              const quota::PodSet&, const kube::ResourceFlavor&)>;

  // All of them outlive it.
  QuotaAdmission(const EngineOptions& options, const cluster::Snapshot& snapshot,
                 const Gangs& gangs, Records* records, const Attempts& attempts, Agenda* agenda,
                 Outbox* outbox);

  // --- observations ---
  // An object that quota/ decides by came, or another version of it, or is gone.
  template <typename Object>
    requires requires(quota::QuotaScheduler& quotas, Object object) { quotas.Upsert(object); }
  void Upsert(Object object) {
    const kube::ObjectMeta meta = object.meta;
    if (scheduler_.Upsert(std::move(object))) NoteObject<Object>(meta);
  }
  template <typename Object>
    requires requires(quota::QuotaScheduler& quotas, Object object) { quotas.Remove(object); }
  void Remove(const Object& object) {
    if (scheduler_.Remove(object)) NoteObject<Object>(object.meta);
  }
  void Upsert(const kube::WorkloadPriorityClass& priority_class);
  void Remove(const kube::WorkloadPriorityClass& priority_class);
  void Upsert(const kube::PodDisruptionBudget& budget) {
    if (budgets_.Upsert(budget)) NoteBudget(budget.meta.name_space);
  }
  void Remove(const kube::PodDisruptionBudget& budget) {
    if (budgets_.Remove(budget)) NoteBudget(budget.meta.name_space);
  }
  // Placeable may answer otherwise from now on, about all or about this one.
  void Invalidate() { scheduler_.InvalidatePlacement(); }
  void Invalidate(const Gang& gang) { scheduler_.InvalidatePlacement(gang.uid()); }

  // --- steps of a gang ---
  // What else decides whether a gang keeps quota.
  struct Holding {
    bool posted = false;    // some binding is on its way
    bool remade = false;    // its job was being restarted a moment ago
    bool fits_now = false;  // it backs off, and would fit
  };
  // Keeps what quota/ knows of the gang at what its record and its members say.
  void Sync(const Gang& gang, const Holding& holding);
  // Begins an attempt of the gang if it may, once it has its quota, or takes over that of another
  // process. `fits_now`: as in Holding.
  void Admit(const Gang& gang, bool fits_now);
  // Takes the quota out of the record, and all that hangs on it.
  void Release(const Gang& gang);
  // The same, of a gang that has no room: it is in line for quota again, and waits for room.
  void ReleaseUntilRoom(const Gang& gang);
  // It waits no longer, and what was granted without a record is void.
  void Withdraw(GangId gang);
  // It is gone.
  void Forget(GangId gang);
  // Gives each counted member its flavors' labels and tolerations.
  void GiveFlavors(const Gang& gang);
  // Its members, or those beyond minMember, are to go, as the record will say.
  void StartEviction(const Gang& gang, const std::string& why, bool surplus_only);
  // Writes down an eviction that was started; true while that isn't done.
  bool NoteEviction(const Gang& gang);
  // Nothing of the surplus stands any more.
  void ReleaseSurplus(const Gang& gang);

  // --- the step of all ---
  void Schedule(const Placeable& placeable);

  // --- questions ---
  // It needs quota to start: it names a queue, or its namespace has LocalQueue "default", or had
  // it since the gang is known, or the configuration says so. Deleting queues admits nobody.
  bool IsUnderQuota(const Gang& gang) const;
  bool Holds(const Gang& gang) const;
  bool Waits(const Gang& gang) const;
  bool IsGranted(const Gang& gang) const { return GrantedTo(gang).has_value(); }
  bool WaitsForRoom(const Gang& gang) const { return PartOf(gang).waits_for_room; }
  const std::optional<quota::Admission>& GrantedTo(const Gang& gang) const {
    return PartOf(gang).granted;
  }
  // What the record says of the member's pod set; null if nothing, or less than the member asks.
  const quota::PodSetAssignment* GivenTo(const Gang& gang, const kube::Pod& pod) const;
  // With quota: it was counted, and carries the labels of its flavors.
  bool MayBePlaced(const Gang& gang, const std::string& uid) const;
  // Unbound members that no quota was given for.
  const std::set<std::string>& UncountedOf(const Gang& gang) const {
    return PartOf(gang).uncounted;
  }
  // The last refusal of a patch that gives a member its flavors, until one is accepted.
  const std::string& FlavorsErrorOf(const Gang& gang) const { return PartOf(gang).flavors_error; }
  std::string QueueOf(const Gang& gang) const;
  quota::Workload WorkloadOf(const Gang& gang) const;
  std::vector<const kube::ResourceFlavor*> OtherFlavors(const quota::Workload& workload,
                                                        std::string_view pod_set,
                                                        std::string_view flavor) {
    return scheduler_.OtherFlavors(workload, pod_set, flavor);
  }
  const quota::QuotaScheduler& scheduler() const { return scheduler_; }
  // Null if it isn't known by this id.
  const Gang* GangOf(std::string_view workload) const;
  // Something that queues' status tells may have changed since the last call.
  bool TakeQueuesChanged() { return std::exchange(queues_changed_, false); }
  // How many bound members, first in rank order, the gang needs to go on.
  static size_t KeptMembers(const Gang& gang);

 private:
  // As quota/ was told last.
  struct Known {
    quota::Workload workload;
    std::optional<quota::Admission> admission;  // counted; nullopt: in the queue
    size_t uncounted = 0;
    bool operator==(const Known&) const = default;
  };
  struct Part {
    std::optional<Known> known;
    std::optional<quota::Admission> granted;
    std::optional<Eviction> eviction;
    std::set<std::string> uncounted;
    std::string flavors_error;
    bool waits_for_room = false;
    // Since when nothing of the gang stands or may start, though it holds quota.
    absl::Time idle_since = Never();
    // Since when it holds quota beyond minMember for pods that aren't there.
    absl::Time surplus_idle_since = Never();
  };

  const Part& PartOf(const Gang& gang) const;
  template <typename Object>
  void NoteObject(const kube::ObjectMeta& meta) {
    NoteObjects();
    // What it says of a gang without a queue is read anew.
    if constexpr (std::is_same_v<Object, kube::LocalQueue>) NoteGangsIn(meta.name_space);
    if constexpr (std::is_same_v<Object, kube::Namespace>) NoteGangsIn(meta.name);
  }
  void NoteObjects();
  void NoteGangsIn(const std::string& name_space);
  void NotePriorityClass(std::string_view name);
  void NoteBudget(const std::string& name_space);
  int64_t PriorityOf(const Gang& gang) const;
  void FindUncounted(const Gang& gang);
  quota::FlavorAmounts UnadmittedOf(const Gang& gang) const;
  void CountUnadmitted(GangId gang, const std::string& name_space, quota::FlavorAmounts amounts);
  bool MayKeep(const Gang& gang, const Holding& holding);
  bool ReleaseIdleSurplus(const Gang& gang);
  void TellHeld(const Gang& gang, quota::Workload workload);
  void Request(const Gang& gang);
  void Begin(const Gang& gang);
  void WriteMore(const Gang& gang);
  void Carry(const quota::Decision& decision);
  void ReadWaitReasons();
  bool MayBeEvicted(const Gang& gang, bool surplus_only) const;

  const EngineOptions& options_;
  const cluster::Snapshot& snapshot_;
  const Gangs& gangs_;
  Records* records_;
  const Attempts& attempts_;
  Agenda* agenda_;
  Outbox* outbox_;

  quota::QuotaScheduler scheduler_;
  absl::node_hash_map<GangId, Part> parts_;
  absl::flat_hash_map<std::string, GangId> gang_of_;  // by the workload's id
  absl::flat_hash_set<GangId> under_quota_;           // so far
  // What stands on nodes without quota, by namespace and gang.
  std::map<std::string, std::map<GangId, quota::FlavorAmounts>> unadmitted_;
  std::map<std::string, int64_t, std::less<>> priority_classes_;
  cluster::DisruptionBudgets budgets_;
  bool queues_changed_ = false;
  bool reasons_stale_ = false;
  absl::Time reasons_read_ = absl::InfinitePast();  // why gangs wait
};

}  // namespace muster::coscheduling
