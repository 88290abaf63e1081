// The envelope that the API server's questions to a webhook come in, and their answers go in.
//
// Rules of admission.k8s.io/v1 (k8s.io/api v0.34 admission/v1).
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "kube/objects/json_value.h"

namespace muster::extender {

// Above any object that the API server takes (its own limit for a request is 3 MiB), written as
// JSON.
inline constexpr size_t kMaxReviewBytes = 8 << 20;

// InvalidArgument for a review that is too large to be read.
absl::Status CheckReviewSize(std::string_view review);

// Keeps "is missing" as the reader's fault if the value is absent.
void RequirePresent(const kube::JsonValue& value);

// The review's request. What is missing or wrong in the envelope is kept by the reader.
kube::JsonValue OpenReview(kube::JsonReader* reader);

// OK, or InvalidArgument with the first thing that the reader couldn't take.
absl::Status FaultIn(const kube::JsonReader& reader);

// The answer that allows the request, with `fields` beside that.
std::string AllowedReview(const std::string& uid, nlohmann::json fields);

// The answer that refuses it, as a field's fault: whoever applied the object reads `message`.
std::string RefusedReview(const std::string& uid, const std::string& message);

}  // namespace muster::extender
