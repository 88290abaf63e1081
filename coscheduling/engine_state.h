// The engine's insides. One struct, one owner; its member functions are spread over files by what
// they do:
//   engine.cc      the order of a step, bind calls and results
//   intake.cc      observations
//   membership.cc  which pods form which gang, quorum, what blocks it, the admission record
//   derived_groups.cc  gangs that follow from what owns their pods, and their PodGroups
//   refused_members.cc members that the API server refuses
//   placement.cc   the placement pass: who gets which nodes
//   decide.cc      from placement to actions: signals, gates, bindings, repair, deadlines
//   quota_admission.cc  who waits for quota, holds it, gives it back
//   placeability.cc     could the nodes of a gang, or of a flavor, exist at all
//   quota_report.cc     queues' status and messages
//   fallback.cc    members made anew through their job: another flavor, a gang restarted whole
//   kueue_fallback.cc  gangs given back to Kueue for another flavor, through its Workloads
//   report.cc      reasons, PodGroup status, events, filter answers
//   node_holds.cc  holds on nodes
//   losses.cc      members whose pods or nodes are lost
//   suspect_marks.cc  nodes that failed members, and the marks on them
//   withdrawals.cc  NodeClaims that are late, or of no use to any gang, are deleted
//   provisioning.cc what went wrong with the nodes that gangs count on, and for how long they wait
//   describe.cc    the admission API's messages
#pragma once

#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cluster/node_stage.h"
#include "cluster/snapshot.h"
#include "coscheduling/commit/job_restart.h"
#include "coscheduling/commit/node_trouble.h"
#include "coscheduling/engine.h"
#include "coscheduling/gang.h"
#include "coscheduling/gangs/job_gangs.h"
#include "coscheduling/gangs/pod_refusals.h"
#include "coscheduling/in_flight.h"
#include "coscheduling/labels.h"
#include "coscheduling/placement/suspect_nodes.h"
#include "coscheduling/provisioning/feasibility.h"
#include "coscheduling/provisioning/holds.h"
#include "coscheduling/provisioning/setbacks.h"
#include "quota/quota_scheduler.h"

namespace muster::coscheduling {

// On PodGroups that Muster made.
inline constexpr std::string_view kEpochAnnotation = "muster.dev/epoch";
inline constexpr std::string_view kWakeAnnotation = "muster.dev/wake";
// On a PodGroup or a member, "true": its nodes can be made, whatever is known of NodePools.
inline constexpr std::string_view kAssumeFeasibleAnnotation = "muster.dev/assume-feasible";

// What holds need to know of a node without asking the snapshot how it represents it.
struct NodeMarks {
  std::string resource_version;
  kube::StringMap annotations;  // those of holds, and of suspects
  bool made_by_karpenter = false;
};

// The status of a queue that was written last.
struct QueueShown {
  std::string digest;
  bool active = false;
  absl::Time since = absl::InfinitePast();  // of `active`
  absl::Time written = absl::InfinitePast();
};

inline PodRef RefOf(const kube::Pod& pod) {
  return {pod.meta.name_space, pod.meta.name, pod.meta.uid, pod.meta.resource_version};
}

// A pod's spec with the labels and tolerations of a flavor.
kube::PodSpec WithFlavor(const kube::PodSpec& spec, const kube::ResourceFlavor& flavor);

// A reason of setback_reasons.h: something must be put right, or waited out.
bool IsSetback(v1::ReasonCode code);

// A bind call that waits for its member.
struct HeldBind {
  uint64_t request = 0;
  std::string node;
  absl::Time until;
};

struct Engine::State {
  explicit State(EngineOptions opts)
      : options(std::move(opts)),
        quotas({.fair_sharing = options.fair_sharing,
                .may_evict =
                    [this](std::string_view id, bool surplus_only) {
                      auto it = gang_of_quota.find(std::string(id));
                      return it == gang_of_quota.end() || MayBeEvicted(*it->second, surplus_only);
                    }}),
        random(options.seed),
        suspects(options.suspect_time),
        refusals(options.pod_refusal_time) {}

