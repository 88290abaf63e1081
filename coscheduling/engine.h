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
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coscheduling/actions.h"
#include "coscheduling/engine_options.h"
#include "coscheduling/gang_key.h"
#include "coscheduling/report/step_output.h"
#include "kube/objects/event.h"
#include "kube/objects/job.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "kube/objects/quota.h"
#include "kube/objects/workload.h"
#include "muster/v1/states.pb.h"
#include "quota/quota_scheduler.h"

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

// What is watched. What owns pods says which of them form a gang (job_gangs.h).
using Observed =
    std::variant<kube::Pod, kube::Node, kube::ResourceSlice, kube::PodGroup, kube::NodeClaim,
                 kube::NodePool, kube::NodeClass, kube::ResourceFlavor, kube::Topology,
                 kube::ClusterQueue, kube::LocalQueue, kube::Cohort, kube::WorkloadPriorityClass,
                 kube::PriorityClass, kube::Workload, kube::PodDisruptionBudget, kube::DaemonSet,
                 kube::Namespace, kube::PersistentVolumeClaim, kube::PersistentVolume,
                 kube::StorageClass, kube::CsiNode, kube::CsiDriver, kube::CsiStorageCapacity,
                 kube::VolumeAttachment, kube::Job, kube::StatefulSet, kube::JobSet,
                 kube::PyTorchJob, kube::TrainJob, kube::MPIJob, kube::RayCluster, kube::RayJob>;

// Counters and moments for metrics; monotonic since the start.
struct EngineStats {
  uint64_t passes = 0;  // placement passes
  uint64_t plans = 0;
  uint64_t gangs_bound = 0;
  uint64_t gangs_backed_off = 0;
  uint64_t gangs_restarted = 0;
  uint64_t gangs_preempted = 0;    // for the room of others
  uint64_t surplus_preempted = 0;  // members beyond minMember
  double reserved_idle_gpu_seconds = 0;
  size_t reservations = 0;
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

  // The object, or another version of it.
  void Upsert(Observed object);
  // Those that say that pods or nodes were refused are heeded. That an event is deleted says
  // nothing.
  void Upsert(const kube::Event& event);
  // It is gone; only namespace, name and UID count. Pods, PodGroups, jobs and Workloads go by UID,
  // so that a late deletion never removes a successor of the same name, the others by name.
  void Remove(const Observed& object);

  // Everything that exists has been upserted once. Before this Step decides nothing.
  void SetSynced();
  // Only a leader acts: false ends all activity (held binds are answered with an error), true
  // starts a new epoch, which makes bindings of an older leader fail.
  void SetLeading(bool leading);
  // The webhook that gates pods is in place; reasons say so while it isn't.
  void SetGatingActive(bool active);
  // Whether pods that are created now must be gated. Not standalone where no NodePool is: nobody
  // else binds them or makes nodes for them then, and the plan alone keeps them to their flavors'
  // nodes. Those that came ungated before the first NodePool have nodes made by their own
  // selectors.
  bool NeedsGate() const;
  // Somebody else gives quota too, so that nobody is given any here; without a code: no more.
  void CloseQuota(quota::Wait why);

  // kube-scheduler's bind call: answered by an AnswerBind action with this id, within
  // options.bind_wait.
  void RequestBind(uint64_t request, std::string_view pod_uid, std::string_view node,
                   absl::Time now);
  // kube-scheduler left the planned node out of a filter call, in which it offered these: with
  // percentageOfNodesToScore 100 all that passed its own filters. Without them only the planned one
  // is left out.
  void RefusePlannedNode(std::string_view pod_uid, std::string_view node,
                         const std::vector<std::string>& offered, absl::Time now);
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
  struct Owners;
  std::unique_ptr<Owners> owners_;
};

}  // namespace muster::coscheduling
