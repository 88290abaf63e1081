// Which pods form which gang: by their PodGroup, by what owns them, or alone. Owns the gangs, the
// jobs, and what is known of pods that the API server refuses.
//
// Nothing is remembered that could not be read again: after a restart the same objects give the
// same gangs. Every cost is that of the gang, or of the family of jobs, that changed.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cluster/pod_refusals.h"
#include "cluster/snapshot.h"
#include "coscheduling/agenda.h"
#include "coscheduling/engine_options.h"
#include "coscheduling/gangs/gang.h"
#include "coscheduling/gangs/job_gangs.h"
#include "coscheduling/outbox.h"
#include "kube/objects/event.h"
#include "kube/objects/pod.h"

namespace muster::coscheduling {

// Our gate is on the pod: it can't be bound yet.
bool IsGatedByUs(const kube::Pod& pod);

// Neither ended nor being deleted.
bool IsLive(const kube::Pod& pod);

inline ObjectRef RefOf(const kube::Pod& pod) { return RefOf(pod.meta); }

class Gangs {
 public:
  // All of them outlive it.
  Gangs(const EngineOptions& options, const cluster::Snapshot& snapshot, Agenda* agenda,
        Outbox* outbox);

  // --- observations ---
  // To be told before the snapshot takes this version of the pod. Returns the pod's gang.
  const Gang& Join(const kube::Pod& pod);
  // Before the snapshot forgets it.
  void Leave(const kube::Pod& pod);
  // Somebody beside Muster may bind it at any moment.
  bool MayBeBound(const kube::Pod& pod) const { return !options_.standalone && !IsGatedByUs(pod); }
  // Nothing if it is of an older version than the one that is known.
  void Adopt(std::shared_ptr<const kube::PodGroup> group);
  void DropGroup(const kube::PodGroup& group);
  void ObserveJob(kube::AnyJob job) { OwnersChanged(jobs_.Upsert(std::move(job))); }
  void RemoveJob(const std::string& uid);
  // Whether a Workload of this job has quota: its pods are about to come, if none is there.
  void Await(const kube::NamespacedUid& job, bool awaited);
  void Observe(const kube::Event& event) { RefusalsChanged(refusals_.Note(event)); }
  // Refusals that weren't repeated for long are over.
  void Expire();

  // What ended with the observations since the last call: pods that left a gang (for another one,
  // or for good), and gangs that are gone, for each owner to forget.
  struct Departures {
    std::vector<std::pair<GangId, std::string>> pods;
    std::vector<std::pair<GangId, GangKey>> gangs;
  };
  Departures TakeDepartures() { return std::exchange(departures_, {}); }

  // --- steps of a gang ---
  // Counts its members again. `whole_with`: how many of them it was whole with, if it was: a
  // minMember that was raised since doesn't break it.
  void Read(GangId id, std::optional<int64_t> whole_with);
  // Why the gang can't start as it is, by its members, owners and PodGroup; no code if it can.
  // `unmade`: it may ask for quota without members.
  Reason Blocker(const Gang& gang, bool unmade, std::string why_no_level) const;
  // Creates its derived PodGroup, or keeps that one's minMember as its job says.
  void KeepGroup(const Gang& gang);
  // These of its live members are lost.
  void Lose(GangId id, std::set<std::string> lost);
  // It can't start as it is for this reason; one without a code: it can.
  void Block(GangId id, Reason blocker);
  void Settle(GangId id, const GangFacts& facts) { Get(id).facts = facts; }
  // Its places and its commit go on within a step.
  void SettlePlaces(GangId id, bool planned, bool committing);
  void Enter(GangId id, v1::GangState state);

