// The two registrations: what each has to say, and whether it says so. Each has one webhook.
//
// MutatingWebhookConfiguration muster-admission, the gate, is called for pods with our
// schedulerName that are being created, where quota is ours to give for those without an owner that
// name a queue, and for no others (matchConditions), so that an absent Muster keeps nobody else's
// pods out.
//
// ValidatingWebhookConfiguration muster-warnings is called for what people apply themselves
// (objects without an owner): jobs and pods that name our schedulerName, and kinds that say nothing
// of a scheduler. It is an object of its own, and nothing depends on it: its failurePolicy is
// Ignore, it is given two seconds, and the API server converts nothing for it (matchPolicy Exact).
//
// Each says of which install it is, by the Lease that its replicas share, in an annotation that
// only administrators and Muster write: a second Muster finds out there that it is one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::extender {

enum class WebhookPurpose { kGate, kWarnings };

// The object that registers a webhook, and where it is on the API server.
struct WebhookObject {
  const char* kind;
  const char* resource;
  const char* name;
  const char* collection;  // the path; one object's is below it
};
const WebhookObject& ObjectFor(WebhookPurpose purpose);

struct WebhookService {
  std::string name_space;
  std::string name;
  int port = 443;

  friend bool operator==(const WebhookService&, const WebhookService&) = default;
};

inline constexpr std::string_view kInstallAnnotation = "muster.dev/install";

struct WantedWebhook {
  std::string scheduler_name;
  // Where the API server calls: the Service if given, else the URL.
  std::optional<WebhookService> service;
  std::string url;
  // The authorities that it needs, PEM. A Service has several replicas, so other authorities may
  // stand beside ours; a URL is one process, and only ours may.
  std::string ca_bundle;
  WebhookPurpose purpose = WebhookPurpose::kGate;
  // False: an object that is there is to have no webhooks, so that nobody is called; none is made.
  bool enabled = true;
  bool guards_queues = false;  // GateOptions
  // Pods of ours are gated. Else the API server needn't ask about those that a controller makes
  // without a node and without Muster's annotations.
  bool gates = true;
  std::string install = {};  // NAMESPACE/NAME of the Lease; empty: any
};

// The object as it was found.
struct FoundWebhook {
  std::string resource_version;
  std::string ca_bundle;  // PEM, of the webhook that calls us; empty if there is none
  // The first thing that is not as wanted: "webhooks[0].failurePolicy is "Ignore", want "Fail"".
  // Empty if nothing is.
  std::string difference;
  // What of that is the caBundle lacking our authorities or, of a URL, having others.
  std::string bundle_difference;
  std::string webhooks;  // JSON, one entry with a clientConfig; empty if there is none
  // It calls a Service, and is as version 0.1 registered it by itself, alone or merged with the
  // chart's: no manifests make it right.
  bool of_version_before = false;
  // Why it isn't of this install; empty if it is. One that doesn't say is of that whose Service it
  // calls.
  std::string other_install;
};

// InvalidArgument for what is no such object.
absl::StatusOr<FoundWebhook> InspectWebhook(const std::string& json, const WantedWebhook& wanted);

// The object to create.
std::string NewWebhook(const WantedWebhook& wanted);

// A merge patch that makes the found object say what is wanted, if nobody has changed it since.
// Authorities of other replicas stay, except those that have expired and, beyond sixteen in all,
// the ones that were added first.
std::string RepairPatch(const FoundWebhook& found, const WantedWebhook& wanted, absl::Time now);

// The same for the authorities alone; everything else stays as it was found. `found.webhooks` must
// not be empty.
std::string BundlePatch(const FoundWebhook& found, const WantedWebhook& wanted, absl::Time now);

}  // namespace muster::extender