  // --- intake.cc ---
  void Upsert(kube::Pod pod);
  void ShareSpec(const Gang& gang, kube::Pod* pod) const;
  void RemovePod(const std::string& uid);
  void NoteNode(const kube::Node& node, absl::Time now);
  void NoteQueues();
  void DirtyAll();

  // --- engine.cc ---
  void Step(absl::Time now, StepOutput* out);
  bool IsSettled(const Gang& gang) const;
  // Neither busy nor pausing; there is something to do for the gang in any case.
  bool MayAct(const std::string& target, absl::Time now);
  // Starts the action if its target may be asked; true if it was started.
  bool Act(const std::string& target, absl::Time now, Action action,
           InFlight::OnFinish on_finish = nullptr);
  // For actions without an outcome worth waiting for.
  void Tell(Action action);
  void WakeAt(absl::Time time) { next_wake = std::min(next_wake, time); }
  bool IsGatedByUs(const kube::Pod& pod) const { return pod.HasGate(kGate); }

  // --- membership.cc ---
  Gang& GangFor(const GangKey& key);
  void Join(const GangKey& key, const std::string& uid);
  void Leave(const std::string& uid);
  void Remove(Gang& gang);
  void MarkDirty(const GangKey& key);
  void AdoptGroup(std::shared_ptr<const kube::PodGroup> group);
  void DropGroup(const std::string& uid);
  void Refresh(Gang& gang, absl::Time now);
  // A gang of one that holds quota has its record on the pod.
  void ReadRecordOfPod(Gang& gang);
  Reason FindBlocker(const Gang& gang, const std::vector<const kube::Pod*>& live) const;
  void Admit(Gang& gang, absl::Time now);
  void WriteRecord(Gang& gang, const AdmissionRecord& record, absl::Time now);
  // Its admission record is being written, or taken over from another process: what was asked for
  // and held on its behalf stays as it is until then.
  static bool IsUndecided(const Gang& gang) {
    return gang.ours && !gang.facts.admitted && !gang.facts.blocked && !gang.facts.backing_off &&
           !gang.facts.waits_for_quota && !gang.facts.evicting && !gang.facts.infeasible &&
           !gang.unbound.empty();
  }
  AdmissionRecord NewRecord(const Gang& gang, int64_t attempt, absl::Time now) const;

  int64_t NextAttempt(const Gang& gang) const;
  // What an attempt of the gang has to get its nodes.
  absl::Duration DeadlineOf(const Gang& gang) const;

  // --- quota_admission.cc ---
  // There are queues, and they are ours to serve.
  bool UsesQuota() const;
  bool HoldsQuota(const Gang& gang) const;
  // What the record says of the member's pod set; null if nothing.
  const quota::PodSetAssignment* GivenTo(const Gang& gang, const kube::Pod& pod) const;
  std::string QueueOf(const Gang& gang) const;
  int64_t QueuePriorityOf(const Gang& gang) const;
  quota::Workload WorkloadOf(const Gang& gang) const;
  void FindUncounted(Gang& gang) const;
  void SyncQuota(Gang& gang, absl::Time now);
  bool MayKeepQuota(Gang& gang, absl::Time now);
  void TellHeldQuota(Gang& gang, quota::Workload workload);
  void RequestQuota(Gang& gang, absl::Time now);
  void WithdrawQuota(Gang& gang);
  void ReleaseQuota(Gang& gang, absl::Time now);
  void ScheduleQuota(absl::Time now);
  void ReadWaitReasons(absl::Time now);
  void Carry(const quota::Decision& decision, absl::Time now);
  void DecideFlavors(Gang& gang, absl::Time now);

  // --- eviction.cc ---
  // Its members, or those beyond minMember, may all be evicted at once as far as the
  // PodDisruptionBudgets say.
  bool MayBeEvicted(const Gang& gang, bool surplus_only) const;
  void StartEviction(Gang& gang, const std::string& why, bool surplus_only, absl::Time now);
  bool MustGo(const Gang& gang) const;
  void DecideEviction(Gang& gang, absl::Time now);

