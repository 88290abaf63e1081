#include "extender/admission/webhook.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "coscheduling/labels.h"
#include "extender/admission/admission_review.h"
#include "kube/objects/json_value.h"

namespace muster::extender {
namespace {

using kube::JsonReader;
using kube::JsonValue;

enum class Verdict { kUntouched, kFirstGate, kOneMoreGate };

Verdict JudgeGates(const JsonValue& gates) {
  bool any = false;
  bool ours = false;
  gates.ForEach([&](const JsonValue& gate) {
    any = true;
    ours |= gate.Get("name").View() == coscheduling::kGate;
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
  const nlohmann::json gate = {{"name", coscheduling::kGate}};
  // "add" also replaces null and an empty list.
  return verdict == Verdict::kFirstGate
             ? nlohmann::json::array({{{"op", "add"},
                                       {"path", "/spec/schedulingGates"},
                                       {"value", nlohmann::json::array({gate})}}})
             : nlohmann::json::array(
                   {{{"op", "add"}, {"path", "/spec/schedulingGates/-"}, {"value", gate}}});
}

std::string Answer(const std::string& uid, Verdict verdict) {
  nlohmann::json response;
  if (verdict != Verdict::kUntouched) {
    response["patchType"] = "JSONPatch";
    response["patch"] = absl::Base64Escape(PatchFor(verdict).dump());
  }
  return AllowedReview(uid, std::move(response));
}

}  // namespace

absl::StatusOr<std::string> ReviewAdmission(std::string_view review,
                                            std::string_view scheduler_name) {
  if (absl::Status status = CheckReviewSize(review); !status.ok()) return status;
  JsonReader reader(review);
  const JsonValue request = OpenReview(&reader);
  const Verdict verdict = Judge(request, scheduler_name);
  if (absl::Status fault = FaultIn(reader); !fault.ok()) return fault;
  return Answer(request.Get("uid").String(), verdict);
}

http::Route MutatePodsRoute(std::string scheduler_name) {
  http::Handler handler = [name = std::move(scheduler_name)](const http::Request& request,
                                                             const http::Responder& responder) {
    absl::StatusOr<std::string> answer = ReviewAdmission(request.body, name);
    if (answer.ok()) return responder.Send({.body = *std::move(answer)});
    responder.Send({.status = 400,
                    .content_type = "text/plain",
                    .body = std::string(answer.status().message())});
  };
  return {"POST", std::string(kMutatePodsPath), std::move(handler)};
}

}  // namespace muster::extender
