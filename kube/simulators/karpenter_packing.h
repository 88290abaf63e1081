// Karpenter's answer to a batch of pods: which of them the nodes that are there or coming will
// take, and which NodeClaims to make for the rest.
//
// Follows pkg/controllers/provisioning/scheduling of sigs.k8s.io/karpenter v1.8 (scheduler.go,
// nodeclaim.go, existingnode.go, preferences.go): pods by CPU, then memory; existing nodes first,
// then the NodeClaims of this pass, then a new one of the first NodePool that fits. Left out:
// inter-pod affinity, topology spread, host ports, volumes, minValues and reserved capacity.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kube/objects/pod.h"
#include "kube/simulators/label_requirements.h"
#include "kube/simulators/simulated_cloud.h"

namespace muster::kube::simulators {

struct PackingPod {
  std::string key;  // "namespace/name"
  std::string uid;
  absl::Time created;
  std::shared_ptr<const PodSpec> spec;
};

// A node, or a NodeClaim whose node isn't there yet. In the order in which they are tried.
struct PackingNode {
  std::string name;
  LabelRequirements labels;
  std::vector<Taint> taints;
  ResourceList free;
};

// In the order in which they are tried.
struct PackingPool {
  std::string name;
  LabelRequirements requirements;  // labels included
  std::vector<Taint> taints;
  ResourceList daemon_requests;           // of DaemonSets that will run on its nodes
  std::optional<ResourceList> remaining;  // limits minus what its nodes have
};

struct PlannedClaim {
  std::string pool;
  LabelRequirements requirements;
  std::vector<const InstanceType*> types;  // by price; what fits all pods together
  ResourceList requests;                   // of the pods and the daemons
  std::vector<const PackingPod*> pods;
};

struct PackingResult {
  std::vector<PlannedClaim> claims;
  std::map<std::string, std::vector<const PackingPod*>> on_nodes;  // by PackingNode::name
  // Karpenter's own words, without "Failed to schedule pod, ".
  std::vector<std::pair<const PackingPod*, std::string>> failures;
};

// True if the offering can be asked for at the moment.
using IsOffered = std::function<bool(const InstanceType&, const Offering&)>;

// The result points into `pods` and `types`.
PackingResult Pack(const std::vector<PackingPod>& pods, std::vector<PackingNode> nodes,
                   std::vector<PackingPool> pools, const std::vector<InstanceType>& types,
                   const IsOffered& is_offered);

// True if the pod could run on nodes with these labels and taints, whatever room they have.
bool CanRunOn(const PodSpec& spec, const LabelRequirements& labels,
              const std::vector<Taint>& taints, bool allow_unknown_well_known);

}  // namespace muster::kube::simulators
