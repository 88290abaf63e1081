#include "extender/admission/webhook.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "kube/objects/json_value.h"

namespace muster::extender {
namespace {

using kube::JsonReader;
using kube::JsonValue;

constexpr std::string_view kApiVersion = "admission.k8s.io/v1";
constexpr std::string_view kKind = "AdmissionReview";
constexpr std::string_view kGate = "muster.dev/admission";

enum class Verdict { kUntouched, kFirstGate, kOneMoreGate };

void Require(const JsonValue& value, std::string_view want) {
  if (value.View() != want) {
    value.RejectValue(fmt::format("want \"{}\", got {}", want, value.Excerpt()));
  }
}

void RequirePresent(const JsonValue& value) {
  if (!value.present()) value.RejectValue("is missing");
}

Verdict JudgeGates(const JsonValue& gates) {
  bool any = false;
  bool ours = false;
  gates.ForEach([&](const JsonValue& gate) {
    any = true;
    ours |= gate.Get("name").View() == kGate;
  });
  if (ours) return Verdict::kUntouched;
  return any ? Verdict::kOneMoreGate : Verdict::kFirstGate;
}

Verdict Judge(const JsonValue& request, std::string_view scheduler_name) {
  const JsonValue operation = request.Get("operation");
  const JsonValue resource = request.Get("resource");
  RequirePresent(operation);
  RequirePresent(resource);
  // A binding, an eviction and a new ephemeral container are creations too, of subresources.
  if (operation.View() != "CREATE" || !resource.Get("group").View().empty() ||
      resource.Get("resource").View() != "pods" || !request.Get("subResource").View().empty()) {
    return Verdict::kUntouched;
  }
  const JsonValue pod = request.Get("object");
  RequirePresent(pod);
  const JsonValue spec = pod.Get("spec");
  if (spec.Get("schedulerName").View() != scheduler_name) return Verdict::kUntouched;
  if (!spec.Get("nodeName").View().empty()) return Verdict::kUntouched;
  return JudgeGates(spec.Get("schedulingGates"));
}

nlohmann::json PatchFor(Verdict verdict) {
  const nlohmann::json gate = {{"name", kGate}};
  // "add" also replaces null and an empty list.
  return verdict == Verdict::kFirstGate
             ? nlohmann::json::array({{{"op", "add"},
                                       {"path", "/spec/schedulingGates"},
                                       {"value", nlohmann::json::array({gate})}}})
             : nlohmann::json::array(
                   {{{"op", "add"}, {"path", "/spec/schedulingGates/-"}, {"value", gate}}});
}

std::string Answer(const std::string& uid, Verdict verdict) {
  nlohmann::json response = {{"uid", uid}, {"allowed", true}};
  if (verdict != Verdict::kUntouched) {
    response["patchType"] = "JSONPatch";
    response["patch"] = absl::Base64Escape(PatchFor(verdict).dump());
  }
  const nlohmann::json review = {
      {"apiVersion", kApiVersion}, {"kind", kKind}, {"response", std::move(response)}};
  return review.dump();
}

}  // namespace

absl::StatusOr<std::string> ReviewAdmission(std::string_view review,
                                            std::string_view scheduler_name) {
  if (review.size() > kMaxReviewBytes) {
    return absl::InvalidArgumentError(fmt::format(
        "AdmissionReview of {} bytes, at most {} are read", review.size(), kMaxReviewBytes));
  }
  JsonReader reader(review);
  Require(reader.root().Get("apiVersion"), kApiVersion);
  Require(reader.root().Get("kind"), kKind);
  const JsonValue request = reader.root().Get("request");
  RequirePresent(request);
  const JsonValue uid = request.Get("uid");
  if (uid.View().empty()) uid.RejectValue("is missing");
  const Verdict verdict = Judge(request, scheduler_name);
  if (!reader.status().ok()) return reader.status();
  if (!reader.unusable().empty()) return absl::InvalidArgumentError(reader.unusable());
  return Answer(uid.String(), verdict);
}

HttpRoute MutatePodsRoute(std::string scheduler_name) {
  HttpHandler handler = [name = std::move(scheduler_name)](const HttpRequest& request,
                                                           const Responder& responder) {
    absl::StatusOr<std::string> answer = ReviewAdmission(request.body, name);
    if (answer.ok()) return responder.Send({.body = *std::move(answer)});
    responder.Send({.status = 400,
                    .content_type = "text/plain",
                    .body = std::string(answer.status().message())});
  };
  return {"POST", std::string(kMutatePodsPath), std::move(handler)};
}

}  // namespace muster::extender
