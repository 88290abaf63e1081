// Flavor-aware quota with Kueue's semantics (sigs.k8s.io/kueue v0.19.2): who is admitted, to which
// flavors, at whose expense.
//
// Owns quota objects, the queue of waiting workloads, and the usage of admitted ones. No I/O, no
// clock; owned by one thread. Usage is the sum of the admissions it was told of: nothing else
// counts.
//
//   scheduler.Upsert(flavor); scheduler.Upsert(cluster_queue); ...
//   scheduler.SetAdmitted(workload, admission);   // read from a record, at start or later
//   scheduler.Enqueue(workload);
//   for (Decision& d : scheduler.Schedule(now, feasible)) {
//     // an admission is counted from here on: write the record; Withdraw(id) if that fails for
//     good
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "kube/objects/quota.h"
#include "kube/objects/workload.h"
#include "quota/resource_rules.h"
#include "quota/workload.h"
#include "quota/workload_end.h"

namespace muster::quota {

// May this admitted workload, or what it has beyond its minMember, be evicted now? Called during
// Schedule; after a change of its answers InvalidateEviction is to be called.
using Evictability = std::function<bool(std::string_view id, bool surplus_only)>;

struct QuotaOptions {
  // Shares within a cohort decide order and victims instead of classical preemption
  // (Kueue's fairSharing.enable).
  bool fair_sharing = false;
  ResourceRules resources = {};      // what requests count as
  Evictability may_evict = nullptr;  // null: all may
};

enum class VictimReason { kInClusterQueue, kReclamation, kFairSharing, kReclaimWhileBorrowing };
// What the workload does for which somebody is a victim.
std::string_view VictimText(VictimReason reason);
// Of condition Preempted (Kueue v0.19.2 apis/kueue/v1beta2/workload_types.go).
std::string_view KueueReason(VictimReason reason);

struct Victim {
  std::string id;
  VictimReason reason = VictimReason::kInClusterQueue;
  bool surplus_only = false;  // giving back what is beyond its minMember suffices
};

struct Decision {
  std::string id;
  // Either admitted (counted from now on), or waiting for these victims' quota to be given back.
  std::shared_ptr<const Admission> admission;  // null if not
  std::vector<Victim> victims;
  // Members beyond minMember of a workload that is admitted already were counted too: `admission`
  // is the whole new one.
  bool surplus_only = false;
};

// Why a workload waits, for the gang's reason. The numbers are those of muster.v1.ReasonCode.
enum class WaitCode {
  kNone = 0,             // admitted, or not known
  kQueueNotFound = 100,  // its LocalQueue doesn't exist, or its ClusterQueue
  kQueueInvalid,         // an object's field, or a flavor or cohort it names, makes it unusable
  kQueueStopped,         // stopPolicy of the LocalQueue or ClusterQueue
  kNamespaceNotSelected,
  kResourceNotCovered,  // asks for a resource that the ClusterQueue doesn't cover
  kFlavorMismatch,      // no flavor's labels and taints agree with the pods
  kQuotaTooSmall,       // more than could ever be available
  kQuotaInUse,          // would fit if others gave back theirs
  kPreempting,          // victims were chosen and are being evicted
  kNotPlaceable,        // quota is there, but no node or NodePool for it
  kBehindOthers,        // behind its queue's head (StrictFIFO, or the head waits for its victims),
                        // or others in the cohort go first; also if not looked at yet
  kAnotherKueue = 114,  // somebody else admits from the same queues
};

struct Wait {
  WaitCode code = WaitCode::kNone;
  std::string message;  // one sentence, naming objects, fields and numbers
  std::string fix;
};

// May this pod set be placed if it gets this flavor? "" if so, or if that can't be known; else why
// not. Called during Schedule; must answer the same until the next call of InvalidatePlacement.
using Feasibility =
    std::function<std::string(const Workload&, const PodSet&, const kube::ResourceFlavor&)>;

struct FlavorUsage {
  std::string flavor;
  std::string resource;
  int64_t nominal = 0;
  int64_t reserved = 0;  // by admissions
  int64_t borrowed = 0;  // of `reserved`, beyond nominal
  bool operator==(const FlavorUsage&) const = default;
};

struct QueueStatus {
  std::string name;           // of a LocalQueue "namespace/name"
  std::string cluster_queue;  // of a LocalQueue
  std::string cohort;
  int64_t pending = 0;
  int64_t admitted = 0;
  std::vector<FlavorUsage> usage;
  // First in line first; at most the number asked for.
  std::vector<std::string> pending_ids;
  std::optional<int64_t> fair_share;  // its dominant resource share, with fair sharing
  std::string error;                  // why it is inactive; empty normally
  // Kueue's reason of condition Active if a stopPolicy, its end, or an object that it names and
  // that isn't there keeps it from admitting; empty normally.
  std::string stopped = {};
  bool operator==(const QueueStatus&) const = default;
};

// What becomes of an object's finalizers.
struct FinalizerChange {
  std::string_view plural;       // "clusterqueues", "resourceflavors"
  const kube::ObjectMeta* meta;  // valid until the object changes
  std::vector<std::string> finalizers;
};

class QuotaScheduler {
 public:
  explicit QuotaScheduler(QuotaOptions options);
  ~QuotaScheduler();
  QuotaScheduler(const QuotaScheduler&) = delete;
  QuotaScheduler& operator=(const QuotaScheduler&) = delete;

