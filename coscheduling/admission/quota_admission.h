// Quota of gangs: who waits for it, holds it, gives it back, and what it gives them.
//
// A gang holds quota while the status of its Workload says so (workloads.h). What quota/ decides is
// counted there at once and kept here as granted until the Workload shows it, so nothing is given
// twice meanwhile. Usage is the sum of the Workloads, so a restart counts the same.
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
#include "cluster/disruption_budgets.h"
#include "cluster/journal.h"
#include "coscheduling/admission/attempts.h"
#include "coscheduling/admission/owner.h"
#include "coscheduling/admission/workloads.h"
#include "kube/objects/quota.h"
#include "quota/job_start.h"
#include "quota/pod_sets.h"
#include "quota/quota_scheduler.h"

namespace muster::coscheduling {

class QuotaAdmission : Owner {
 public:
  // May this pod set of the gang be given the flavor? "" if so, or if that can't be known; else why
  // not. Must answer the same until Invalidate.
  using Placeable = std::function<std::string(const Gang&, const quota::Workload&,
                                              const quota::PodSet&, const kube::ResourceFlavor&)>;

  // All of them outlive it.
  QuotaAdmission(const Owner& owner, Records* writer, Workloads* workloads,
                 const Attempts& attempts);

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
  void Upsert(const kube::PodDisruptionBudget& budget) {
    if (budgets_.Upsert(budget)) NoteBudget(budget.meta.name_space);
  }
  void Remove(const kube::PodDisruptionBudget& budget) {
    if (budgets_.Remove(budget)) NoteBudget(budget.meta.name_space);
  }
  void Observe(const cluster::Journal& journal);
  // Nobody is given any while this has a code.
  void Close(quota::Wait why) {
    scheduler_.Close(std::move(why));
    NoteObjects();
  }
  // Placeable may answer otherwise from now on, about all or about this one.
  void Invalidate() { scheduler_.InvalidatePlacement(); }
  void Invalidate(const Gang& gang) { scheduler_.InvalidatePlacement(IdOf(gang)); }

  // --- steps of a gang ---
  // Reads what the gang's Workloads say as they are now.
  void Read(const Gang& gang);
  // What else decides whether a gang keeps quota.
  struct Holding {
    bool posted = false;    // some binding is on its way
    bool remade = false;    // its job was being restarted a moment ago
    bool fits_now = false;  // it backs off, and would fit
  };
  // Keeps what quota/ knows of the gang at what its Workloads and its members say.
  void Sync(const Gang& gang, const Holding& holding);
  // Begins an attempt of the gang if it may, once it has its quota, or takes over that of another
  // process. `fits_now`: as in Holding.
  void Admit(const Gang& gang, bool fits_now);
  // Gives its quota back, once its record says nothing of the run that used it.
  void Release(const Gang& gang);
  // Its attempt is over, as its record will say.
  void GiveUp(const Gang& gang) { parts_[gang.id].releasing = PartOf(gang).held.has_value(); }
  // The same, of a gang that has no room: it is in line for quota again, and waits for room.
  void ReleaseUntilRoom(const Gang& gang);
  // It waits no longer, and what was granted and isn't reserved is void.
  void Withdraw(GangId gang);
  // It is gone.
  void Forget(GangId gang, const GangKey& key);
  // Gives each counted member its flavors' labels and tolerations.
  void GiveFlavors(const Gang& gang);
  // Its members, or those beyond minMember, are to go, as its Workloads will say; or, of a gang
  // without quota, its record.
  void StartEviction(const Gang& gang, Eviction eviction);
  // Writes down an eviction that was started; true while that isn't done.
  bool NoteEviction(const Gang& gang);
  // Nothing of the surplus stands any more.
  void ReleaseSurplus(const Gang& gang);

  // What is to be changed of the pod templates of a job that asks by its spec: what its flavors
  // add, or without quota what they had before, as far as that is known.
  std::vector<quota::TemplateChange> TemplatesFor(const Gang& gang) const;

  // --- the step of all ---
  void Schedule(const Placeable& placeable);

