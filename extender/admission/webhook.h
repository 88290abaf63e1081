// The gate: answers the API server's question about a pod that is being created.
//
// Rules of admission.k8s.io/v1 (k8s.io/api v0.34 admission/v1) and of scheduling gates, which may
// be added only while a pod is created. Pure, so a dry run is answered like any other.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "extender/admission/admission_review.h"
#include "http/server.h"

namespace muster::extender {

inline constexpr std::string_view kMutatePodsPath = "/mutate-pods";

// AdmissionReview request to AdmissionReview response, both JSON. A pod with `scheduler_name` that
// is being created gets gate muster.dev/admission by a JSON patch, unless it has the gate or a node
// already; everything else is allowed as it is. InvalidArgument, naming the field, for what is no
// AdmissionReview.
absl::StatusOr<std::string> ReviewAdmission(std::string_view review,
                                            std::string_view scheduler_name);

// POST kMutatePodsPath: ReviewAdmission, or 400 with its error. The API server takes anything but
// 200 as a failed call, and the registration's failurePolicy then keeps the pod out.
http::Route MutatePodsRoute(std::string scheduler_name);

}  // namespace muster::extender
