// Can the nodes that a gang asks for exist at all? By what NodePools say, what their instance types
// have, and what stands there; never by what is free just now.
//
// Karpenter answers the same question pod by pod, tells it in an event, and asks again every ten
// seconds (karpenter pkg/controllers/provisioning/scheduling/nodeclaim.go v1.8).
#pragma once

#include <cstdint>
#include <vector>

#include "cluster/instance_types.h"
#include "cluster/pool_capacity.h"
#include "cluster/snapshot.h"
#include "coscheduling/reason.h"

namespace muster::coscheduling {

v1::ReasonCode CodeOf(cluster::PoolObstacle obstacle);

struct Feasibility {
  enum class Verdict {
    kFeasible,
    kUnknown,     // nothing that is known could do it, but not everything is known
    kInfeasible,  // certainly not, before a NodePool or the gang changes
  };
  Verdict verdict = Verdict::kFeasible;
  // Unless feasible: which pods, why not, and what would change it.
  Reason reason;
  // Of the demand that is told of; by name.
  std::vector<cluster::PoolFinding> pools;
  int64_t asked = 0;  // pods of it
  int64_t held = 0;   // of them, that would fit on the nodes that exist if these were empty
};

// Without any NodePool nothing is known of who makes nodes: kUnknown, without a reason. As
// cluster::Makeable, and O(nodes) if the pools don't suffice.
Feasibility Judge(const cluster::Demand& demand, const cluster::NodePools& pools,
                  cluster::PoolLimits limits, const cluster::Snapshot& snapshot,
                  const cluster::InstanceTypes& types);

}  // namespace muster::coscheduling
