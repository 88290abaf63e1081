// Can the nodes that a gang asks for exist at all? By what NodePools say, what their instance types
// have, and what stands there; never by what is free just now.
//
// Karpenter answers the same question pod by pod, tells it in an event, and asks again every ten
// seconds (karpenter pkg/controllers/provisioning/scheduling/nodeclaim.go v1.8).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/instance_types.h"
#include "cluster/pool_forecast.h"
#include "cluster/snapshot.h"
#include "coscheduling/reason.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"

namespace muster::coscheduling {

// Members that ask alike.
struct Demand {
  std::shared_ptr<const kube::PodSpec> spec;
  int64_t count = 0;
  // Pods that only one node together can take: `spec` asks for the sum, `count` is 1.
  int64_t pods_on_one_node = 0;
  std::string drawn_by;  // what draws them together
};

// What `members`, in rank order, ask for; the first `required` of them are looked at. A required
// pod affinity on the host name that selects several of them puts these on one node.
std::vector<Demand> DemandsOf(const cluster::Snapshot& snapshot,
                              const std::vector<const kube::Pod*>& members, int64_t required);

struct PoolFinding {
  std::string pool;
  std::optional<cluster::PoolRefusal> refusal;
  int64_t pods = 0;  // of those asked for, that it could make nodes for within its limits
};

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
  std::vector<PoolFinding> pools;
  int64_t asked = 0;  // pods of it
  int64_t held = 0;   // of them, that would fit on the nodes that exist if these were empty
};

using NodePools = std::map<std::string, kube::NodePool, std::less<>>;

// Which part of a NodePool's limits counts: all of it, or what its nodes leave of it now.
enum class Limits { kWhole, kRemaining };

// For how many of the pods, at most all, the NodePools can make nodes. `findings`, unless null,
// gets one per pool. O(pools x types).
int64_t Makeable(const Demand& demand, const NodePools& pools, Limits limits,
                 const cluster::InstanceTypes& types, std::vector<PoolFinding>* findings);

// Without any NodePool nothing is known of who makes nodes: kUnknown, without a reason. As
// Makeable, and O(nodes) if the pools don't suffice.
Feasibility Judge(const Demand& demand, const NodePools& pools, Limits limits,
                  const cluster::Snapshot& snapshot, const cluster::InstanceTypes& types);

}  // namespace muster::coscheduling