  // --- placeability.cc ---
  // "" if quota of this flavor can be used: nodes exist or can be made, as far as that is known,
  // and there is no other such flavor that is preferred, because an attempt on this one failed.
  std::string WhyNotPlaceable(const quota::Workload& workload, const quota::PodSet& set,
                              const kube::ResourceFlavor& flavor);
  const std::string& WhyNoNodesOf(const quota::PodSet& set, const kube::ResourceFlavor& flavor);
  // Until when it prefers other flavors; in the past if it doesn't.
  absl::Time TriedUntil(const quota::Workload& workload, const kube::ResourceFlavor& flavor) const;
  bool MayBeInfeasible(const Gang& gang) const;
  bool IsAssumedFeasible(const Gang& gang) const;
  std::shared_ptr<const Feasibility> Judged(const Demand& demand);
  // Whether the nodes that the gang asks for can exist.
  void JudgeGang(Gang& gang);
  // Marks the gangs whose answer may have changed.
  void JudgeAgain(absl::Time now);

  // --- quota_report.cc ---
  Reason QuotaReason(const Gang& gang) const;
  void WriteQueueStatus(absl::Time now);
  // False if it is to be tried again.
  bool WriteQueueStatus(const quota::QueueStatus& status, absl::Time now);
  // --- derived_groups.cc ---
  struct Membership {
    GangKey key;
    std::optional<DerivedGang> derived;
  };
  Membership MembershipOf(const kube::Pod& pod) const;
  // The name of the PodGroup of a derived gang, in a namespace where others may have taken it.
  std::string GroupNameOf(const std::string& name_space, const DerivedGang& gang) const;
  const kube::PodGroup* FindGroup(const GangKey& key) const;
  void NoteOwner(const kube::Pod& pod);
  void ForgetOwner(const kube::Pod& pod);
  void JoinAs(const kube::Pod& pod, const Membership& membership);
  void Rejoin(const std::string& pod_uid);
  // The pods of these owners may belong elsewhere now.
  void OwnersChanged(const std::vector<std::string>& owner_uids);
  void GroupOwnerChanged(const GangKey& key);
  void ReadOwners(Gang& gang, const std::vector<const kube::Pod*>& live, absl::Time now);
  void ReadQueueLabels(Gang& gang, const std::vector<const kube::Pod*>& live) const;
  int64_t MinMemberOf(const Gang& gang, int64_t standing) const;
  Reason OwnerBlocker(const Gang& gang, const std::vector<const kube::Pod*>& live) const;
  Reason MissingMembers(const Gang& gang, int64_t there) const;
  struct AtOnce {
    int64_t count = 0;
    std::set<std::string> makers;
    std::string one_by_one;  // why a maker's pods never exist together
  };
  std::optional<AtOnce> AtOnceOf(const Gang& gang) const;
  Reason GroupPending(const Gang& gang) const;
  void KeepGroup(Gang& gang, absl::Time now);
  std::vector<kube::OwnerReference> GroupOwners(const Gang& gang) const;
  InFlight::OnFinish NoteRefusal(const GangKey& key);

  // --- refused_members.cc ---
  // Those whose pods these owners make are looked at again.
  void RefusalsChanged(const std::vector<std::string>& owner_uids);
  // Who refuses the members that `missing` tells of, or `missing` itself.
  Reason WithRefusals(const Gang& gang, const std::string& exist, Reason missing) const;

