// What the API server does to pods: defaults, validation, the QoS class and the conditions it
// writes (k8s.io/kubernetes/pkg/apis/core and pkg/registry/core/pod v1.34).
//
// The object is expected to have passed its schema, so types are right where fields are present.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "kube/embedded/api_error.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::kube::embedded {

// Fills in spec defaults. Runs before admission and again after it.
void DefaultPod(nlohmann::json* pod);

// Sets the status of a pod that is being created: phase Pending, QoS class and, for a gated pod,
// PodScheduled=False with reason SchedulingGated.
void InitPodStatus(absl::Time now, nlohmann::json* pod);

void ValidatePod(const nlohmann::json& pod, FieldErrors* errors);

// Which changes of spec are allowed: images, deadlines, added tolerations, removed gates; while
// gated also additions to nodeSelector and to required node affinity.
void ValidatePodUpdate(const nlohmann::json& before, const nlohmann::json& after,
                       FieldErrors* errors);

void ValidatePodStatusUpdate(const nlohmann::json& before, const nlohmann::json& after,
                             FieldErrors* errors);

// Adds or replaces the condition of that type whole, as UpdatePodCondition of pkg/api/v1/pod does:
// lastTransitionTime is kept while the status stays the same.
void SetPodCondition(absl::Time now, const std::string& type, const std::string& status,
                     const std::string& reason, const std::string& message, nlohmann::json* pod);

}  // namespace muster::kube::embedded
