// Writes to pods, PodGroups, nodes and NodeClaims, and events. Plain data: who decides fills them
// in, writes/ turns each into a request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kube/objects/meta.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"

namespace muster::cluster {

// Status patch: condition PodScheduled=False with this reason. "Unschedulable" asks the autoscaler
// for a node, "SchedulingGated" takes that back. Precondition: uid.
struct SignalPod {
  kube::ObjectRef pod;
  std::string reason;
  std::string message;
};

// Removes gate muster.dev/admission (and no other), precondition: uid.
struct LiftGate {
  kube::ObjectRef pod;
};

// Status patch: nominatedNodeName, the node that kube-scheduler tries alone before it looks at all
// (schedule_one.go v1.34, evaluateNominatedNode); empty takes it back, because Karpenter makes no
// node for a pod that has it (pkg/utils/pod v1.8, IsPreempting). Precondition: uid.
struct NominatePod {
  kube::ObjectRef pod;
  std::string node;
};

// Posts the binding with uid and resource_version preconditions and do-not-disrupt in its
// annotations.
struct BindPod {
  kube::ObjectRef pod;
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
  kube::ObjectRef claim;
};

// Sets annotations of a pod, precondition: uid. Wakes it in kube-scheduler and makes bindings that
// carry an older resource version fail.
struct AnnotatePod {
  kube::ObjectRef pod;
  std::map<std::string, std::string> annotations;
};

// Has a claim's volume made for this node, or, if `volume` is given, that volume kept for it, which
// somebody has made. Preconditions: uid and resource_version of what is written, for somebody else
// may have selected a node or have the volume.
struct SelectNode {
  kube::ObjectRef claim;
  std::string node;
  std::optional<kube::ObjectRef> volume = std::nullopt;
  bool was_kept = false;  // by its maker, for a claim of this name
};

// Eviction, precondition: uid.
struct EvictPod {
  kube::ObjectRef pod;
};

// Merge patch of the PodGroup's status, precondition: uid.
struct UpdatePodGroupStatus {
  kube::ObjectRef group;
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

// An event on a PodGroup, a pod or a job. Equal ones are counted, not repeated, by the shell.
struct EmitEvent {
  std::string kind;  // "PodGroup" or "Pod"
  std::string name_space;
  std::string name;
  std::string uid;
  bool warning = false;
  std::string reason;
  std::string message;
  std::string api_version = {};  // of other kinds
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
  kube::ObjectRef group;
  int64_t min_member = 1;
};

}  // namespace muster::cluster
