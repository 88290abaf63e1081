// What a NodePool's next node would be, as far as the pool and the table of instance types say.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cluster/instance_types.h"
#include "cluster/node_pools.h"
#include "cluster/snapshot.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"

namespace muster::cluster {

// A virtual node of the pool: its labels and taints, its requirements as those of a claim that
// isn't launched. Which of its instance types it will be isn't known, so neither is its size.
NodeInfo ForecastOf(const kube::NodePool& pool);

// What keeps a pool from making a node for a pod. In the order in which they are looked for, so
// that of several pools the one with the largest came closest. The numbers are those of
// muster.v1.ReasonCode.
enum class PoolObstacle {
  kOtherPool = 120,  // the pod selects another NodePool
  kLabel,            // nodeSelector or required node affinity, on any other label
  kZone,
  kCapacityType,
  kInstanceType,  // ... on the type, or its family, size, ...
  // No type that is left is large enough for one pod:
  kGpuCount,  // also Neuron devices
  kNoEfa,
  kEfaCount,
  kSize,  // cpu and memory
  kTaint,
  kLimit,           // the pool's limit is below one pod's request
  kOneNode,         // ... or below what pods that must share a node ask for together
  kUnusable = 132,  // malformed, not ready or being deleted: none of the pod's doing
};

struct PoolRefusal {
  PoolObstacle obstacle;
  std::string why;  // with names and numbers: "NodePool gpu: ..."
  std::string fix;  // what a user or cluster owner can do
  // Nothing but a change of the pod or of the pool ends it.
  bool IsCertain() const { return obstacle != PoolObstacle::kUnusable; }
};

// The first thing that keeps the pool from ever making a node for such a pod. nullopt: nothing that
// is known rules it out.
std::optional<PoolRefusal> WhyPoolCannotHold(const kube::NodePool& pool, const kube::PodSpec& spec,
                                             const InstanceTypes& types);

// Of limits and of status.resources: how many nodes there may be, and are.
inline constexpr std::string_view kNodes = "nodes";

// What the pool may still make of the resources that it limits: limits - status.resources, floored
// at 0. A resource without a limit is absent.
kube::ResourceList RemainingLimits(const kube::NodePool& pool);

// Nodes of reserved capacity carry its id.
bool IsReserved(const kube::Node& node);
// When capacity blocks end that some of these nodes are of, as the pools' EC2NodeClasses tell it:
// "; capacity block cr-1 of p5.48xlarge in z1 ends at ...: 2 members are on its nodes". One node
// for each member; "" if none is of a block whose end is known.
std::string BlocksEndText(const NodePools& pools, const std::vector<const kube::Node*>& nodes);

}  // namespace muster::cluster
