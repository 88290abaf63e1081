#include "extender/admission/webhook.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "coscheduling/labels.h"
#include "extender/admission/admission_review.h"
#include "kube/objects/json_value.h"
#include "kube/objects/well_known.h"
#include "quota/pod_sets.h"

namespace muster::extender {
namespace {

using kube::JsonReader;
using kube::JsonValue;
using Json = nlohmann::json;

// Where Muster keeps state of a pod.
constexpr std::string_view kStateAnnotations[] = {
    coscheduling::kRecordAnnotation, coscheduling::kEpochAnnotation, coscheduling::kWakeAnnotation,
    quota::kPodSetAnnotation,        quota::kFlavorsAnnotation,      quota::kQueueAnnotation,
    coscheduling::kZoneAnnotation};

constexpr std::string_view kManagedByKueueLabel = "kueue.x-k8s.io/managed";

struct Verdict {
  Json patch = Json::array();  // JSON Patch
  std::string refusal;
  std::string applied;  // the pod, as JSON, if somebody reads warnings about it
};

void AddGate(const JsonValue& gates, Json* patch) {
  bool any = false;
  bool ours = false;
  gates.ForEach([&](const JsonValue& gate) {
    any = true;
    ours |= gate.Get("name").View() == coscheduling::kGate;
  });
  if (ours) return;
  Json gate = {{"name", coscheduling::kGate}};
  // "add" also replaces null and an empty list.
  patch->push_back({{"op", "add"},
                    {"path", any ? "/spec/schedulingGates/-" : "/spec/schedulingGates"},
                    {"value", any ? std::move(gate) : Json::array({std::move(gate)})}});
}

void RemoveState(const JsonValue& annotations, Json* patch) {
  for (const std::string_view name : kStateAnnotations) {
    if (!annotations.Get(name).present()) continue;
    const std::string escaped = absl::StrReplaceAll(std::string(name), {{"~", "~0"}, {"/", "~1"}});
    patch->push_back({{"op", "remove"}, {"path", "/metadata/annotations/" + escaped}});
  }
}

bool IsOwned(const JsonValue& metadata) {
  bool owned = false;
  metadata.Get("ownerReferences").ForEach([&](const JsonValue&) { owned = true; });
  return owned;
}

Verdict JudgeOurs(const JsonValue& metadata, const JsonValue& spec, const GateOptions& options) {
  Verdict verdict;
  if (const std::string node = spec.Get("nodeName").String(); !node.empty()) {
    verdict.refusal = fmt::format(
        "spec.nodeName is \"{}\", with spec.schedulerName \"{}\": such a pod would run there "
        "without any admission; leave spec.nodeName out, and say where it may run by "
        "spec.nodeSelector or spec.affinity",
        node, options.scheduler_name);
    return verdict;
  }
  if (!options.gates || options.gates()) AddGate(spec.Get("schedulingGates"), &verdict.patch);
  RemoveState(metadata.Get("annotations"), &verdict.patch);
  return verdict;
}

// Why quota would never count the pod; "" if that isn't so.
std::string WhyNeverCounted(const JsonValue& metadata, const JsonValue& spec,
                            const GateOptions& options) {
  const JsonValue labels = metadata.Get("labels");
  const std::string queue = labels.Get(kube::kQueueLabel).String();
  if (!options.guards_queues || queue.empty() || IsOwned(metadata) ||
      labels.Get(kManagedByKueueLabel).View() == "true") {
    return "";
  }
  return fmt::format(
      "label {} is \"{}\", and spec.schedulerName is \"{}\": quota of a queue is given to pods of "
      "schedulerName \"{}\" only; write that, or leave the label out",
      kube::kQueueLabel, queue, spec.Get("schedulerName").String(), options.scheduler_name);
}

Verdict Judge(const JsonValue& request, const GateOptions& options) {
  const JsonValue operation = request.Get("operation");
  const JsonValue resource = request.Get("resource");
  RequirePresent(operation);
  RequirePresent(resource);
  // A binding, an eviction and a new ephemeral container are creations too, of subresources.
  if (operation.View() != "CREATE" || !resource.Get("group").View().empty() ||
      resource.Get("resource").View() != "pods" || !request.Get("subResource").View().empty()) {
    return {};
  }
  const JsonValue pod = request.Get("object");
  RequirePresent(pod);
  const JsonValue metadata = pod.Get("metadata");
  const JsonValue spec = pod.Get("spec");
  if (spec.Get("schedulerName").View() == options.scheduler_name) {
    Verdict verdict = JudgeOurs(metadata, spec, options);
    if (options.linter && verdict.refusal.empty() && !IsOwned(metadata)) {
      verdict.applied = pod.Json();
    }
    return verdict;
  }
  Verdict verdict;
  verdict.refusal = WhyNeverCounted(metadata, spec, options);
  return verdict;
}

std::string Answer(const std::string& uid, const Verdict& verdict,
                   std::vector<std::string> warnings) {
  if (!verdict.refusal.empty()) return RefusedReview(uid, verdict.refusal);
  Json response;
  if (!verdict.patch.empty()) {
    response["patchType"] = "JSONPatch";
    response["patch"] = absl::Base64Escape(verdict.patch.dump());
  }
  if (!warnings.empty()) response["warnings"] = std::move(warnings);
  return AllowedReview(uid, std::move(response));
}

}  // namespace

absl::StatusOr<std::string> ReviewAdmission(std::string_view review, const GateOptions& options) {
  if (absl::Status status = CheckReviewSize(review); !status.ok()) return status;
  std::string uid;
  std::string name_space;
  Verdict verdict;
  {
    JsonReader reader(review);
    const JsonValue request = OpenReview(&reader);
    verdict = Judge(request, options);
    if (absl::Status fault = FaultIn(reader); !fault.ok()) return fault;
    uid = request.Get("uid").String();
    name_space = request.Get("namespace").String();
  }
  std::vector<std::string> warnings;
  if (!verdict.applied.empty()) {
    warnings = WarningTexts(options.linter(name_space, verdict.applied).findings);
  }
  return Answer(uid, verdict, std::move(warnings));
}

http::Route MutatePodsRoute(GateOptions options) {
  http::Handler handler = [options = std::move(options)](const http::Request& request,
                                                         const http::Responder& responder) {
    absl::StatusOr<std::string> answer = ReviewAdmission(request.body, options);
    if (answer.ok()) return responder.Send({.body = *std::move(answer)});
    responder.Send({.status = 400,
                    .content_type = "text/plain",
                    .body = std::string(answer.status().message())});
  };
  return {"POST", std::string(kMutatePodsPath), std::move(handler)};
}

}  // namespace muster::extender
