// The part of CEL that admission matchConditions are written in here: comparisons of fields of
// object, oldObject and request with literals, joined by &&, || and !.
//
//   object.spec.schedulerName == "coscheduling" && !has(object.spec.nodeName)
//
// Literals: strings, integers, true, false. Operators: ==, !=, in [..], in path, &&, ||, !, ( ),
// has(path). Everything else is an error that names the place. Reading a field that isn't there is
// an error too, as in CEL, unless the other side of && or || decides.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::kube::embedded {

// `variables` is an object with the names that may start a path. InvalidArgument for what can't be
// parsed, FailedPrecondition for what can't be evaluated.
absl::StatusOr<bool> EvaluateCondition(const std::string& expression,
                                       const nlohmann::json& variables);

}  // namespace muster::kube::embedded
