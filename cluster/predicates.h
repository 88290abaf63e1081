// May this pod go on this node? The required parts of kube-scheduler's filters (v1.34), exactly.
//
// Split by what they depend on, so that a planner can check each once: the class part depends only
// on pod spec and node (cacheable per class and node), the room part on what is free, the
// relational part on where other pods stand.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cluster/snapshot.h"

namespace muster::cluster {

// Why a node can't take a pod. `code` is stable, for counting and grouping; `detail` carries the
// numbers or names.
enum class RejectionCode {
  kNotUsable,          // node_stage.h
  kUnschedulable,
  kUntoleratedTaint,
  kNodeSelector,       // nodeSelector or required node affinity
  kResources,
  kHostPorts,
  kVolume,             // a bound volume can't be reached from here
  kPodAffinity,
  kPodAntiAffinity,
  kExistingAntiAffinity,
  kTopologySpread,
  kExcluded,           // suspect, or refused by kube-scheduler for this gang
};

struct Rejection {
  RejectionCode code;
  std::string detail;
};

// Node usable, schedulable, taints tolerated, selector and node affinity met, bound volumes
// reachable. Virtual nodes are judged by the claim's requirements: a label the claim leaves open
// (several values, or no requirement) passes if some value could match.
std::optional<Rejection> CheckClass(const Snapshot& snapshot, const kube::Pod& pod,
                                    const NodeInfo& info);

// Resources and host ports, against what stands there now.
std::optional<Rejection> CheckRoom(const kube::Pod& pod, const NodeInfo& info);

// Inter-pod affinity and anti-affinity (both directions) and hard topology spread, against the
// pods that stand in the snapshot now, assumed ones included. The first pod of a group that would
// satisfy its own required affinity passes when no pod matches anywhere, as in kube-scheduler.
std::optional<Rejection> CheckRelations(const Snapshot& snapshot, const kube::Pod& pod,
                                        const NodeInfo& info);

// All three, first failure wins.
std::optional<Rejection> CheckAll(const Snapshot& snapshot, const kube::Pod& pod,
                                  const NodeInfo& info);

// Weight of preferences met: preferred node affinity, preferred (anti-)affinity, soft spread,
// PreferNoSchedule taints counted against. Higher is better; only comparable for one pod.
int64_t PreferenceScore(const Snapshot& snapshot, const kube::Pod& pod, const NodeInfo& info);

// True if the pod has inter-pod terms or spread constraints of its own that CheckRelations reads.
bool HasRelations(const kube::PodSpec& spec);

// True if `term` of `owner` selects `other` (namespaces and selectors).
bool TermSelects(const Snapshot& snapshot, const kube::PodAffinityTerm& term,
                 const kube::Pod& owner, const kube::Pod& other);

// Equal keys: the same verdict from CheckClass and CheckRoom on every node. Members of a gang with
// equal keys form a class.
std::string ClassKey(const kube::Pod& pod);

}  // namespace muster::cluster
