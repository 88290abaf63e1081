// How far a node has come, and what it still lacks: the rule that decides whether a node counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "kube/objects/node.h"

namespace muster::cluster {

struct NodeInfo;

// In the order in which Karpenter brings a node up. Pods may be bound from kInitialized on; whether
// a node that is short of devices will do is for each pod to say (IsWholeFor).
enum class NodeStage {
  kRequested,    // NodeClaim exists
  kLaunched,     // instance runs (NodeClaim condition Launched)
  kRegistered,   // Node exists, taint karpenter.sh/unregistered gone
  kInitialized,  // label karpenter.sh/initialized, or a node that Karpenter didn't make; and Ready,
                 // without lifecycle taints, and no agent finds it ill
  kUsable,       // and every device is there in full
  kGoing,        // being deleted or disrupted, on either object
};

// Extended resources (pkg/apis/core/v1/helper IsExtendedResourceName): named with a domain that
// isn't Kubernetes' own.
bool IsDevice(std::string_view resource);

struct DeviceShortage {
  std::string resource;
  int64_t have = 0;  // allocatable
  int64_t want = 0;  // the largest of the node's capacity and what its NodeClaim says
  bool operator==(const DeviceShortage&) const = default;
};

struct NodeReadiness {
  NodeStage stage = NodeStage::kRequested;
  std::vector<DeviceShortage> shortages;  // devices: extended resources ("nvidia.com/gpu")
  // One sentence while the stage isn't kUsable, "" otherwise: "nvidia.com/gpu: 7 of 8 allocatable".
  std::string message;
  bool TakesPods() const { return stage == NodeStage::kInitialized || stage == NodeStage::kUsable; }
  bool operator==(const NodeReadiness&) const = default;
};

// A node with a NodeClaim takes pods when it has the labels karpenter.sh/registered and
// karpenter.sh/initialized, is Ready, no monitoring agent says that its accelerators, network,
// storage, kernel or container runtime are ill, carries no deletion mark on Node or NodeClaim, no
// taint of
// karpenter.sh/{unregistered,disrupted}, no lifecycle taint (below) nor one of the claim's
// startupTaints; and is usable when it has the full quantity of each device in allocatable, too.
// Karpenter itself checks devices for non-zero only
// (pkg/controllers/nodeclaim/lifecycle/initialization.go v1.8). A node without a NodeClaim takes
// pods when Ready with none of those taints; one that has the label karpenter.sh/nodepool while its
// NodeClaim isn't known needs the two labels all the same.
//
// What a NodeClaim says of a device counts if the claim requests that device: its capacity also
// lists what the node may never register (vpc.amazonaws.com/pod-eni).
//
// Either object may be null, not both.
NodeReadiness ReadinessOf(const kube::Node* node, const kube::NodeClaim* claim);

// What is said of a node without such a device that has some in ResourceSlices (dynamic resource
// allocation): "; its devices are in ResourceSlices only (gpu.nvidia.com: 8), ...". "" of others.
std::string SlicesNote(std::string_view resource, const NodeInfo& info);
std::string SlicesNote(std::string_view in_slices);  // NodeInfo::in_slices

// False if a pod with these requests takes whole nodes and this one isn't whole. A pod takes whole
// nodes if it asks for the full quantity of any device of the node; then it wants all of the node's
// devices in full: whoever takes all 8 GPUs counts on the EFA devices beside them. One that takes 1
// of 8 GPUs may have a node with 7.
bool IsWholeFor(const kube::ResourceList& requests, const NodeInfo& info);

// When a node came to a stage.
struct NodeStep {
  NodeStage stage = NodeStage::kRequested;
  absl::Time at;
  bool operator==(const NodeStep&) const = default;
};

// The stages that it has reached, in their order: what its NodeClaim's conditions tell, of a node
// that Karpenter didn't make its creation as kRegistered; and kUsable, unless that is null.
std::vector<NodeStep> StepsOf(const NodeInfo& info, const absl::Time* usable);

// The readiness that the snapshot keeps up to date. Lives as long as `info`.
const NodeReadiness& ReadinessOf(const NodeInfo& info);

// Taints that a node carries while it comes up or is ill, and that leave by themselves:
// node.kubernetes.io/{not-ready,unreachable,network-unavailable,out-of-service} and
// node.cloudprovider.kubernetes.io/{uninitialized,shutdown}.
bool IsLifecycleTaint(const kube::Taint& taint);

// What a node whose bring-up isn't over will be when it is, after Karpenter's own forecast
// (pkg/controllers/state/statenode.go v1.8). Labels: the claim's, its single-valued requirements,
// and those of the Node. Taints: without lifecycle, startup and unregistered ones. Allocatable:
// the Node's, completed by status.allocatable of the claim (its requests as a floor while that is
// empty); of a device always the larger amount. `node` may be null; the name is then VirtualName.
kube::Node Forecast(const kube::Node* node, const kube::NodeClaim& claim);

// "nodeclaim/NAME": the name of a node that doesn't exist yet.
std::string VirtualName(const std::string& claim_name);

// True once Karpenter has put the claim's labels and taints on the Node (label
// karpenter.sh/registered).
bool IsRegistered(const kube::Node& node);

// True once the label karpenter.sh/initialized is on the Node: its bring-up is over, for better or
// worse.
bool IsBroughtUp(const kube::Node& node);

}  // namespace muster::cluster
