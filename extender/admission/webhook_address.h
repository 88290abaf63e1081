// Where the API server is told to call the webhook, and the names its certificate needs for that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "extender/admission/certificates.h"
#include "extender/admission/webhook_configuration.h"

namespace muster::extender {

// The Service to register, if any. `configured` is what the configuration says, "" for what it
// leaves out; `host` is the IP address listened at, without brackets; `pod_namespace` is given if
// this process is a pod of the cluster that it serves.
//
// A Service without a namespace is in the pod's. In a pod that listens at loopback or at every
// address there must be one: a URL would name the API server's own host. InvalidArgument naming the
// field that is missing.
absl::StatusOr<std::optional<WebhookService>> ServiceToRegister(
    WebhookService configured, const std::string& host,
    const std::optional<std::string>& pod_namespace);

// The address by which what listens at `host` can be called: "every address" becomes loopback of
// the same family, any other stays.
std::string CallableHost(const std::string& host);

// "https://127.0.0.1:9443/mutate-pods" for that path of what listens at this IP address and port.
std::string WebhookUrl(const std::string& host, uint16_t port, std::string_view path);

// The certificate's names for a webhook called by WebhookUrl.
CertificateNames NamesForUrl(const std::string& host);
// The API server calls a Service as <name>.<namespace>.svc, whatever the cluster's domain is
// (k8s.io/apiserver v0.34.2, pkg/util/webhook/client.go).
CertificateNames NamesForService(const WebhookService& service);

}  // namespace muster::extender
