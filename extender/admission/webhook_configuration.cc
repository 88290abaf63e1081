#include "extender/admission/webhook_configuration.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "extender/admission/ca_bundle.h"
#include "extender/admission/webhook.h"

namespace muster::extender {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxAuthorities = 16;
constexpr const char* kWebhookName = "admission.muster.dev";

const Json& Field(const Json& object, const char* key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto at = object.find(key);
  return at == object.end() ? kNull : *at;
}

std::string Text(const Json& value) { return value.is_string() ? value.get<std::string>() : ""; }

// A JSON string is a CEL string with the same value.
std::string Condition(const std::string& scheduler_name) {
  return fmt::format("object.spec.schedulerName == {}",
                     Json(scheduler_name).dump(-1, ' ', true, Json::error_handler_t::replace));
}

Json Target(const WantedWebhook& wanted) {
  if (!wanted.service) return {{"url", wanted.url}};
  return {{"service",
           {{"namespace", wanted.service->name_space},
            {"name", wanted.service->name},
            {"port", wanted.service->port},
            {"path", kMutatePodsPath}}}};
}

Json Webhook(const WantedWebhook& wanted, const std::string& ca_bundle) {
  Json client = Target(wanted);
  client["caBundle"] = absl::Base64Escape(ca_bundle);
  return {{"name", kWebhookName},
          {"clientConfig", std::move(client)},
          {"rules", Json::array({{{"operations", {"CREATE"}},
                                  {"apiGroups", {""}},
                                  {"apiVersions", {"v1"}},
                                  {"resources", {"pods"}},
                                  {"scope", "Namespaced"}}})},
          {"matchConditions", Json::array({{{"name", "scheduler-name"},
                                            {"expression", Condition(wanted.scheduler_name)}}})},
          {"failurePolicy", "Fail"},
          {"matchPolicy", "Equivalent"},
          {"sideEffects", "None"},
          {"timeoutSeconds", 10},
          {"reinvocationPolicy", "IfNeeded"},
          {"admissionReviewVersions", {"v1"}}};
}

// A field that narrows what the webhook is called for, which is not to be there.
bool IsEmptySelector(const Json& selector) {
  if (selector.is_null()) return true;
  if (!selector.is_object()) return false;
  for (const Json& part : selector) {
    if (!part.empty()) return false;
  }
  return true;
}

std::string Excerpt(const Json& value) {
  constexpr size_t kLongest = 200;
  std::string text = value.is_null() ? "absent" : value.dump(-1, ' ', true);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

std::string DifferenceIn(const std::string& path, const Json& found, const Json& wanted) {
  if (found == wanted) return "";
  return fmt::format("{} is {}, want {}", path, Excerpt(found), Excerpt(wanted));
}

std::string TargetDifference(const Json& client, const WantedWebhook& wanted) {
  const Json target = Target(wanted);
  for (const char* key : {"url", "service"}) {
    std::string difference = DifferenceIn(fmt::format("webhooks[0].clientConfig.{}", key),
                                          Field(client, key), Field(target, key));
    if (!difference.empty()) return difference;
  }
  return "";
}

std::string BundleDifference(const std::string& found, const WantedWebhook& wanted) {
  if (!BundleContains(found, wanted.ca_bundle)) {
    return "webhooks[0].clientConfig.caBundle lacks the authority of this process";
  }
  if (!wanted.service && !SameBundle(found, wanted.ca_bundle)) {
    return "webhooks[0].clientConfig.caBundle has an authority that is not of this process";
  }
  return "";
}

std::string WebhookDifference(const Json& found, const WantedWebhook& wanted) {
  const Json webhook = Webhook(wanted, "");
  for (const auto& [key, value] : webhook.items()) {
    if (key == "clientConfig") continue;
    std::string difference = DifferenceIn("webhooks[0]." + key, Field(found, key.c_str()), value);
    if (!difference.empty()) return difference;
  }
  for (const char* key : {"namespaceSelector", "objectSelector"}) {
    const Json& selector = Field(found, key);
    if (IsEmptySelector(selector)) continue;
    return DifferenceIn(fmt::format("webhooks[0].{}", key), selector, Json::object());
  }
  return "";
}

std::string Patch(const FoundWebhook& found, Json webhook) {
  const Json patch = {{"metadata", {{"resourceVersion", found.resource_version}}},
                      {"webhooks", Json::array({std::move(webhook)})}};
  return patch.dump(-1, ' ', true);
}

std::string BundleFor(const FoundWebhook& found, const WantedWebhook& wanted, absl::Time now) {
  if (!wanted.service) return wanted.ca_bundle;
  return JoinBundles(found.ca_bundle, wanted.ca_bundle, now, kMaxAuthorities);
}

}  // namespace

absl::StatusOr<FoundWebhook> InspectWebhook(const std::string& json, const WantedWebhook& wanted) {
  const Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  FoundWebhook found;
  found.resource_version = Text(Field(Field(object, "metadata"), "resourceVersion"));
  if (found.resource_version.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: the answer has no metadata.resourceVersion", kWebhookConfigurationName));
  }
  const Json& webhooks = Field(object, "webhooks");
  if (!webhooks.is_array() || webhooks.size() != 1) {
    found.difference =
        fmt::format("webhooks has {} entries, want 1", webhooks.is_array() ? webhooks.size() : 0);
    found.bundle_difference = found.difference;
    return found;
  }
  const Json& webhook = webhooks[0];
  const Json& client = Field(webhook, "clientConfig");
  absl::Base64Unescape(Text(Field(client, "caBundle")), &found.ca_bundle);
  if (client.is_object()) found.webhooks = webhooks.dump(-1, ' ', true);
  found.bundle_difference = BundleDifference(found.ca_bundle, wanted);
  found.difference = TargetDifference(client, wanted);
  if (found.difference.empty()) found.difference = WebhookDifference(webhook, wanted);
  if (found.difference.empty()) found.difference = found.bundle_difference;
  return found;
}

std::string NewWebhook(const WantedWebhook& wanted) {
  const Json object = {{"apiVersion", "admissionregistration.k8s.io/v1"},
                       {"kind", "MutatingWebhookConfiguration"},
                       {"metadata",
                        {{"name", kWebhookConfigurationName},
                         {"labels", {{"app.kubernetes.io/part-of", "muster"}}}}},
                       {"webhooks", Json::array({Webhook(wanted, wanted.ca_bundle)})}};
  return object.dump(-1, ' ', true);
}

std::string RepairPatch(const FoundWebhook& found, const WantedWebhook& wanted, absl::Time now) {
  return Patch(found, Webhook(wanted, BundleFor(found, wanted, now)));
}

std::string BundlePatch(const FoundWebhook& found, const WantedWebhook& wanted, absl::Time now) {
  Json webhook = Json::parse(found.webhooks)[0];
  webhook["clientConfig"]["caBundle"] = absl::Base64Escape(BundleFor(found, wanted, now));
  return Patch(found, std::move(webhook));
}

}  // namespace muster::extender
