#include "extender/admission/webhook_configuration.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "extender/admission/ca_bundle.h"
#include "extender/admission/warnings.h"
#include "extender/admission/webhook.h"
#include "kube/objects/well_known.h"

namespace muster::extender {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxAuthorities = 16;

constexpr WebhookObject kGateObject = {
    "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "muster-admission",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"};
constexpr WebhookObject kWarningsObject = {
    "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "muster-warnings",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"};

// What people apply. A group that the cluster doesn't have is never asked about.
struct Applied {
  const char* group;
  std::vector<const char*> resources;
};
const std::vector<Applied>& AppliedKinds() {
  static const auto* kinds = new std::vector<Applied>{
      {"batch", {"jobs"}},
      {"apps", {"statefulsets"}},
      {"jobset.x-k8s.io", {"jobsets"}},
      {"kubeflow.org", {"pytorchjobs", "mpijobs"}},
      {"trainer.kubeflow.org", {"trainjobs"}},
      {"ray.io", {"rayclusters", "rayjobs"}},
      {"scheduling.x-k8s.io", {"podgroups"}},
      {"kueue.x-k8s.io", {"clusterqueues", "localqueues", "resourceflavors"}}};
  return *kinds;
}

const Json& Field(const Json& object, const char* key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto at = object.find(key);
  return at == object.end() ? kNull : *at;
}

std::string Text(const Json& value) { return value.is_string() ? value.get<std::string>() : ""; }

// A JSON string is a CEL string with the same value.
std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

// Jobs and StatefulSets have a schedulerName, if only the default one; in definitions of others it
// may be absent. What says nothing of a scheduler is asked about in any case.
std::string NamesScheduler(const std::string& scheduler_name) {
  const std::string name = Quoted(scheduler_name);
  const auto optional = [&](std::string_view spec) {
    return fmt::format("(has({0}.schedulerName) && {0}.schedulerName == {1})", spec, name);
  };
  return fmt::format(
      "request.resource.resource in [\"jobs\", \"statefulsets\"] ? "
      "object.spec.template.spec.schedulerName == {0} : "
      "request.resource.resource == \"jobsets\" ? object.spec.replicatedJobs.exists(j, {1}) : "
      "request.resource.resource == \"pytorchjobs\" ? "
      "object.spec.pytorchReplicaSpecs.exists(r, {2}) : true",
      name, optional("j.template.spec.template.spec"),
      optional("object.spec.pytorchReplicaSpecs[r].template.spec"));
}

Json Condition(const char* name, std::string expression) {
  return {{"name", name}, {"expression", std::move(expression)}};
}

Json Target(const WantedWebhook& wanted) {
  if (!wanted.service) return {{"url", wanted.url}};
  return {{"service",
           {{"namespace", wanted.service->name_space},
            {"name", wanted.service->name},
            {"port", wanted.service->port},
            {"path", wanted.purpose == WebhookPurpose::kGate ? kMutatePodsPath : kWarningsPath}}}};
}

Json Rule(std::vector<const char*> operations, const char* group, const char* version,
          const std::vector<const char*>& resources, const char* scope) {
  return {{"operations", std::move(operations)},
          {"apiGroups", {group}},
          {"apiVersions", {version}},
          {"resources", resources},
          {"scope", scope}};
}

std::string ConcernsGate(const WantedWebhook& wanted) {
  std::string condition =
      fmt::format("object.spec.schedulerName == {}", Quoted(wanted.scheduler_name));
  if (!wanted.gates) {
    condition = fmt::format(
        "({} && (has(object.spec.nodeName) || !has(object.metadata.ownerReferences) || "
        "(has(object.metadata.annotations) && "
        "object.metadata.annotations.exists(a, a.startsWith(\"muster.dev/\")))))",
        condition);
  }
  if (wanted.guards_queues) {
    fmt::format_to(std::back_inserter(condition),
                   " || (!has(object.metadata.ownerReferences) && has(object.metadata.labels) && "
                   "{} in object.metadata.labels)",
                   Quoted(kube::kQueueLabel));
  }
  return condition;
}

// Without its clientConfig.
Json Gate(const WantedWebhook& wanted) {
  return {{"name", "admission.muster.dev"},
          {"rules", Json::array({Rule({"CREATE"}, "", "v1", {"pods"}, "Namespaced")})},
          {"matchConditions", Json::array({Condition("concerns-muster", ConcernsGate(wanted))})},
          {"failurePolicy", "Fail"},
          {"matchPolicy", "Equivalent"},
          {"sideEffects", "None"},
          {"timeoutSeconds", 10},
          {"reinvocationPolicy", "IfNeeded"},
          {"admissionReviewVersions", {"v1"}}};
}

// Muster's own account, and whoever else runs beside it, reads no warnings either: it resumes jobs.
std::string IsAnother(const WantedWebhook& wanted) {
  if (!wanted.service) return "";
  return fmt::format(" && !(has(request.userInfo.groups) && {} in request.userInfo.groups)",
                     Quoted("system:serviceaccounts:" + wanted.service->name_space));
}

// Without its clientConfig.
Json Warnings(const WantedWebhook& wanted) {
  Json rules = Json::array();
  for (const Applied& applied : AppliedKinds()) {
    rules.push_back(Rule({"CREATE", "UPDATE"}, applied.group, "*", applied.resources, "*"));
  }
  return {{"name", "warnings.muster.dev"},
          {"rules", std::move(rules)},
          {"matchConditions",
           // Of a change of labels or of the status there is nothing new to say, and who makes
           // objects for others reads no warnings. One condition, since the API server evaluates
           // each of several for every write, and most writes are those of the status.
           Json::array({Condition(
               "applied-for-this-scheduler",
               fmt::format("(request.operation == \"CREATE\" || "
                           "object.metadata.generation != oldObject.metadata.generation) && "
                           "!has(object.metadata.ownerReferences) && ({}){}",
                           NamesScheduler(wanted.scheduler_name), IsAnother(wanted)))})},
          {"failurePolicy", "Ignore"},
          {"matchPolicy", "Exact"},
          {"sideEffects", "None"},
          {"timeoutSeconds", 2},
          {"admissionReviewVersions", {"v1"}}};
}

Json Webhook(const WantedWebhook& wanted, const std::string& ca_bundle) {
  Json webhook = wanted.purpose == WebhookPurpose::kGate ? Gate(wanted) : Warnings(wanted);
  webhook["clientConfig"] = Target(wanted);
  webhook["clientConfig"]["caBundle"] = absl::Base64Escape(ca_bundle);
  return webhook;
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

// By its conditions, for which 0.1 had another name, or of warnings another expression.
bool IsOfVersionBefore(const Json& found, const WantedWebhook& wanted) {
  if (!wanted.service) return false;
  const Json& conditions = Field(found, "matchConditions");
  if (wanted.purpose == WebhookPurpose::kWarnings) {
    WantedWebhook before = wanted;
    before.service.reset();
    return conditions == Warnings(before)["matchConditions"];
  }
  for (const Json& condition : conditions) {
    if (Text(Field(condition, "name")) == "scheduler-name") return true;
  }
  return false;
}

std::string Patch(const FoundWebhook& found, Json webhooks, const std::string& install = "") {
  Json patch = {{"metadata", {{"resourceVersion", found.resource_version}}},
                {"webhooks", std::move(webhooks)}};
  if (!install.empty()) patch["metadata"]["annotations"][kInstallAnnotation] = install;
  return patch.dump(-1, ' ', true);
}

std::string InstallOf(const Json& object) {
  return Text(Field(Field(Field(object, "metadata"), "annotations"), kInstallAnnotation.data()));
}

std::string OtherInstall(const Json& object, const WantedWebhook& wanted) {
  if (wanted.install.empty()) return "";
  std::string install = InstallOf(object);
  if (install.empty()) {
    const Json& webhooks = Field(object, "webhooks");
    if (!webhooks.is_array() || webhooks.size() != 1) return "";
    const Json& service = Field(Field(webhooks[0], "clientConfig"), "service");
    const std::string name_space = Text(Field(service, "namespace"));
    if (service.is_null() || (wanted.service && wanted.service->name_space == name_space))
      return "";
    install = fmt::format("Service {}/{}", name_space, Text(Field(service, "name")));
  }
  if (install == wanted.install) return "";
  const WebhookObject& registered = ObjectFor(wanted.purpose);
  return fmt::format(
      "{} {} is of install {}, and this is {}: one alone may serve schedulerName {}; take one of "
      "them out (muster uninstall), or apply the manifests of the one that is to stay",
      registered.kind, registered.name, install, wanted.install, wanted.scheduler_name);
}

std::string BundleFor(const FoundWebhook& found, const WantedWebhook& wanted, absl::Time now) {
  if (!wanted.service) return wanted.ca_bundle;
  return JoinBundles(found.ca_bundle, wanted.ca_bundle, now, kMaxAuthorities);
}

}  // namespace

const WebhookObject& ObjectFor(WebhookPurpose purpose) {
  return purpose == WebhookPurpose::kGate ? kGateObject : kWarningsObject;
}

absl::StatusOr<FoundWebhook> InspectWebhook(const std::string& json, const WantedWebhook& wanted) {
  const Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  FoundWebhook found;
  found.resource_version = Text(Field(Field(object, "metadata"), "resourceVersion"));
  if (found.resource_version.empty()) {
    return absl::InvalidArgumentError(fmt::format("{}: the answer has no metadata.resourceVersion",
                                                  ObjectFor(wanted.purpose).name));
  }
  found.other_install = OtherInstall(object, wanted);
  const Json& webhooks = Field(object, "webhooks");
  const size_t entries = webhooks.is_array() ? webhooks.size() : 0;
  const size_t want = wanted.enabled ? 1 : 0;
  if (entries != want) {
    found.difference = fmt::format("webhooks has {} entries, want {}", entries, want);
    found.bundle_difference = wanted.enabled ? found.difference : "";
  }
  if (entries != 1 || !wanted.enabled) return found;
  const Json& webhook = webhooks[0];
  const Json& client = Field(webhook, "clientConfig");
  absl::Base64Unescape(Text(Field(client, "caBundle")), &found.ca_bundle);
  if (client.is_object()) found.webhooks = webhooks.dump(-1, ' ', true);
  found.bundle_difference = BundleDifference(found.ca_bundle, wanted);
  found.of_version_before = IsOfVersionBefore(webhook, wanted);
  found.difference = TargetDifference(client, wanted);
  if (found.difference.empty()) found.difference = WebhookDifference(webhook, wanted);
  if (found.difference.empty()) found.difference = found.bundle_difference;
  // Of a Service the object is the chart's.
  if (found.difference.empty() && !wanted.service) {
    found.difference = DifferenceIn(fmt::format("metadata.annotations.{}", kInstallAnnotation),
                                    InstallOf(object), wanted.install);
  }
  return found;
}

std::string NewWebhook(const WantedWebhook& wanted) {
  const WebhookObject& object = ObjectFor(wanted.purpose);
  Json json = {
      {"apiVersion", "admissionregistration.k8s.io/v1"},
      {"kind", object.kind},
      {"metadata", {{"name", object.name}, {"labels", {{"app.kubernetes.io/part-of", "muster"}}}}},
      {"webhooks", Json::array({Webhook(wanted, wanted.ca_bundle)})}};
  if (!wanted.install.empty()) json["metadata"]["annotations"][kInstallAnnotation] = wanted.install;
  return json.dump(-1, ' ', true);
}

std::string RepairPatch(const FoundWebhook& found, const WantedWebhook& wanted, absl::Time now) {
  if (!wanted.enabled) return Patch(found, Json::array());
  return Patch(found, Json::array({Webhook(wanted, BundleFor(found, wanted, now))}),
               wanted.install);
}

std::string BundlePatch(const FoundWebhook& found, const WantedWebhook& wanted, absl::Time now) {
  Json webhook = Json::parse(found.webhooks)[0];
  webhook["clientConfig"]["caBundle"] = absl::Base64Escape(BundleFor(found, wanted, now));
  return Patch(found, Json::array({std::move(webhook)}));
}

}  // namespace muster::extender