  // --- placement.cc ---
  void Place(absl::Time now);
  void PassAt(absl::Time time) { next_pass = std::min(next_pass, time); }
  void PlaceGang(Gang& gang, bool keeps_partial, absl::Time now);
  bool CapacityMaySuffice(const Gang& gang, const Plan& plan, int64_t required, absl::Time now);
  void DropTentative(Gang& gang);
  // Gives up places that are not bound: all of them, or those of `uids`.
  void DropFixed(Gang& gang);
  void DropFixed(Gang& gang, const std::vector<std::string>& uids);
  std::vector<std::string> BrokenPlaces(const Gang& gang) const;
  bool IsFree(const Gang& gang) const {
    return !gang.commit_started && gang.bound.empty() && gang.posted.empty();
  }
  bool WaitsForPlace(const Gang& gang) const;
  void ExcludeOtherFlavors(const Gang& gang, const std::vector<std::string>& uids,
                           PlanRequest* request) const;
  PlanRequest RequestFor(const Gang& gang, const std::vector<std::string>& uids) const;
  // Unbound members without a place that may be given one.
  std::vector<std::string> Unplaced(const Gang& gang) const;
  bool MayBePlaced(const Gang& gang, const std::string& uid) const;
  bool MinResourcesFree(const Gang& gang) const;

  // --- decide.cc ---
  void Decide(Gang& gang, absl::Time now);
  bool AwaitsWrites(const Gang& gang) const;
  bool HoldsUselessly(const Gang& gang) const;
  void DecideSignals(Gang& gang, absl::Time now);
  void DecideGates(Gang& gang, absl::Time now);
  void DecideCommit(Gang& gang, absl::Time now);
  void DecideRepair(Gang& gang, absl::Time now);
  void DecideDeadline(Gang& gang, absl::Time now);
  // Ends the attempt: the gang asks for nothing until then, and gives back its quota.
  void GiveUp(Gang& gang, absl::Time retry_after, absl::Time now,
              std::optional<Reason> why = std::nullopt);
  void AnswerBinds(Gang& gang, absl::Time now);
  void PostBinding(Gang& gang, const kube::Pod& pod, const std::string& node, absl::Time now);
  void AnswerHeld(const std::string& uid, const std::string& error);
  void FailHeldBinds(const Gang& gang, const std::string& error);
  // Its binding has been asked of the API server: it may be bound by now, whatever we know.
  bool IsCommitted(const Gang& gang, const std::string& uid) const {
    return gang.posted.contains(uid) || in_flight.IsUnderWay("bind/" + uid);
  }
  bool AwaitsPreBind(const Gang& gang) const;
  bool PlanHolds(Gang& gang);
  void WakeMembers(Gang& gang, absl::Time now);
  void NoteBound(Gang& gang, absl::Time now);
  bool NeedsPreBind(const kube::Pod& pod) const;
  bool StandsInEpoch(const Gang& gang, const kube::Pod& pod) const;

  // --- provisioning.cc ---
  static bool CapacityFailedBefore(const Gang& gang);
  // When a gang that backs off tries again.
  absl::Time RetryAt(const Gang& gang) const;
  bool BacksOff(const Gang& gang, absl::Time now) const {
    if (!gang.record || !gang.record->retry_after) return false;
    return now < *gang.record->retry_after || now < RetryAt(gang);
  }
  StageLimits LimitsOfStages() const;
  BringUpLimits Limits(const Gang& gang) const;
  void SetbacksChanged(const std::vector<GangKey>& keys);
  std::set<GangKey> GangsAskingFor(const cluster::NodeInfo& info) const;
  // This NodeClaim, its Node, or the absence of either was seen.
  void NoteClaim(const std::string& name);
  void CountOnNodes(const std::vector<Gang*>& waiting);
  std::string UsableText(const Gang& gang) const;
  // The worst setback that isn't overcome; nullopt if there is none. Of what only takes its time,
  // what is late, or all of it.
  std::optional<Reason> SetbackReason(const Gang& gang, absl::Time now, bool all) const;
  // What its NodePools may still make certainly doesn't complete the gang.
  void ReadLimits(Gang& gang, absl::Time now);
  bool IsBeyondLimits(const Gang& gang) const { return gang.limits_reached_since != Never(); }
  bool HoldsNodes(const Gang& gang) const;
  Reason LimitReason(const Gang& gang) const;
  Reason WhyGivenUp(const Gang& gang, const Setbacks::Limit& limit, absl::Time now) const;
  absl::Duration BackoffAfter(const Gang& gang, const Reason& why);

