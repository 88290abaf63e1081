// The three patch formats of the API: JSON merge patch (RFC 7386), JSON patch (RFC 6902) and
// strategic merge patch (k8s.io/apimachinery/pkg/util/strategicpatch v0.34).
#pragma once

#include <string_view>

#include "kube/embedded/api_error.h"
#include "kube/embedded/schema.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::kube::embedded {

// Changes `target` in place.
void ApplyMergePatch(const nlohmann::json& patch, nlohmann::json* target);

// `operations` in order, all or nothing. BadRequest if it isn't a list of operations, 422 naming
// the operation if one can't be applied or a test fails, 413 past 10,000 operations. On an error
// `target` is left in an unspecified state.
MaybeError ApplyJsonPatch(const nlohmann::json& operations, nlohmann::json* target);

// With $patch, $retainKeys, $deleteFromPrimitiveList and $setElementOrder. BadRequest naming the
// field for a malformed directive or a list entry without its merge key. On an error `target` is
// left in an unspecified state.
MaybeError ApplyStrategicMergePatch(const Schema& schema, const nlohmann::json& patch,
                                    nlohmann::json* target);

}  // namespace muster::kube::embedded
