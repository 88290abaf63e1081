// The gang scheduler's core: observations in, decisions out.
//
// Owns all scheduling state: the snapshot, the gangs, their plans, and what is under way. Owned by
// one thread; does no I/O; time is passed in. Level-triggered: Step compares what should be with
// what has been observed and returns the difference as actions; nothing is remembered that could
// not be read again from the API server. README.md draws the states and the way of one gang.
//
//   engine.Upsert(pod); engine.Upsert(node); ...
//   engine.SetSynced();
//   for (;;) {
//     StepOutput out = engine.Step(now);
//     for (action : out.actions) carry it out, later engine.Finish(action.id, status, now);
//     wait for an observation, a result, a bind call, or engine.NextWake().
//   }
//
// An object returned by a write is to be upserted before Finish is called for that write.
// Observations may come late or twice: an older resource version of the same object is ignored.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cluster/instance_types.h"
#include "coscheduling/actions.h"
#include "kube/objects/event.h"
#include "kube/objects/job.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "kube/objects/quota.h"
#include "kube/objects/workload.h"
#include "muster/v1/states.pb.h"

namespace muster::v1 {
class Gang;
class Node;
class Queue;
class Flavor;
}  // namespace muster::v1

namespace muster::cluster {
class Snapshot;
}

namespace muster::coscheduling {

enum class QuotaMode { kOff, kInternal, kKueue };

struct EngineOptions {
  std::string scheduler_name = "coscheduling";
  // Identity of this process, written to records; a new one bumps their epoch.
  std::string identity = "muster";
  // From admission until the gang gives up its nodes, where scheduleTimeoutSeconds doesn't say.
  // Above Karpenter's own 15 min registration limit plus launch.
  absl::Duration provisioning_deadline = absl::Minutes(20);
  // Within it, how long each of its nodes may take to be launched, then registered, then usable. A
  // node that is made in place of one that failed goes on with its time. README.md has the reasons.
  absl::Duration launch_deadline = absl::Minutes(4);
  // How long after a launch was refused for insufficient capacity others are tried in its place:
  // where nodes may be withdrawn, and in the attempts after one that ended so. Else, and at most,
  // launch_deadline.
  absl::Duration refusal_deadline = absl::Seconds(40);
  absl::Duration registration_deadline = absl::Minutes(10);
  absl::Duration initialization_deadline = absl::Minutes(10);
  // Backoff after the n-th failed attempt: base * 2^(n-1), at most max, with up to 10 % jitter.
  absl::Duration backoff_base = absl::Seconds(30);
  absl::Duration backoff_max = absl::Minutes(10);
  // At least, after insufficient capacity: so long AWS's provider doesn't ask for it again.
  absl::Duration capacity_backoff = absl::Minutes(3);
  // A gang with bound members that can't be completed is restarted whole after this.
  absl::Duration repair_deadline = absl::Minutes(5);
  // A member whose node isn't Ready counts as lost after this: three of the kubelet's heartbeats
  // (every 10 s), beyond the 50 s in which the node controller had waited for one.
  absl::Duration node_grace = absl::Seconds(30);
  // After a signal, the nodes that a gang already counts on are kept from others for this long,
  // until the claims that complete it exist.
  absl::Duration signal_grace = absl::Seconds(30);
  // The first gang in order, once it has waited this long, keeps freed room for at most
  // starvation_hold in each starvation_after.
  absl::Duration starvation_after = absl::Minutes(5);
  absl::Duration starvation_hold = absl::Minutes(1);
  // NodeClaims that were made for gangs are deleted while their nodes come up, if they are late or
  // no gang needs them any more (README.md). Takes a right that the manifests don't give.
  bool withdraw_nodes = false;
  // How long a node is left out after the kubelet failed a member there, or its devices did.
  absl::Duration suspect_time = absl::Minutes(10);
  // Suspect nodes get taint muster.dev/suspect:NoSchedule for that time, which keeps everybody's
  // pods away, and tells Karpenter that there is no room.
  bool taint_suspects = false;
  // How long a node is left out at most for a gang after kube-scheduler refused it
  // (refused_nodes.h).
  absl::Duration refusal_time = absl::Seconds(30);
  // Held bind calls are answered with an error after this (half of the extender's httpTimeout).
  absl::Duration bind_wait = absl::Seconds(15);
  // An ungated member that kube-scheduler doesn't bring back is touched again after this.
  absl::Duration wake_interval = absl::Seconds(5);
  // Who decides about quota: nobody, we ourselves by Kueue's objects (no queue at all in the
  // cluster: no quota), or the real Kueue, whose gates and suspension are respected in any case.
  QuotaMode quota = QuotaMode::kInternal;
  // With kKueue: a gang whose flavor's nodes don't come is given back to Kueue through its Workload
  // for another flavor (README.md). Takes rights that the manifests don't give.
  bool kueue_fallback = false;
  // Within a cohort, shares decide order and victims (Kueue's fairSharing.enable).
  bool fair_sharing = false;
  // Quota that is held for nodes that neither exist nor can be made by any NodePool is given back
  // after this.
  absl::Duration unplaceable_grace = absl::Seconds(30);
  // What EC2's types have, to tell which gangs no NodePool can ever make nodes for.
  cluster::InstanceTypes instance_types = cluster::InstanceTypes::BuiltIn();
  // Another autoscaler than Karpenter makes nodes too: no gang is held back for what NodePools say.
  bool assume_feasible = false;
  // A pod whose owner is of a job kind that is read and isn't known waits this long for it, then it
  // is a gang of one. Above the time in which a CRD installed since the last look is found.
  absl::Duration owner_wait = absl::Seconds(20);
  // That the API server refuses the pods of a job is told until its controller hasn't repeated it
  // for this long. Above the longest pause that controllers make (pod_refusals.h).
  absl::Duration pod_refusal_time = absl::Minutes(20);
  uint64_t seed = 1;
};

// What /filter answers for a pod. Published by value; readers never touch the engine.
struct FilterAnswer {
  enum class Kind {
    kPlanned,       // only `node` passes
    kUnresolvable,  // no node passes; the pod becomes Unschedulable, which provisioners see
    kHold,          // an error; the pod waits, invisible to provisioners
  };
  Kind kind = Kind::kHold;
  std::string node;
  std::string message;
  bool operator==(const FilterAnswer&) const = default;
};

struct GangKey {
  std::string name_space;
  std::string name;
  bool is_pod = false;  // a gang of one without a PodGroup
  auto operator<=>(const GangKey&) const = default;
  std::string ToString() const;  // "namespace/name"
};

// One decision, for the log: "gang=default/g state=READY reason=GATES_LIFTING 4 of 4 ...".
struct DecisionNote {
  GangKey gang;
  v1::GangState state;
  v1::ReasonCode reason;
  std::string message;
};

struct StepOutput {
  std::vector<NumberedAction> actions;
  // Gangs whose Describe() changed, or that are gone (Describe answers false).
  std::vector<GangKey> changed_gangs;
  bool nodes_changed = false;
  bool queues_changed = false;
  // Pods whose filter answer changed; an empty optional removes it.
  std::vector<std::pair<std::string, std::optional<FilterAnswer>>> filter_answers;
  std::vector<DecisionNote> notes;
};

// Counters and moments for metrics; monotonic since the start.
struct EngineStats {
  uint64_t passes = 0;  // placement passes
  uint64_t plans = 0;
  uint64_t gangs_bound = 0;
  uint64_t gangs_backed_off = 0;
  uint64_t gangs_restarted = 0;
  size_t gangs = 0;
  size_t in_flight = 0;
  size_t held_binds = 0;
  size_t pod_refusals = 0;            // owners whose pods are refused, as far as is known
  uint64_t pod_refusals_dropped = 0;  // because there were too many
  // From the last of its nodes becoming usable to the last binding, per gang.
  std::vector<absl::Duration> bind_latencies;
  std::vector<std::pair<v1::GangState, absl::Duration>> state_times;
};

class Engine {
 public:
  explicit Engine(EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The time of what is observed from now on, so that it can be said when something happened. Never
  // goes back.
  void AdvanceTo(absl::Time now);

  void Upsert(kube::Pod pod);
  void Upsert(kube::Node node);
  void Upsert(kube::PodGroup group);
  void Upsert(kube::NodeClaim claim);
  void Upsert(kube::NodePool pool);
  void Upsert(kube::ResourceFlavor flavor);
  void Upsert(kube::ClusterQueue queue);
  void Upsert(kube::LocalQueue queue);
  void Upsert(kube::Cohort cohort);
  void Upsert(kube::WorkloadPriorityClass priority_class);
  void Upsert(kube::Workload workload);
  void Upsert(kube::PodDisruptionBudget budget);
  void Upsert(kube::DaemonSet daemon_set);
  void Upsert(kube::Namespace name_space);
  void Upsert(kube::PersistentVolumeClaim claim);
  void Upsert(kube::PersistentVolume volume);
  void Upsert(kube::StorageClass storage_class);
  // What owns pods says which of them form a gang (job_gangs.h).
  void Upsert(const kube::Job& job);
  void Upsert(const kube::StatefulSet& set);
  void Upsert(const kube::JobSet& set);
  void Upsert(const kube::PyTorchJob& job);
  void Upsert(const kube::TrainJob& job);
  // Those that say that pods or nodes were refused are heeded. That an event is deleted says
  // nothing.
  void Upsert(const kube::Event& event);
  // By UID, so that a late deletion never removes a successor of the same name.
  void RemovePod(std::string_view uid);
  void RemovePodGroup(std::string_view uid);
  // Of any kind of job.
  void RemoveJob(std::string_view uid);
  void RemoveWorkload(std::string_view uid);
  // The others by name ("namespace/name" where namespaced).
  void RemoveNode(std::string_view name);
  void RemoveNodeClaim(std::string_view name);
  void RemoveNodePool(std::string_view name);
  void RemoveResourceFlavor(std::string_view name);
  void RemoveClusterQueue(std::string_view name);
  void RemoveLocalQueue(std::string_view full_name);
  void RemoveCohort(std::string_view name);
  void RemoveWorkloadPriorityClass(std::string_view name);
  void RemovePodDisruptionBudget(std::string_view full_name);
  void RemoveDaemonSet(std::string_view uid);
  void RemoveNamespace(std::string_view name);
  void RemovePersistentVolumeClaim(std::string_view full_name);
  void RemovePersistentVolume(std::string_view name);
  void RemoveStorageClass(std::string_view name);

  // Everything that exists has been upserted once. Before this Step decides nothing.
  void SetSynced();
  // Only a leader acts: false ends all activity (held binds are answered with an error), true
  // starts a new epoch, which makes bindings of an older leader fail.
  void SetLeading(bool leading);
  // The webhook that gates pods is in place; reasons say so while it isn't.
  void SetGatingActive(bool active);

  // kube-scheduler's bind call: answered by an AnswerBind action with this id, within
  // options.bind_wait.
  void RequestBind(uint64_t request, std::string_view pod_uid, std::string_view node,
                   absl::Time now);
  // kube-scheduler left the planned node out of a filter call.
  void RefusePlannedNode(std::string_view pod_uid, std::string_view node, absl::Time now);
  void Finish(uint64_t action_id, const absl::Status& status, absl::Time now);

  StepOutput Step(absl::Time now);
  // When Step has something to do without a new observation; InfiniteFuture if never.
  absl::Time NextWake() const;

  // Fills the message; false if there is no such gang.
  bool Describe(const GangKey& key, v1::Gang* gang) const;
  std::vector<GangKey> Gangs() const;
  void DescribeNodes(std::vector<v1::Node>* nodes) const;
  // ClusterQueues, then LocalQueues, each in order of their names.
  void DescribeQueues(std::vector<v1::Queue>* queues) const;
  void DescribeFlavors(std::vector<v1::Flavor>* flavors) const;
  const cluster::Snapshot& snapshot() const;
  // bind_latencies and state_times are those since the last call.
  EngineStats TakeStats();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster::coscheduling
