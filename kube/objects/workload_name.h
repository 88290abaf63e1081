// The name of the Workload of an object.
#pragma once

#include <string>

#include "kube/objects/meta.h"

namespace muster::kube {

// As Kueue names it, so that one of them exists whoever makes it
// (sigs.k8s.io/kueue v0.19.2 pkg/controller/jobframework/workload_names.go).
std::string WorkloadName(const OwnerReference& owner);

}  // namespace muster::kube
