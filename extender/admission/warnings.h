// What lint's rules say of an object that is being applied, as warnings that kubectl prints.
//
// A webhook of its own beside the gate (webhook_configuration.h), which only ever answers
// "allowed": it changes nothing, refuses nothing, and nothing waits for it longer than its short
// timeout. A dry run is answered like any other request.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "http/server.h"
#include "lint/object_lint.h"

namespace muster::extender {

inline constexpr std::string_view kWarningsPath = "/warnings";

// The API server cuts warnings off after 256 characters once all of a request's are more than 4096
// (k8s.io/apiserver v0.34, pkg/endpoints/filters/warning.go), and drops what comes after that.
inline constexpr size_t kMaxWarningCharacters = 256;
inline constexpr size_t kMaxWarningsCharacters = 4096;

// "RULE: MESSAGE; FIX" of each, the fix as a warning of its own where both are too long together.
// No text twice. What doesn't fit into the limits is counted in the last one.
std::vector<std::string> WarningTexts(const std::vector<lint::Finding>& findings);

// The rules' findings about one object, which is given as JSON, and is in this namespace or in
// none.
using ObjectLinter =
    std::function<lint::ObjectLint(std::string_view name_space, std::string_view json)>;

// AdmissionReview request to response, both JSON: allowed, with the warnings. InvalidArgument for
// what is no AdmissionReview.
absl::StatusOr<std::string> ReviewForWarnings(std::string_view review, const ObjectLinter& linter);

// POST kWarningsPath: ReviewForWarnings, or 400 with its error, which the registration's
// failurePolicy passes over.
http::Route WarningsRoute(ObjectLinter linter);

}  // namespace muster::extender
