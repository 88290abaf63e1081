// Kueue's objects, as this server comes with them.
#pragma once

#include <string>
#include <vector>

namespace muster::kube::embedded {

// CRDs as JSON: ResourceFlavor, ClusterQueue, Cohort, LocalQueue, WorkloadPriorityClass and Workload
// of kueue.x-k8s.io/v1beta2, with the fields of deploy/crds/kueue.
const std::vector<std::string>& QuotaCrds();

}  // namespace muster::kube::embedded