  // --- withdrawals.cc ---
  void WithdrawNodes(absl::Time now);
  bool MayGo(const cluster::NodeInfo& info) const;
  bool NeedsNoNodes(const GangKey& key) const;
  bool IsNeeded(const std::string& claim, const cluster::NodeInfo& info) const;

  // --- fallback.cc ---
  // The job whose suspension ends all members of the gang, and of no other one that has started.
  struct Restarter {
    const JobGangs::KnownJob* job = nullptr;
    std::string why_not, fix;                  // while there is none
    const kube::Workload* workload = nullptr;  // Kueue suspends the job, and resumes it
  };
  Restarter RestarterOf(const Gang& gang) const;
  // The outermost job that makes its members, as far as it is known; else null.
  const JobGangs::KnownJob* JobOf(const Gang& gang) const;
  std::vector<const kube::Pod*> PodsOf(const JobGangs::KnownJob& job) const;
  // Those that must be gone before it may be resumed.
  int64_t PodsLeft(const JobGangs::KnownJob& job) const;
  std::string RunningBeside(const Gang& gang, const JobGangs::KnownJob& job) const;
  // Suspends the job; true if that was started now.
  bool Restart(const JobGangs::KnownJob& job, const std::string& why,
               const std::optional<TriedFlavors>& tried, absl::Time now);
  bool RestartWhole(const Gang& gang, const std::string& why, absl::Time now);
  // Goes on with jobs that carry the mark, whoever suspended them.
  void KeepRestarts(absl::Time now);
  Reason RestartBlocker(Gang& gang);
  TriedFlavors TriedBefore(const Gang& gang) const;
  std::string NextFlavor(const Gang& gang, const std::map<std::string, absl::Time>& tried);
  std::string WhyNoFallback(const Gang& gang, std::string* fix) const;
  // The beginning of a fallback's sentence.
  static std::string WhatFailed(const Gang& gang, const AdmissionRecord& record,
                                const std::set<std::string>& flavors);
  std::optional<Fallback> FallbackOf(const Gang& gang, const AdmissionRecord& record);
  void FindFallback(Gang& gang);
  void NoteFallback(const Gang& gang, AdmissionRecord* record, absl::Time now);
  void DecideFallback(Gang& gang, absl::Time now);
  Reason WithFallback(const Gang& gang, Reason reason) const;
  InFlight::OnFinish NoteRefusedRestart(const JobGangs::KnownJob& job, const std::string& what,
                                        const std::string& fix);

  // --- kueue_fallback.cc ---
  bool GivesBackToKueue() const {
    return options.quota == QuotaMode::kKueue && options.kueue_fallback;
  }
  void NoteWorkload(kube::Workload workload);
  void RemoveWorkload(const std::string& uid);
  void WorkloadChanged(const std::string& job_uid);
  // Kueue suspends and resumes this job.
  bool IsKueues(const Gang& gang, const JobGangs::KnownJob& job) const;
  // What the job waits for in Kueue, if that is one that is known; else null.
  const kube::Workload* KueuesWorkloadOf(const JobGangs::KnownJob& job) const;
  Restarter RestarterThroughKueue(const Gang& gang, const JobGangs::KnownJob& job) const;
  // What Kueue gave the members of the gang now; empty if that isn't known.
  std::set<std::string> FlavorsOfKueue(const Gang& gang) const;
  // It gave up before this process began, and its Workload is still to be observed.
  bool AwaitsWorkload(const Gang& gang, absl::Time now);
  // The Workload as Kueue may assign it once these flavors are left out: the first other flavor, ""
  // if there is none, and what is to be written.
  struct OtherChoice {
    std::string flavor;
    std::vector<PatchWorkload::NodeTerms> pod_sets;
  };
  OtherChoice ChoiceWithout(const kube::Workload& workload,
                            const std::map<std::string, absl::Time>& tried);
  std::optional<Fallback> FallbackInKueue(const Gang& gang, const AdmissionRecord& record);
  bool GiveBack(const JobGangs::KnownJob& job, const kube::Workload& workload,
                const std::string& why, const TriedFlavors& tried, absl::Time now);
  // Goes on with Workloads that carry the mark, whoever gave them back.
  void KeepWorkloads(absl::Time now);
  void KeepWorkload(const kube::Workload& workload, absl::Time now);
  Reason KueueBlocker(const Gang& gang, const JobGangs::KnownJob& job) const;
  // What Kueue does for a gang that gave up and isn't given back to it.
  std::string KueueNote(const Gang& gang) const;

