#include "extender/admission/admission_review.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace muster::extender {
namespace {

using kube::JsonReader;
using kube::JsonValue;
using Json = nlohmann::json;

constexpr std::string_view kApiVersion = "admission.k8s.io/v1";
constexpr std::string_view kKind = "AdmissionReview";

void Require(const JsonValue& value, std::string_view want) {
  if (value.View() != want) {
    value.RejectValue(fmt::format("want \"{}\", got {}", want, value.Excerpt()));
  }
}

std::string Answered(const std::string& uid, Json response) {
  response["uid"] = uid;
  const Json review = {
      {"apiVersion", kApiVersion}, {"kind", kKind}, {"response", std::move(response)}};
  return review.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

absl::Status CheckReviewSize(std::string_view review) {
  if (review.size() <= kMaxReviewBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("AdmissionReview of {} bytes, at most {} are read",
                                                review.size(), kMaxReviewBytes));
}

void RequirePresent(const JsonValue& value) {
  if (!value.present()) value.RejectValue("is missing");
}

JsonValue OpenReview(JsonReader* reader) {
  const JsonValue root = reader->root();
  Require(root.Get("apiVersion"), kApiVersion);
  Require(root.Get("kind"), kKind);
  const JsonValue request = root.Get("request");
  RequirePresent(request);
  const JsonValue uid = request.Get("uid");
  if (uid.View().empty()) uid.RejectValue("is missing");
  return request;
}

absl::Status FaultIn(const JsonReader& reader) {
  if (!reader.status().ok()) return reader.status();
  if (!reader.unusable().empty()) return absl::InvalidArgumentError(reader.unusable());
  return absl::OkStatus();
}

std::string AllowedReview(const std::string& uid, Json fields) {
  fields["allowed"] = true;
  return Answered(uid, std::move(fields));
}

std::string RefusedReview(const std::string& uid, const std::string& message) {
  return Answered(uid, {{"allowed", false},
                        {"status", {{"code", 422}, {"reason", "Invalid"}, {"message", message}}}});
}

}  // namespace muster::extender