  // --- questions ---
  // It needs quota to start: it names a queue, or its namespace has LocalQueue "default", or had
  // it since the gang is known, or the configuration says so. Deleting queues admits nobody.
  bool IsUnderQuota(const Gang& gang) const;
  // Its job is suspended, and what it asks for is what the job's spec says.
  bool AsksBySpec(const Gang& gang) const;
  // It has quota, and isn't giving it back.
  bool Holds(const Gang& gang) const { return HeldBy(gang) != nullptr; }
  // Null if it holds none. Valid until the next Read.
  const quota::Admission* HeldBy(const Gang& gang) const;
  // Null unless it holds quota that is being taken back, or gives its room to another gang. Valid
  // until the next Read.
  const Eviction* EvictionOf(const Gang& gang) const;
  // All its members are to go, as is written down or will be.
  bool IsLeaving(const Gang& gang) const {
    const Part& part = PartOf(gang);
    return (part.eviction && !part.eviction->surplus_only) ||
           (part.evicting && !part.evicting->surplus_only);
  }
  // What it comes by before others: without quota the priority of its pods, which only a
  // PriorityClass can give them.
  int64_t ClaimOf(const Gang& gang) const;
  // Whether it may take the room of the other one, which must be of a lower claim: without quota,
  // of those without; with quota, where its ClusterQueue preempts within itself, of that queue's.
  bool MayPreempt(const Gang& gang, const Gang& victim) const;
  // It opted out of giving its room to those of this claim, and its PriorityClass lets it.
  bool KeepsRoomFrom(const Gang& victim, int64_t claim) const;
  const cluster::DisruptionBudgets& budgets() const { return budgets_; }
  // Grows when who may be evicted may have changed by what budgets or queues say.
  uint64_t eviction_rules() const { return eviction_rules_; }
  std::set<std::string> FlavorsOf(const Gang& gang) const {
    if (!Holds(gang)) return {};
    return quota::FlavorNames(*HeldBy(gang), gangs_.PodsOf(gang));
  }
  // What it holds was reserved after this attempt had begun: that one lost its quota.
  bool IsOfQuotaBefore(const Gang& gang, const AdmissionRecord& record) const;
  // When it has run for as long as it may and is evicted whole.
  absl::Time RunsUntil(const Gang& gang) const { return workloads_->RunsUntil(gang); }
  // By which quota/ knows it.
  std::string IdOf(const Gang& gang) const;
  bool Waits(const Gang& gang) const;
  // It waits for quota, or what it asks for is being written down.
  bool IsAsked(const Gang& gang) const;
  bool IsGranted(const Gang& gang) const { return PartOf(gang).granted.has_value(); }
  bool WaitsForRoom(const Gang& gang) const { return PartOf(gang).waits_for_room; }
  // What it holds for the member's pod set; null if nothing, or less than the member asks for.
  const quota::PodSetAssignment* GivenTo(const Gang& gang, const kube::Pod& pod) const;
  // With quota: it was counted, and carries the labels of its flavors.
  bool MayBePlaced(const Gang& gang, const std::string& uid) const;
  // Unbound members that no quota was given for.
  const std::set<std::string>& UncountedOf(const Gang& gang) const {
    return PartOf(gang).uncounted;
  }
  // The last refusal of a patch that gives a member its flavors, until one is accepted.
  const std::string& FlavorsErrorOf(const Gang& gang) const { return PartOf(gang).flavors_error; }
  // The same of its Workload.
  const std::string& WorkloadErrorOf(const Gang& gang) const {
    const Gang* asks = GangOf(IdOf(gang));  // another stage, perhaps
    return workloads_->ErrorOf(asks == nullptr ? gang : *asks);
  }
  // Its Workload's user wants it neither queued nor admitted.
  bool IsDeactivated(const Gang& gang) const { return PartOf(gang).deactivated; }
  // Why it can't ask for quota as its labels are: no code if it can.
  Reason LabelFault(const Gang& gang) const;
  std::string QueueOf(const Gang& gang) const;
  quota::Workload WorkloadOf(const Gang& gang) const;
  std::vector<const kube::ResourceFlavor*> OtherFlavors(const quota::Workload& workload,
                                                        std::string_view pod_set,
                                                        std::string_view flavor) {
    return scheduler_.OtherFlavors(workload, pod_set, flavor);
  }
  quota::OtherChoice ChoiceWithout(const kube::Workload& workload,
                                   const std::set<std::string>& left_out,
                                   const quota::Usable& usable) {
    return quota::ChoiceWithout(workload, left_out, scheduler_, usable);
  }
  const quota::QuotaScheduler& scheduler() const { return scheduler_; }
  // The gang, and the other stages of its job that have the same Workload.
  std::vector<const Gang*> StagesOf(const Gang& gang) const;
  // Another one of them stands or, `used`, is on nodes or about to use quota.
  bool IsShared(const Gang& gang, bool used) const;
  // Null if it isn't known by this id.
  const Gang* GangOf(std::string_view workload) const;
  // Something that queues' status tells may have changed since the last call.
  bool TakeQueuesChanged() { return std::exchange(queues_changed_, false); }

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
    std::optional<Eviction> eviction;  // to be written down
    // Of a gang without quota, once it was: its user can't take it back.
    std::optional<Eviction> preempted;
    // As its Workloads say.
    std::optional<quota::Admission> held;
    std::optional<Eviction> evicting;
    std::string queue;
    bool deactivated = false;
    bool releasing = false;
    std::set<std::string> own;  // UIDs of members that have a Workload of their own
    // Of these, those that took a place which the gang's own Workload had left.
    std::set<std::string> joining;
    std::set<std::string> uncounted;
    std::set<std::string> untaken;  // of `own`: reserved by the process before
    std::string flavors_error;
    bool waits_for_room = false;
    absl::Time told_waiting = absl::InfinitePast();
    // Since when nothing of the gang stands or may start, though it holds quota.
    absl::Time idle_since = Never();
  };

