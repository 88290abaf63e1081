// Choosing among the volumes that somebody has made, for claims that wait for their first consumer:
// the smallest that will do and that the node reaches (kube-scheduler's VolumeBinding;
// k8s.io/component-helpers/storage/volume v0.37, FindMatchingVolume).
//
// What assumed pods have chosen counts as taken until their claims are bound: each chooses beside
// those that were assumed before it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/object_writes.h"
#include "cluster/predicates.h"
#include "cluster/snapshot.h"

namespace muster::cluster {

// For Snapshot::made_volumes, which keeps them.
AllMadeVolumes FindMadeVolumes(const Snapshot& snapshot);

struct VolumeChoice {
  const kube::PersistentVolumeClaim* claim = nullptr;
  const kube::PersistentVolume* volume = nullptr;
};
// Of a pod's claims that wait, on one node.
struct ClaimPlan {
  std::vector<VolumeChoice> bind;
  std::vector<const kube::PersistentVolumeClaim*> make;  // their volumes are to be made
  std::optional<Rejection> why_not;                      // then the others are empty
};
// `taken`: volume -> UID of the pod that chose it; what the pod itself chose is free for it.
ClaimPlan PlanClaims(const Snapshot& snapshot, const kube::Pod& pod, const NodeInfo& info,
                     const TakenVolumes& taken);

// What is to be written so that the claims of this assumed pod are bound; of those for which it was
// written already nothing.
std::vector<SelectNode> SelectionsFor(const Snapshot& snapshot, std::string_view pod_uid,
                                      std::string_view node);

// For how many pods like this one the node has volumes; kManyPods if theirs are to be made.
int64_t MadeRoom(const Snapshot& snapshot, const kube::Pod& pod, const NodeInfo& info);

// What pods need of a node's made volumes, in amounts that add up: so many of at least each size
// below theirs ("made volume ..."; attached_volumes.h, NeedsOf).
void AddMadeNeeds(const Snapshot& snapshot, const kube::Pod& pod,
                  std::vector<std::pair<std::string, int64_t>>* needs);
inline constexpr std::string_view kMadeVolume = "made volume ";
int64_t FreeMadeVolumes(const Snapshot& snapshot, const NodeInfo& info, std::string_view need);
Rejection LacksMadeVolumes(std::string_view need, int64_t wanted, int64_t free);

// Why it can't be counted on that members find volumes beside each other: the claim's volumes are
// chosen by labels, or are reached by more than one node. Empty if it can.
std::string WhyNotCounted(const Snapshot& snapshot, const kube::PersistentVolumeClaim& claim);

}  // namespace muster::cluster
