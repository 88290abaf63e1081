// What the server does to an object of each kind on its way in: defaults, the fields it sets
// itself, and validation. Pods have their own file (pod_rules.h).
#pragma once

#include "absl/time/time.h"
#include "kube/embedded/api_error.h"
#include "kube/embedded/resource_types.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::kube::embedded {

// Fills in spec defaults. Idempotent; runs on creation (before and after admission) and on update.
void DefaultObject(const ResourceType& type, nlohmann::json* object);

// The status a new object starts with, whatever the client sent.
void InitStatus(const ResourceType& type, absl::Time now, nlohmann::json* object);

void ValidateNew(const ResourceType& type, const nlohmann::json& object, FieldErrors* errors);

// `status_only`: through the status subresource.
void ValidateChange(const ResourceType& type, const nlohmann::json& before,
                    const nlohmann::json& after, bool status_only, FieldErrors* errors);

// True if anything but metadata and status differs: what counts a generation.
bool SpecDiffers(const nlohmann::json& before, const nlohmann::json& after);

}  // namespace muster::kube::embedded
