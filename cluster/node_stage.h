// How far a node has come, and what it still lacks: the rule that decides whether a node counts.
#pragma once

#include <string>
#include <vector>

#include "cluster/snapshot.h"

namespace muster::cluster {

// In the order in which Karpenter brings a node up. Only kUsable counts for a READY gang.
enum class NodeStage {
  kRequested,    // NodeClaim exists
  kLaunched,     // instance runs (NodeClaim condition Launched)
  kRegistered,   // Node exists, taint karpenter.sh/unregistered gone
  kInitialized,  // label karpenter.sh/initialized, or a node that has no NodeClaim, and Ready
  kUsable,       // and every device is there in full
  kGoing,        // being deleted or disrupted, on either object
};

struct DeviceShortage {
  std::string resource;
  int64_t have = 0;  // allocatable
  int64_t want = 0;  // the largest of the node's capacity and what its NodeClaim says
};

struct NodeReadiness {
  NodeStage stage = NodeStage::kRequested;
  std::vector<DeviceShortage> shortages;  // devices: extended resources ("nvidia.com/gpu")
  // One sentence while the stage isn't kUsable, "" otherwise: "nvidia.com/gpu: 7 of 8 allocatable".
  std::string message;
};

// A node with a NodeClaim counts when it has the labels karpenter.sh/registered and
// karpenter.sh/initialized, is Ready, carries no deletion mark on Node or NodeClaim, no taint of
// karpenter.sh/{unregistered,disrupted}, node.kubernetes.io/{not-ready,unreachable,...},
// node.cloudprovider.kubernetes.io/uninitialized nor one of the claim's startupTaints, and has the
// full quantity of each device in allocatable. Karpenter itself checks devices for non-zero only
// (pkg/controllers/nodeclaim/lifecycle/initialization.go v1.8). A node without a NodeClaim counts
// when Ready with full devices and none of those taints.
NodeReadiness ReadinessOf(const NodeInfo& info);

}  // namespace muster::cluster