  // True if anything has changed that a decision depends on: not when a queue's status was written.
  bool Upsert(kube::ResourceFlavor flavor);
  bool Upsert(kube::Topology topology);
  bool Upsert(kube::ClusterQueue queue);
  bool Upsert(kube::LocalQueue queue);
  bool Upsert(kube::Cohort cohort);
  bool Upsert(kube::Namespace name_space);
  // Whoever asks for quota says its priority itself: no decision depends on this.
  bool Upsert(kube::WorkloadPriorityClass priority_class);
  bool Upsert(kube::PriorityClass priority_class);
  // By its name alone.
  bool Remove(const kube::ResourceFlavor& flavor);
  bool Remove(const kube::Topology& topology);
  bool Remove(const kube::ClusterQueue& queue);
  bool Remove(const kube::LocalQueue& queue);
  bool Remove(const kube::Cohort& cohort);
  bool Remove(const kube::Namespace& name_space);
  bool Remove(const kube::WorkloadPriorityClass& priority_class);
  bool Remove(const kube::PriorityClass& priority_class);

  // What a record says. Replaces what this workload had; it leaves the queue. The ClusterQueue
  // need not exist (any more): the usage counts again once it does. An admission equal to the one
  // that is counted changes nothing: the workload's surplus stays in line, and it stays a victim if
  // it was named as one.
  void SetAdmitted(const Workload& workload, const Admission& admission);
  // Gives back all it has and leaves the queue.
  void Withdraw(std::string_view id);
  // Waits for quota. Replaces an earlier version of itself; what it has is given back. Of an
  // admitted workload whose surplus grew, EnqueueSurplus: Workload::surplus is all of it, with what
  // is counted already; nothing happens if the workload isn't admitted. Surplus that didn't fit
  // when its gang was admitted stays in line without that call. It is counted as far as it fits,
  // pod by pod, gets its gang's flavors where the pod set's name is the same, and holds nobody up.
  void Enqueue(const Workload& workload);
  void EnqueueSurplus(const Workload& workload);

  // Counts what these were given, though nobody here may evict them; all of them each time. Who
  // makes room takes first what is going. Those that are of them no more are withdrawn, but for
  // those that a gang tells of now. False if nothing changed.
  bool SetOrphans(const std::vector<Orphan>& orphans,
                  absl::FunctionRef<bool(const std::string&)> is_told);

  // What `who` runs in this namespace without having been admitted; empty: nothing any more. Who
  // asks for quota from there must fit beside it. It is nobody's usage, and nobody of another
  // namespace waits for it.
  void SetUnadmitted(const std::string& name_space, const std::string& who, FlavorAmounts amounts);
  // The same of what is nobody's on this node, by namespace; whom it doesn't name has nothing
  // there.
  void SetUnadmittedOn(const std::string& node, std::map<std::string, FlavorAmounts> amounts);
  // Of whom something is known.
  std::vector<std::pair<std::string, std::string>> Unadmitted() const;

