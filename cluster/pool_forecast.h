// What a NodePool's next node would be, as far as the pool says.
#pragma once

#include <optional>
#include <string>

#include "cluster/snapshot.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"

namespace muster::cluster {

// A virtual node of the pool: its labels and taints, its requirements as those of a claim that
// isn't launched. Which instance types it may have isn't known, so neither is its size.
NodeInfo ForecastOf(const kube::NodePool& pool);

// The first thing that keeps the pool from ever making a node for such a pod, with names or
// numbers: it isn't ready, an untolerated taint, a selector or affinity that no node of it can
// meet, a limit that is below the request. nullopt: nothing that the pool says rules it out.
std::optional<std::string> WhyPoolCannotHold(const kube::NodePool& pool, const kube::PodSpec& spec);

// What the pool may still make of the resources that it limits: limits - status.resources, floored
// at 0. A resource without a limit is absent.
kube::ResourceList RemainingLimits(const kube::NodePool& pool);

}  // namespace muster::cluster
