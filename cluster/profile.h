// What a cluster chooses for its schedulers' plugins, as a profile in kube-scheduler's
// configuration says it: affinity that all pods get (NodeAffinityArgs.addedAffinity), and which
// nodes are better by how full they are (NodeResourcesFitArgs.scoringStrategy).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kube/objects/pod.h"

namespace muster::cluster {

struct NodeInfo;

// Node affinity beside each pod's own, which alone says over which nodes its topology spread
// counts.
struct AddedAffinity {
  // Terms are ORed, as in a pod. Absent: none is required.
  std::optional<std::vector<kube::NodeSelectorTerm>> required;
  std::vector<kube::PreferredNodeTerm> preferred;

  bool empty() const { return !required && preferred.empty(); }
  void ApplyTo(kube::Pod* pod) const;
};

struct ScoringStrategy {
  enum class Type {
    kFewestDevicesLeft,  // those first that leave the fewest devices idle: no score
    kLeastAllocated,
    kMostAllocated,
    kRequestedToCapacityRatio,
  };
  Type type = Type::kFewestDevicesLeft;
  // By name, each with its weight (1 to 100).
  std::vector<std::pair<std::string, int64_t>> resources = {{"cpu", 1}, {"memory", 1}};
  // Of kRequestedToCapacityRatio: utilization (0 to 100, rising) and score (0 to 10), with straight
  // lines between.
  std::vector<std::pair<int64_t, int64_t>> shape;

  // 0 to 100, of the node as it is with this pod; higher is better
  // (k8s.io/kubernetes pkg/scheduler/framework/plugins/noderesources v1.37, but that a pod which
  // asks for no cpu or memory counts as asking for none).
  int64_t ScoreOf(const kube::PodSpec& spec, const NodeInfo& info) const;
};

struct Profile {
  AddedAffinity added_affinity;
  ScoringStrategy scoring;
};

}  // namespace muster::cluster