  // --- report.cc ---
  void EnterState(Gang& gang, absl::Time now);
  Reason ReasonFor(const Gang& gang) const;
  Reason ProvisioningReason(const Gang& gang) const;
  Reason ReadyReason(const Gang& gang) const;
  std::string ShortfallText(const Gang& gang) const;
  Reason ComingReason(const Gang& gang) const;
  void NoteBindLatency(Gang& gang, absl::Time now);
  void WriteStatus(Gang& gang, absl::Time now);
  void AnswerFilters(const Gang& gang, StepOutput* out);
  void PublishAnswer(const std::string& uid, FilterAnswer answer, StepOutput* out);
  std::string NodeLabelFor(const std::string& place) const;

  // --- node_holds.cc ---
  void ReconcileHolds(absl::Time now);
  std::map<std::string, Holds> WantedHolds(absl::Time now);
  void KeepHolds(const std::string& uid, std::map<std::string, Holds>* want) const;
  // The Node behind a place: itself, or the one its NodeClaim names; "" if there is none yet.
  std::string RealNodeOf(const std::string& place) const;

  // --- losses.cc ---
  void NoteTrouble(const std::string& node);
  void MarkGangsOn(const std::string& node);
  void CheckTroubles(absl::Time now);
  // Null if nothing is wrong with it.
  const NodeTrouble* TroubleOn(const std::string& node);
  void FindLosses(Gang& gang);
  void NoteRemovedMember(const kube::Pod& pod);
  void ForgetLosses(Gang& gang);
  // When a gang that isn't whole by then is restarted.
  absl::Time RepairDue(const Gang& gang) const;
  Reason RepairReason(const Gang& gang) const;
  // Of a gang that stands: what is wrong with its nodes.
  std::optional<Reason> RiskReason(const Gang& gang) const;
  std::string SuspectText(const Gang& gang) const;
  void AddSuspects(const Gang& gang, Reason* reason) const;
  void NoteRepair(Gang& gang, absl::Time now);

  // --- suspect_marks.cc ---
  void ReportFault(const kube::Pod& pod, const GangKey& key);
  void ReadFaults();
  void NoteSuspectMarks(const kube::Node& node, bool had_annotation);
  void MarkSuspects(absl::Time now);
  // True if the Node says of itself what it should.
  bool MarkSuspect(const kube::Node& node, absl::Time now);

  // --- describe.cc ---
  void Describe(const Gang& gang, v1::Gang* out) const;
  // Tells of the gang if its description has changed since it was shown last.
  void Show(Gang& gang);
  void Unshow(Gang& gang);
  // Something about this node has changed or is about to: gangs that show it are looked at.
  void NotePlace(const std::string& place);
  void DescribeNode(const cluster::NodeInfo& info, v1::Node* out) const;

