// Which levels the topology of nodes has for a gang: those of the Topology that its flavor names
// (Kueue v0.19.2 apis/kueue/v1beta2/topology_types.go), else the usual ones of
// kube/objects/topology_asked.h.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "kube/objects/quota.h"
#include "kube/objects/topology_asked.h"
#include "quota/quota_scheduler.h"

namespace muster::quota {

// Of the tree in which a gang is placed that was given this (null: no quota): labels from the top
// down; empty: the usual ones. A zone is always among them, because what a gang asks of zones by
// itself goes for it whatever its flavor.
std::vector<std::string> LevelsFor(const QuotaScheduler& quotas, const Admission* given,
                                   const kube::TopologyAsked& asked);

// A sentence about the annotation that names a level which is none of any Topology, nor a usual
// one; "" if there is no such.
std::string WhyNoLevel(const QuotaScheduler& quotas, const kube::TopologyAsked& asked);

// "" if nodes of this flavor have the level that is asked for; else what is in the way, a part of a
// sentence about the flavor.
std::string WhyNoLevel(const QuotaScheduler& quotas, const kube::TopologyAsked& asked,
                       const kube::ResourceFlavor& flavor);

// By which of these labels the nodes are told apart in a Workload, and how many of them are where;
// of levels that end with the host that one alone, as Kueue has it. Nothing if a node lacks one.
kube::TopologyAssignment StandingOn(const std::vector<std::string>& levels,
                                    const std::vector<const kube::Node*>& nodes);

// What the Workload has reserved, with where the pods stand of each set on a flavor that names a
// Topology, if all of it that was reserved do; nullopt if it says so already. `node_of` may return
// null.
std::optional<Admission> WithPlaces(
    const QuotaScheduler& quotas, const kube::Workload& workload,
    const std::vector<const kube::Pod*>& pods,
    const std::function<const kube::Node*(const std::string& name)>& node_of);

}  // namespace muster::quota