  // Something that Feasibility depends on has changed: for all that wait, or for this one.
  void InvalidatePlacement();
  void InvalidatePlacement(std::string_view id);
  // Evictability may answer otherwise about this admitted workload.
  void InvalidateEviction(std::string_view id);
  // While this has a code it is what everybody waits for: nobody is admitted, nor anybody evicted
  // in favour of others. What is admitted stays counted.
  void Close(Wait why);
  bool IsClosed() const;
  // These might yet be given quota by who decided before, so nobody else is given any of the trees
  // of cohorts that they may be in. Replaces those of the last call. True if nobody is held any
  // more who was.
  bool Hold(const std::vector<const kube::Workload*>& untaken);
  bool HoldsAny() const;
  // Something has changed since the last Schedule that may admit somebody.
  bool NeedsSchedule() const;
  // Decides all that can be decided now: repeats Kueue's scheduling cycle until it yields nothing.
  // Waiting for victims is told when there is a new one among them; a victim counts as one until it
  // was withdrawn, or gave back its surplus (SetAdmitted with less). Where somebody has several
  // decisions about victims the last one is in force. An empty function: no placement is asked for.
  std::vector<Decision> Schedule(absl::Time now, const Feasibility& feasible);

  Wait WhyWaiting(std::string_view id) const;
  // What a pod set of a waiting workload could get instead of this flavor: those of the same
  // resource group of its ClusterQueue whose labels and taints agree with the pods and of which
  // there could be quota enough. A Feasibility may ask for them.
  std::vector<const kube::ResourceFlavor*> OtherFlavors(std::string_view id,
                                                        std::string_view pod_set,
                                                        std::string_view flavor) const;
  // The same of a workload that need not wait, as if it did. None if it would stand in no line.
  std::vector<const kube::ResourceFlavor*> OtherFlavors(const Workload& workload,
                                                        std::string_view pod_set,
                                                        std::string_view flavor);
  const kube::ResourceFlavor* FindFlavor(std::string_view name) const;
  const kube::Topology* FindTopology(std::string_view name) const;
  std::vector<const kube::Topology*> Topologies() const;  // in order of their names
  // Each of what a pod set was given once, as far as they exist still.
  std::vector<const kube::ResourceFlavor*> FlavorsOf(const PodSetAssignment& given) const;
  // Null if there is none; by its full name.
  const kube::LocalQueue* FindLocalQueue(std::string_view name) const;
  const kube::ClusterQueue* FindClusterQueue(std::string_view name) const;
  const kube::WorkloadPriorityClass* FindPriorityClass(std::string_view name) const;
  // What pods have whose spec names this class; none: what those have that name none. nullopt if
  // there is no such class.
  std::optional<int32_t> PodPriorityOf(std::string_view class_name) const;
  // Up to which priority of others pods of this class may opt out of giving them their room:
  // annotation muster.dev/may-opt-out-up-to, a number. nullopt: not at all.
  std::optional<int64_t> MayOptOutUpTo(std::string_view class_name) const;
  std::vector<const kube::ResourceFlavor*> Flavors() const;  // in order of their names
  std::vector<QueueStatus> ClusterQueues(size_t max_pending_ids) const;
  // The sums over all ClusterQueues, in order of flavors and resources.
  std::vector<FlavorUsage> FlavorTotals() const;
  // Names are full names; usage has only `reserved`.
  std::vector<QueueStatus> LocalQueues(size_t max_pending_ids) const;
  // Of Cohorts that exist, with fair sharing: their names and shares.
  std::vector<QueueStatus> Cohorts() const;
  // Finalizer resource-in-use is on each ClusterQueue, and goes from one that is being deleted once
  // nobody has quota there; the same of a ResourceFlavor that no ClusterQueue names any more (Kueue
  // v0.19.2 pkg/controller/core/clusterqueue_controller.go:180, resourceflavor_controller.go:100).
  std::vector<FinalizerChange> FinalizerChanges() const;
  // Admissions that are on a ClusterQueue, or of a LocalQueue, with stopPolicy HoldAndDrain, by id,
  // with Kueue's reason for evicting them.
  std::map<std::string, std::string_view> ToDrain() const;

 private:
  friend class Judge;  // judgement.h
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster::quota