  EngineOptions options;
  cluster::Snapshot snapshot;
  std::map<GangKey, Gang> gangs;
  // By UID. A gang stays while a pod or a PodGroup is its own.
  absl::flat_hash_map<std::string, Gang*> gang_of_pod;
  absl::flat_hash_map<std::string, Gang*> gang_of_group;
  JobGangs jobs;
  // Jobs that carried the mark in the last step, and those that aren't restarted for a time.
  std::set<std::string> restarting_seen;
  struct LeftAlone {
    std::string why, fix;
    absl::Time until;
  };
  std::map<std::string, LeftAlone> left_alone;
  // By UID, and by that of the job.
  std::map<std::string, kube::Workload> kueue_workloads;
  std::map<std::string, std::set<std::string>> kueue_workloads_of;
  std::set<std::string> marked_workloads;     // UIDs of those that have annotations of ours
  absl::Time began = absl::InfiniteFuture();  // when all but they had been observed once
  // By the UID of their controller: the UIDs of our pods.
  absl::flat_hash_map<std::string, absl::flat_hash_set<std::string>> pods_of_owner;
  absl::flat_hash_map<std::string, NodeMarks> node_marks;
  absl::flat_hash_map<std::string, absl::Time> usable_since;
  // By node; of nodes that are gone only while members stand there.
  std::map<std::string, NodeTrouble, std::less<>> troubles;
  absl::Time troubles_checked = absl::InfinitePast();
  std::set<std::string> changed_nodes;  // since they were last checked
  // NodeClaims that aren't initialized, and since when no gang needs them.
  std::map<std::string, absl::Time> coming_claims;
  NodePools node_pools;
  // UIDs of pods that are gone, so that an answer that arrives late doesn't revive one. The oldest
  // go first.
  absl::flat_hash_set<std::string> gone_pods;
  std::deque<std::string> gone_order;

  bool synced = false;
  bool leading = true;
  bool gating_active = false;
  bool needs_pass = true;
  bool acted = false;  // Act was asked for something
  absl::Time next_wake = Never();
  // When places are to be sought again though nothing changes: something that the last pass took
  // into account is over then.
  absl::Time next_pass = Never();
  absl::Time clock = absl::InfinitePast();  // of the last Step or call that carried a time

  quota::QuotaScheduler quotas;
  absl::flat_hash_map<std::string, Gang*> gang_of_quota;
  std::map<std::string, int64_t, std::less<>> priority_classes;
  std::map<std::string, kube::PodDisruptionBudget, std::less<>> budgets;  // by full name
  // By pod set, count and flavor; emptied when nodes or NodePools change.
  std::map<std::string, std::string> placeability;
  bool places_changed = false;
  // By spec and count; emptied when NodePools change, and now and then when nodes do.
  std::map<std::pair<std::shared_ptr<const kube::PodSpec>, int64_t>,
           std::shared_ptr<const Feasibility>>
      judged;
  absl::Time judged_at = absl::InfinitePast();
  bool pools_changed = false;
  bool nodes_to_judge = false;
  absl::Time next_flavor_retry = Never();
  absl::Time reasons_read = absl::InfinitePast();  // why gangs wait for quota
  bool reasons_stale = false;
  bool quota_in_use = false;  // when a queue came or went last
  bool queues_changed = false;
  bool queue_status_stale = false;  // some queue's status may differ from what was written
  std::map<std::string, QueueShown> queues_shown;

  std::mt19937_64 random;
  InFlight in_flight;
  SuspectNodes suspects;
  // Nodes whose marks may have to change.
  std::set<std::string> suspect_candidates;
  std::vector<std::pair<kube::Pod, GangKey>> failed_pods;  // not reported yet
  bool faults_read = false;  // those of pods that had failed before this process began
  PodRefusals refusals;
  Setbacks setbacks;
  // Bind calls that wait, by pod UID. Bounded by the pods that exist: kube-scheduler has one call
  // per pod under way.
  absl::flat_hash_map<std::string, std::vector<HeldBind>> held_binds;
  // Nodes whose holds may have to change; all of them at the start.
  std::set<std::string> hold_candidates;

  absl::flat_hash_map<std::string, FilterAnswer> answers;
  std::vector<std::string> answers_to_remove;

  StepOutput* out = nullptr;            // during Step and Finish
  std::vector<NumberedAction> pending;  // decided outside Step
  std::vector<GangKey> removed_gangs;
  ShownOn shown_on;
  bool nodes_changed = false;
  uint64_t next_revision = 1;
  EngineStats stats;
};

}  // namespace muster::coscheduling
