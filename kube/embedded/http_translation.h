// From an HTTP request line to a kube::Request.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kube/api.h"

namespace muster::kube::embedded {

// "GET", ... ; nullopt for methods the API doesn't know.
std::optional<Method> MethodNamed(std::string_view name);

// Splits and unescapes "/api/v1/pods?limit=5&labelSelector=a%3Db" ('+' in the query is a blank).
// False if an escape is malformed or the target isn't a path.
bool ParseTarget(std::string_view target, Request* request);

}  // namespace muster::kube::embedded
