// Kinds defined by CustomResourceDefinitions, and those this server comes with.
#pragma once

#include <string>
#include <vector>

#include "kube/embedded/api_error.h"
#include "kube/embedded/resource_types.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::kube::embedded {

// The storage version of a CRD, if it is served. BadRequest naming the field for a malformed
// schema. Unknown fields are kept (no structural pruning); one version, so no conversion.
ApiResult<ResourceType> TypeFromCrd(const nlohmann::json& crd);

// CRDs as JSON: PodGroup (scheduling.x-k8s.io/v1alpha1, field-compatible with scheduler-plugins
// v0.33.5), NodePool and NodeClaim (karpenter.sh/v1, the fields that scheduling reads), Kueue's
// quota objects (quota_crds.h), and the jobs that gangs are derived from, with any content: JobSet,
// PyTorchJob, TrainJob.
const std::vector<std::string>& BuiltInCrds();

}  // namespace muster::kube::embedded
