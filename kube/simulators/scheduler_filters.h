// The filters of kube-scheduler that the simulator runs before it asks the extender, and the words
// in which it reports them (k8s.io/kubernetes v1.34 pkg/scheduler/framework/plugins).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "kube/objects/resource_list.h"

namespace muster::kube::simulators {

// Why the node can't take the pod: NodeUnschedulable, TaintToleration, NodeAffinity,
// NodeResourcesFit, the first that objects. Empty if it can.
std::vector<std::string> WhyNotOn(const Pod& pod, const Node& node, const ResourceList& used);

// "0/4 nodes are available: 1 node(s) were unschedulable, 3 Insufficient cpu."
std::string FitErrorText(size_t nodes, const std::map<std::string, int>& reasons);

}  // namespace muster::kube::simulators
