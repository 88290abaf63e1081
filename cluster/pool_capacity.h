// For how many pods there can be nodes: made by NodePools, or standing there now.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/instance_types.h"
#include "cluster/node_pools.h"
#include "cluster/pool_forecast.h"
#include "cluster/snapshot.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"

namespace muster::cluster {

// Pods that ask alike.
struct Demand {
  std::shared_ptr<const kube::PodSpec> spec;
  int64_t count = 0;
  // Pods that only one node together can take: `spec` asks for the sum, `count` is 1.
  int64_t pods_on_one_node = 0;
  std::string drawn_by;  // what draws them together
};

// What the first `required` of these pods ask for. A required pod affinity on the host name that
// selects several of them puts these on one node.
std::vector<Demand> DemandsOf(const Snapshot& snapshot, const std::vector<const kube::Pod*>& pods,
                              int64_t required);

// Which part of a NodePool's limits counts: all of it, or what its nodes leave of it now.
enum class PoolLimits { kWhole, kRemaining };

// What a pool may make in all; a resource without a limit is absent.
kube::ResourceList LimitsOf(const kube::NodePool& pool, PoolLimits limits);

// What a pool could do for a demand.
struct PoolFinding {
  std::string pool;
  std::optional<PoolRefusal> refusal;
  int64_t pods = 0;  // of those asked for, that it could make nodes for within its limits
};

// For how many of the pods, at most all, the NodePools can make nodes. `findings`, unless null,
// gets one per pool. O(pools x types).
int64_t Makeable(const Demand& demand, const NodePools& pools, PoolLimits limits,
                 const InstanceTypes& types, std::vector<PoolFinding>* findings);

// What the nodes that exist could hold.
struct Standing {
  int64_t pods = 0;
  // Some of these nodes were made by somebody who isn't Karpenter, and who may make more.
  bool made_by_others = false;
};

// As if they were empty, and every claim's volume within reach: what stands there comes and goes,
// and so do claims. O(nodes).
Standing StandingFor(const Demand& demand, const Snapshot& snapshot);

}  // namespace muster::cluster
