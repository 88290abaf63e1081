// Defaults and validation of a pod's containers and their resources
// (k8s.io/kubernetes/pkg/apis/core/{v1/defaults.go,validation/validation.go} v1.34).
#pragma once

#include <string>

#include "kube/embedded/api_error.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::kube::embedded {

// Requests take the value of limits where they are absent.
void DefaultContainer(nlohmann::json* container);

// spec.containers and spec.initContainers; spec.overhead.
void ValidateContainers(const nlohmann::json& spec, FieldErrors* errors);

// Every quantity of a resource map parses and isn't negative; extended resources are whole.
void ValidateResourceMap(const nlohmann::json& resources, const std::string& path,
                         FieldErrors* errors);

// "Guaranteed", "Burstable" or "BestEffort".
std::string QosClass(const nlohmann::json& spec);

}  // namespace muster::kube::embedded