  // --- questions ---
  const Gang* Find(GangId id) const;
  const Gang* Find(const GangKey& key) const;
  const Gang* OfPod(const std::string& uid) const;
  const cluster::Snapshot& snapshot() const { return snapshot_; }
  // That is made from the spec of this job, the maker of its pods; null if none is.
  const Gang* OfSpec(const std::string& job) const;
  const std::map<GangKey, Gang>& all() const { return gangs_; }
  // Gangs with members bound to the node, those included that are going away.
  std::vector<GangId> StandingOn(const std::string& node) const;
  const JobGangs& jobs() const { return jobs_; }
  // The outermost job that makes its members, as far as it is known; else null.
  const kube::AnyJob* JobOf(const Gang& gang) const;
  // The one that makes its pods; null if none is known.
  const kube::AnyJob* MakerOf(const Gang& gang) const {
    return gang.derived ? jobs_.Find(gang.derived->maker_uid) : nullptr;
  }
  // Gangs of its pods or its spec, and those without pods whose PodGroup is of it.
  std::vector<GangId> GangsOf(const kube::NamespacedUid& job) const;
  // Live ones, bound first, in rank order; and all.
  std::vector<const kube::Pod*> LiveOf(const Gang& gang) const;
  std::vector<const kube::Pod*> PodsOf(const Gang& gang) const;
  // Live ones that aren't bound.
  std::vector<const kube::Pod*> UnboundOf(const Gang& gang) const;
  // Its PodGroup has this value of the annotation, or a live pod of it.
  bool IsMarked(const Gang& gang, std::string_view annotation, std::string_view value) const;
  // Even if it is gone.
  std::vector<const kube::Pod*> PodsOf(const kube::NamespacedUid& job) const;
  const cluster::PodRefusals& refusals() const { return refusals_; }

 private:
  struct Membership {
    GangKey key;
    std::optional<DerivedGang> derived;
  };
  struct AtOnce {
    int64_t count = 0;
    std::set<std::string> makers;
    std::string one_by_one;  // why a maker's pods never exist together
  };

  Gang& GangFor(const GangKey& key);
  Gang& Get(GangId id) { return *by_id_.at(id); }
  void Remove(Gang& gang);
  void ForgetGroup(Gang& gang);
  void Detach(const std::string& uid);
  void StandOn(const Gang& gang, absl::btree_set<std::string> nodes);
  // --- spec_gangs.cc ---
  std::optional<DerivedGang> DerivedFromSpec(const std::string& job) const;
  void SyncSpec(const std::string& job);
  // --- derived_groups.cc ---
  Membership MembershipOf(const kube::Pod& pod) const;
  std::string GroupNameOf(const std::string& name_space, const DerivedGang& gang) const;
  const kube::PodGroup* FindGroup(const GangKey& key) const;
  void ForgetOwner(const kube::Pod& pod);
  void Rejoin(const std::string& pod_uid);
  void OwnersChanged(const std::vector<kube::NamespacedUid>& owners);
  void ReadOwners(Gang& gang, const std::vector<const kube::Pod*>& live) const;
  void ReadQueueLabels(Gang& gang, const std::vector<const kube::Pod*>& live) const;
  void ReadAnnotations(Gang& gang, const std::vector<const kube::Pod*>& live) const;
  static int64_t MinMemberOf(const Gang& gang, int64_t standing);
  Reason OwnerBlocker(const Gang& gang, const std::vector<const kube::Pod*>& live) const;
  Reason MissingMembers(const Gang& gang, int64_t there) const;
  std::optional<AtOnce> AtOnceOf(const Gang& gang) const;
  Reason GroupPending(const Gang& gang) const;
  std::vector<kube::OwnerReference> GroupOwners(const Gang& gang) const;
  // --- refused_members.cc ---
  void RefusalsChanged(const std::vector<kube::NamespacedUid>& owners);
  Reason WithRefusals(const Gang& gang, const std::string& exist, Reason missing) const;

  const EngineOptions& options_;
  const cluster::Snapshot& snapshot_;
  Agenda* agenda_;
  Outbox* outbox_;

  std::map<GangKey, Gang> gangs_;
  uint64_t next_id_ = 1;
  absl::flat_hash_map<GangId, Gang*> by_id_;
  // By UID. A gang stays while a pod or a PodGroup is its own.
  absl::flat_hash_map<std::string, Gang*> gang_of_pod_;
  absl::flat_hash_map<kube::NamespacedUid, absl::flat_hash_set<GangId>> groups_of_owner_;
  absl::flat_hash_map<std::string, GangId> gang_of_spec_;  // by UID of the job
  absl::flat_hash_set<kube::NamespacedUid> awaited_;       // outermost jobs
  JobGangs jobs_;
  // By their controller: the UIDs of our pods.
  absl::flat_hash_map<kube::NamespacedUid, absl::flat_hash_set<std::string>> pods_of_owner_;
  // Nodes that bound members stand on, and the gangs there.
  absl::flat_hash_map<GangId, absl::btree_set<std::string>> nodes_of_;
  absl::flat_hash_map<std::string, absl::flat_hash_set<GangId>> standing_on_;
  // The last refusal of its derived PodGroup, until it is accepted.
  PerGang<std::string> group_errors_;
  cluster::PodRefusals refusals_;
  Departures departures_;
};

}  // namespace muster::coscheduling
