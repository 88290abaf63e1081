// What the engine decides to do. Plain data: a shell turns each into one API request (or one answer
// to a waiting bind call), carries it out, and reports the outcome by the action's id.
//
// Every action is safe to repeat and safe to lose: the engine compares what it wants with what it
// has observed and decides again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "kube/objects/meta.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "quota/flavor_terms.h"
#include "quota/pod_sets.h"
#include "quota/quota_scheduler.h"

namespace muster::coscheduling {

// An object as it was last seen. Writes carry uid (and, where said, resource_version) as
// preconditions, so they never reach a successor of the same name.
struct ObjectRef {
  std::string name_space;
  std::string name;
  std::string uid;
  std::string resource_version;
};

inline ObjectRef RefOf(const kube::ObjectMeta& meta) {
  return {meta.name_space, meta.name, meta.uid, meta.resource_version};
}

// Sets annotation muster.dev/admission on the PodGroup by compare-and-swap on resource_version.
// An empty `record` removes it.
struct WriteRecord {
  ObjectRef group;
  std::string record;  // JSON, record.h
};

// Status patch: condition PodScheduled=False with this reason. "Unschedulable" asks the autoscaler
// for a node, "SchedulingGated" takes that back. Precondition: uid.
struct SignalPod {
  ObjectRef pod;
  std::string reason;
  std::string message;
};

// Removes gate muster.dev/admission (and no other), precondition: uid.
struct LiftGate {
  ObjectRef pod;
};

// Posts the binding with uid and resource_version preconditions and do-not-disrupt in its
// annotations.
struct BindPod {
  ObjectRef pod;
  std::string node;
};

// Sets (or with nullopt removes) annotations of a node by compare-and-swap on resource_version.
struct AnnotateNode {
  std::string node;
  std::string resource_version;
  std::map<std::string, std::optional<std::string>> annotations;
};

// Adds a taint to a node, takes one away, or both, in one JSON patch. Preconditions:
// resource_version, and the key of the one that goes.
struct TaintNode {
  std::string node;
  std::string resource_version;
  std::optional<size_t> remove;  // its place in the list
  bool none_there = false;       // so the list is made
  std::optional<kube::Taint> add;
  std::string key;  // of both
};

// Deletes a NodeClaim whose node isn't up yet: Karpenter terminates the instance. Preconditions:
// uid and resource_version, so that one that has come further stays.
struct DeleteNodeClaim {
  ObjectRef claim;
};

// Sets annotations of a pod, precondition: uid. Wakes it in kube-scheduler and makes bindings that
// carry an older resource version fail.
struct AnnotatePod {
  ObjectRef pod;
  std::map<std::string, std::string> annotations;
};

// Adds to a gated member what its flavors ask for, and annotations, in one JSON patch.
// Preconditions: uid and resource_version. What is there already is only ever added to.
struct AssignFlavors {
  ObjectRef pod;
  // Whether the member has any already: what doesn't exist is made as a whole.
  bool has_node_selector = false;
  bool has_tolerations = false;
  bool has_annotations = false;
  quota::FlavorAdditions added;
};

inline AssignFlavors AssignFlavorsTo(const kube::Pod& pod, quota::FlavorAdditions added) {
  return {RefOf(pod.meta), !pod.spec->node_selector.empty(), !pod.spec->tolerations.empty(),
          !pod.meta.annotations.empty(), std::move(added)};
}

// Eviction, precondition: uid.
struct EvictPod {
  ObjectRef pod;
};

// Merge patch of the PodGroup's status, precondition: uid.
struct UpdatePodGroupStatus {
  ObjectRef group;
  std::string phase;
  int64_t scheduled = 0;
  int64_t running = 0;
  int64_t succeeded = 0;
  int64_t failed = 0;
  std::optional<absl::Time> schedule_start_time;
  std::string occupied_by;
  // Condition "Admitted".
  bool admitted = false;
  std::string reason;  // CamelCase of the reason code
  std::string message;
  absl::Time since;  // lastTransitionTime
};

// Merge patch of a ClusterQueue's status, a LocalQueue's if it has a namespace, or a Cohort's.
struct UpdateQueueStatus {
  std::string name_space;
  std::string name;
  quota::QueueStatus status;
  absl::Time since;  // lastTransitionTime of condition Active
  bool of_cohort = false;
};

// Sets the finalizers of a quota object. Preconditions: uid and resource_version.
struct SetFinalizers {
  std::string plural;  // "clusterqueues", "resourceflavors"
  ObjectRef object;
  std::vector<std::string> finalizers;
};

// An event on a PodGroup or a pod. Equal ones are counted, not repeated, by the shell.
struct EmitEvent {
  std::string kind;  // "PodGroup" or "Pod"
  std::string name_space;
  std::string name;
  std::string uid;
  bool warning = false;
  std::string reason;
  std::string message;
};

// Ends a bind call that is being held. An empty error means bound.
struct AnswerBind {
  uint64_t request = 0;
  std::string error;
};

// Creates the PodGroup of a derived gang, labelled muster.dev/derived: "true". It goes when its
// owners go: the job, which is then its controller, or all pods of a group of plain pods.
struct CreatePodGroup {
  std::string name_space;
  std::string name;
  std::vector<kube::OwnerReference> owners;
  int64_t min_member = 1;
  std::optional<int64_t> schedule_timeout_seconds;
};

// Sets spec.minMember of a PodGroup that Muster made, by compare-and-swap on resource_version.
struct UpdateMinMember {
  ObjectRef group;
  int64_t min_member = 1;
};

// Suspends a job, or resumes it, and sets (nullopt: removes) annotations of it, all in one patch.
// Preconditions: uid and resource_version.
struct SuspendJob {
  std::string api_version;
  std::string kind;  // of those in kube/objects/any_job.h that can be suspended
  ObjectRef job;
  std::optional<bool> suspend;  // nullopt: stays as it is
  std::map<std::string, std::optional<std::string>> annotations;
};

// Has Kueue evict a Workload and queue it again (`active` false, then true), says by required node
// affinity which flavors it may be given, and sets (nullopt: removes) annotations, all in one JSON
// patch. Preconditions: uid and resource_version.
struct PatchWorkload {
  ObjectRef workload;
  std::optional<bool> active;    // nullopt: stays as it is
  bool has_annotations = false;  // it has some already
  std::map<std::string, std::optional<std::string>> annotations;
  std::vector<quota::OtherChoice::Terms> pod_sets;     // those that change
  std::optional<std::vector<std::string>> finalizers;  // those that stay; nullopt: all
};

// Creates the Workload that a gang's quota is reserved in, or (a workload with a UID) replaces what
// it asks for. Preconditions of the latter: uid and resource_version; none of it is reserved.
struct WriteWorkload {
  ObjectRef workload;
  kube::OwnerReference owner;  // the job, the PodGroup or the pod
  std::string leader;          // annotation muster.dev/leader: who made it
  std::string queue;
  std::string priority_class;  // a WorkloadPriorityClass, or empty
  int64_t priority = 0;
  std::vector<quota::PodSet> pod_sets;
  std::vector<std::string> pod_templates = {};  // theirs, JSON; none: made from what quota looks at
};

// Server-side apply of a Workload's status under Kueue's own field manager, all of it each time:
// what isn't named here is taken away. Preconditions: uid and resource_version, so that what was
// decided on another version fails.
struct ApplyWorkloadStatus {
  ObjectRef workload;
  std::optional<quota::Admission> admission;  // of its pod sets
  std::map<std::string, kube::Condition> conditions;
  bool takes_over = false;  // it only says who may reserve it
};

// The same of its reclaimable pods, by pod set, under the manager that Kueue has for them.
struct ApplyReclaimablePods {
  ObjectRef workload;
  std::map<std::string, int64_t> pods;
};

using Action = std::variant<WriteRecord, SignalPod, LiftGate, BindPod, AnnotateNode, TaintNode,
                            DeleteNodeClaim, AnnotatePod, AssignFlavors, EvictPod,
                            UpdatePodGroupStatus, UpdateQueueStatus, SetFinalizers, EmitEvent,
                            AnswerBind, CreatePodGroup, UpdateMinMember, SuspendJob, PatchWorkload,
                            WriteWorkload, ApplyWorkloadStatus, ApplyReclaimablePods>;

struct NumberedAction {
  uint64_t id = 0;
  Action action;
};

}  // namespace muster::coscheduling
