// OpenAPI v3 documents of the served kinds: enough for kubectl to validate on the server's side,
// to choose a patch format and to explain field types.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kube/embedded/api_server.h"
#include "kube/embedded/resource_types.h"

namespace muster::kube::embedded {

// /openapi/v3 and /openapi/v3/{api/v1,apis/GROUP/VERSION}; nullopt for any other path.
std::optional<Answer> OpenApiAnswer(const std::vector<const ResourceType*>& types,
                                    const std::string& path);

}  // namespace muster::kube::embedded
