// Can the nodes that pods ask for exist at all? By what NodePools say, what their instance types
// have, and what stands there; never by what is free just now.
//
// Karpenter answers the same question pod by pod, tells it in an event, and asks again every ten
// seconds (karpenter pkg/controllers/provisioning/scheduling/nodeclaim.go v1.8).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cluster/instance_types.h"
#include "cluster/pool_capacity.h"
#include "cluster/snapshot.h"

namespace muster::cluster {

struct Feasibility {
  enum class Verdict {
    kFeasible,
    kUnknown,     // nothing that is known could do it, but not everything is known
    kInfeasible,  // certainly not, before a NodePool or the pods change
  };
  Verdict verdict = Verdict::kFeasible;
  // Unless feasible, or nothing is known: which pods, why not, and what would change it.
  std::optional<PoolRefusal> refusal;
  // Of the demand that is told of; by name.
  std::vector<PoolFinding> pools;
  int64_t asked = 0;  // pods of it
  int64_t held = 0;   // of them, that would fit on the nodes that exist if these were empty
};

// Without any NodePool nothing is known of who makes nodes: kUnknown, without a refusal. As
// Makeable, and O(nodes) if the pools don't suffice.
Feasibility JudgeFeasibility(const Demand& demand, const NodePools& pools, PoolLimits limits,
                             const Snapshot& snapshot, const InstanceTypes& types);

}  // namespace muster::cluster
