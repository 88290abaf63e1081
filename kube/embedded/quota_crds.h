// Kueue's quota objects, as this server comes with them.
#pragma once

#include <string>
#include <vector>

namespace muster::kube::embedded {

// CRDs as JSON: ResourceFlavor, ClusterQueue, Cohort, LocalQueue and WorkloadPriorityClass of
// kueue.x-k8s.io/v1beta1, with the fields of deploy/crds/kueue: every spelling of both versions.
const std::vector<std::string>& QuotaCrds();

}  // namespace muster::kube::embedded