  const Part& PartOf(const Gang& gang) const { return parts_.Of(gang.id); }
  template <typename Object>
  void NoteObject(const kube::ObjectMeta& meta) {
    if constexpr (std::is_same_v<Object, kube::WorkloadPriorityClass> ||
                  std::is_same_v<Object, kube::PriorityClass>) {
      return NotePriorityClass(meta.name);
    }
    if constexpr (std::is_same_v<Object, kube::Topology>) {
      for (const auto& [key, gang] : gangs_.all()) agenda_->Note(gang.id);
    }
    NoteObjects();
    // What it says of a gang without a queue is read anew.
    std::string name_space;
    if constexpr (std::is_same_v<Object, kube::LocalQueue>) name_space = meta.name_space;
    if constexpr (std::is_same_v<Object, kube::Namespace>) name_space = meta.name;
    for (const Gang* gang : GangsIn(name_space)) agenda_->Note(gang->id);
  }
  void NoteObjects();
  std::vector<const Gang*> GangsIn(const std::string& name_space) const;
  void NotePriorityClass(std::string_view name);
  void NoteBudget(const std::string& name_space);
  int64_t PriorityOf(const Gang& gang) const;
  bool NoteInRecord(const Gang& gang);
  std::optional<std::string> PodPriorityClassOf(const Gang& gang) const;
  std::vector<const kube::Pod*> GoingOf(const Gang& gang) const;
  std::vector<const kube::Pod*> OwnPodsOf(const Gang& gang) const;
  std::map<std::string, int64_t> ReclaimableOf(const Gang& gang,
                                               const std::vector<const kube::Pod*>& own) const;
  quota::Admission CountedIn(const Gang& gang,
                             const std::map<std::string, int64_t>& reclaimable) const;
  void FindUncounted(const Gang& gang);
  quota::FlavorAmounts UnadmittedOf(const Gang& gang) const;
  void CountOthers(const std::string& node);
  bool ManagesAllIn(const std::string& name_space) const;
  bool MayKeep(const Gang& gang, const Holding& holding);
  void ReleaseNeedless(const Gang& gang);
  void Reclaim(const Gang& gang);
  std::vector<const kube::Workload*> SurplusOf(const Gang& gang) const;
  bool GaveUp(const Gang& gang) const;
  const kube::AnyJob& SpecOf(const Gang& gang) const { return *gangs_.jobs().Find(gang.spec_of); }
  bool StillFits(const Gang& gang, const quota::Workload& asked, const Holding& holding) const;
  void TellHeld(const Gang& gang, quota::Workload workload);
  kube::OwnerReference OwnerOfWorkload(const Gang& gang, std::vector<quota::PodSet>* asked) const;
  void Request(const Gang& gang);
  void Begin(const Gang& gang);
  bool ReserveMore(const Gang& gang);
  void Carry(const quota::Decision& decision);
  void ReadWaitReasons();
  bool MayBeEvicted(const Gang& gang, bool surplus_only) const;

  Records* writer_;
  Workloads* workloads_;
  const Attempts& attempts_;

  quota::QuotaScheduler scheduler_;
  PerGang<Part> parts_;
  absl::flat_hash_map<std::string, GangId> gang_of_;  // by the workload's id
  absl::flat_hash_set<GangId> under_quota_;           // so far
  cluster::DisruptionBudgets budgets_;
  uint64_t eviction_rules_ = 0;
  bool queues_changed_ = false;
  bool reasons_stale_ = false;
  bool others_stale_ = false;
  absl::Time reasons_read_ = absl::InfinitePast();  // why gangs wait
};

}  // namespace muster::coscheduling
