// Mutating admission webhooks (apiserver/pkg/admission/plugin/webhook v0.34).
#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "kube/embedded/json_fields.h"
#include "kube/embedded/match_condition.h"
#include "kube/embedded/patch.h"
#include "kube/embedded/server_impl.h"
#include "kube/embedded/webhook_caller.h"

namespace muster::kube::embedded {
namespace {

bool Lists(const Json& rule, const char* field, const std::string& value) {
  for (const Json& entry : ListAt(rule, {field})) {
    if (entry == "*" || entry == value) return true;
  }
  return false;
}

bool RuleMatches(const Json& webhook, const ResourceType& type, const std::string& operation) {
  for (const Json& rule : ListAt(webhook, {"rules"})) {
    const std::string& scope = StringAt(rule, {"scope"});
    if (scope == "Cluster" && type.namespaced) continue;
    if (scope == "Namespaced" && !type.namespaced) continue;
    if (Lists(rule, "operations", operation) && Lists(rule, "apiGroups", type.group) &&
        Lists(rule, "apiVersions", type.version) && Lists(rule, "resources", type.plural)) {
      return true;
    }
  }
  return false;
}

ApiError CallFailure(const std::string& webhook, std::string_view why) {
  return Internal(
      fmt::format("failed calling webhook {}: failed to call webhook: {}", Quoted(webhook), why));
}

ApiError Denied(const std::string& webhook, const Json& response) {
  ApiError error;
  error.code = static_cast<int>(IntAt(response, {"status", "code"}).value_or(400));
  if (error.code < 400 || error.code > 599) error.code = 400;
  error.reason = StringAt(response, {"status", "reason"});
  const std::string& message = StringAt(response, {"status", "message"});
  error.message =
      message.empty()
          ? fmt::format("admission webhook {} denied the request without explanation",
                        Quoted(webhook))
          : fmt::format("admission webhook {} denied the request: {}", Quoted(webhook), message);
  return error;
}

// admission.k8s.io/v1
Json Review(const Call& call, const std::string& operation, const std::string& uid,
            const Json* before, const Json& object) {
  const ResourceType& type = *call.type;
  Json kind = {{"group", type.group}, {"version", type.version}, {"kind", type.kind}};
  Json resource = {{"group", type.group}, {"version", type.version}, {"resource", type.plural}};
  return {{"apiVersion", "admission.k8s.io/v1"},
          {"kind", "AdmissionReview"},
          {"request",
           {{"uid", uid},
            {"kind", kind},
            {"resource", resource},
            {"requestKind", kind},
            {"requestResource", resource},
            {"name", StringAt(object, {"metadata", "name"})},
            {"namespace", call.path.name_space},
            {"operation", operation},
            {"userInfo", {{"username", "system:admin"}, {"groups", {"system:masters"}}}},
            {"object", object},
            {"oldObject", before == nullptr ? Json() : *before},
            {"dryRun", call.dry_run()}}}};
}

// Applies the patch of an answer that allows the request.
MaybeError ApplyAnswer(const std::string& webhook, const Json& response, Json* object) {
  const std::string& encoded = StringAt(response, {"patch"});
  if (encoded.empty()) return std::nullopt;
  std::string patch_text;
  if (StringAt(response, {"patchType"}) != "JSONPatch" ||
      !absl::Base64Unescape(encoded, &patch_text)) {
    return CallFailure(webhook, "patch must be base64 with patchType JSONPatch");
  }
  Json patched = *object;
  ApiResult<Json> patch = ParseJson(patch_text);
  MaybeError failure = patch.ok() ? ApplyJsonPatch(*patch, &patched) : MaybeError(patch.error());
  if (failure) return CallFailure(webhook, failure->message);
  *object = std::move(patched);
  return std::nullopt;
}

}  // namespace

void ServerImpl::SetWebhookCaller(std::shared_ptr<WebhookCaller> caller) {
  std::lock_guard lock(mutex_);
  webhook_caller_ = std::move(caller);
}

bool ServerImpl::MayBlock(const Request& request) {
  std::string operation = request.method == Method::kPost ? "CREATE" : "UPDATE";
  if (request.method == Method::kGet || request.method == Method::kDelete) return false;
  std::optional<ApiPath> path = ParseApiPath(request.path);
  if (!path || !path->subresource.empty()) return false;
  std::lock_guard lock(mutex_);
  const ResourceType* type = types_.Find(path->group, path->version, path->plural);
  if (type == nullptr) return false;
  const ResourceType* configurations =
      types_.FindPlural("admissionregistration.k8s.io", "mutatingwebhookconfigurations");
  if (type == configurations) return false;
  bool found = false;
  store_.Scan(configurations->index, "", "", [&](const std::string&, const ObjectPtr& object) {
    for (const Json& webhook : ListAt(object->value(), {"webhooks"})) {
      found |= RuleMatches(webhook, *type, operation);
    }
    return !found;
  });
  return found;
}

ApiResult<std::vector<ServerImpl::Webhook>> ServerImpl::MatchingWebhooks(
    const Call& call, const std::string& operation, const Json& object) {
  std::vector<ObjectPtr> configurations;
  ObjectPtr name_space;
  {
    std::lock_guard lock(mutex_);
    const ResourceType* type =
        types_.FindPlural("admissionregistration.k8s.io", "mutatingwebhookconfigurations");
    if (call.type == type) return std::vector<Webhook>();
    store_.Scan(type->index, "", "", [&](const std::string&, const ObjectPtr& configuration) {
      configurations.push_back(configuration);
      return true;
    });
    name_space = store_.Find(types_.FindPlural("", "namespaces")->index, call.path.name_space);
  }
  std::vector<Webhook> matching;
  for (const ObjectPtr& configuration : configurations) {
    for (const Json& webhook : ListAt(configuration->value(), {"webhooks"})) {
      if (!RuleMatches(webhook, *call.type, operation)) continue;
      ApiResult<LabelSelector> of_namespace =
          LabelSelectorFromJson(MapAt(webhook, {"namespaceSelector"}));
      ApiResult<LabelSelector> of_object =
          LabelSelectorFromJson(MapAt(webhook, {"objectSelector"}));
      if (!of_namespace.ok()) return of_namespace.error();
      if (!of_object.ok()) return of_object.error();
      if (name_space && !MatchesLabels(*of_namespace, name_space->value())) continue;
      if (!MatchesLabels(*of_object, object)) continue;
      matching.push_back({StringAt(configuration->value(), {"metadata", "name"}), webhook});
    }
  }
  return matching;
}

MaybeError ServerImpl::CallWebhooks(Call* call, const std::string& operation, const Json* before,
                                    const std::vector<Webhook>& webhooks, Json* object) {
  for (const Webhook& webhook : webhooks) {
    const bool ignore = StringAt(webhook.definition, {"failurePolicy"}) == "Ignore";
    const std::string& name = StringAt(webhook.definition, {"name"});
    Json variables = {{"object", *object},
                      {"oldObject", before == nullptr ? Json() : *before},
                      {"request",
                       {{"operation", operation},
                        {"namespace", call->path.name_space},
                        {"name", StringAt(*object, {"metadata", "name"})},
                        {"dryRun", call->dry_run()}}}};
    bool matches = true;
    MaybeError unclear;
    for (const Json& condition : ListAt(webhook.definition, {"matchConditions"})) {
      absl::StatusOr<bool> value =
          EvaluateCondition(StringAt(condition, {"expression"}), variables);
      if (value.ok()) {
        matches &= *value;
      } else {
        unclear = Internal(fmt::format("webhook {}: matchCondition {}: {}", Quoted(name),
                                       Quoted(StringAt(condition, {"name"})),
                                       std::string(value.status().message())));
      }
    }
    // One condition that is false decides, whatever the errors of others.
    if (!matches || (unclear && ignore)) continue;
    if (unclear) return unclear;
    if (MaybeError error = CallWebhook(call, webhook, operation, before, object)) return error;
  }
  return std::nullopt;
}

MaybeError ServerImpl::CallWebhook(Call* call, const Webhook& webhook, const std::string& operation,
                                   const Json* before, Json* object) {
  const Json& definition = webhook.definition;
  const std::string& name = StringAt(definition, {"name"});
  const bool ignore = StringAt(definition, {"failurePolicy"}) == "Ignore";
  std::string uid;
  std::shared_ptr<WebhookCaller> caller;
  {
    std::lock_guard lock(mutex_);
    uid = UidLocked();
    caller = webhook_caller_;
  }
  WebhookCall request;
  request.url = StringAt(definition, {"clientConfig", "url"});
  absl::Base64Unescape(StringAt(definition, {"clientConfig", "caBundle"}), &request.ca_bundle);
  request.body = Review(*call, operation, uid, before, *object).dump();
  request.timeout = absl::Seconds(IntAt(definition, {"timeoutSeconds"}).value_or(10));
  absl::StatusOr<std::string> answer =
      caller == nullptr ? absl::UnavailableError("this server has no way to call webhooks")
      : request.url.empty()
          ? absl::UnavailableError("services can't be reached from here, use clientConfig.url")
          : caller->Call(request);
  Json parsed = answer.ok() ? Json::parse(*answer, nullptr, /*allow_exceptions=*/false) : Json();
  const Json& response = MapAt(parsed, {"response"});
  if (answer.ok() && StringAt(response, {"uid"}) != uid) {
    answer = absl::UnavailableError("the answer is no AdmissionReview with the request's uid");
  }
  if (!answer.ok()) {
    if (ignore) return std::nullopt;
    return CallFailure(name, std::string(answer.status().message()));
  }
  for (const Json& warning : ListAt(response, {"warnings"})) {
    if (warning.is_string()) call->warnings.push_back(warning);
  }
  if (!BoolAt(response, {"allowed"})) return Denied(name, response);
  return ApplyAnswer(name, response, object);
}

}  // namespace muster::kube::embedded
