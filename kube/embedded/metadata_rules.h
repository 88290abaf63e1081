// Names, labels, annotations, finalizers and owner references: what metadata may hold
// (k8s.io/apimachinery/pkg/api/validation v0.34), and the fields that the server itself sets.
#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "kube/embedded/api_error.h"
#include "kube/embedded/resource_types.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::kube::embedded {

// What names must be, in the words of k8s.io/apimachinery/pkg/util/validation v0.34.
inline constexpr const char* kSubdomainRule =
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
inline constexpr const char* kLabelRule =
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

// Labels, annotations, finalizers, owner references and the name. metadata must be an object.
void ValidateMetadata(const ResourceType& type, const nlohmann::json& object, FieldErrors* errors);

// name, namespace, uid, creationTimestamp and the deletion mark don't change; once there is a
// deletion mark no finalizer may be added.
void ValidateMetadataUpdate(const nlohmann::json& before, const nlohmann::json& after,
                            FieldErrors* errors);

// Gives `after` the fields of metadata that only the server sets, as they are in `before`.
void KeepServerMetadata(const nlohmann::json& before, nlohmann::json* after);

}  // namespace muster::kube::embedded
