// Where the API server is told to call the webhook, and the names its certificate needs for that.
#pragma once

#include <cstdint>
#include <string>

#include "extender/admission/certificates.h"
#include "extender/admission/webhook_configuration.h"

namespace muster::extender {

// True for an address that only its own host can call: loopback, or "every address" ("0.0.0.0",
// "::"), which names no host at all. `host` is an IP address without brackets.
bool IsReachableFromItsHostOnly(const std::string& host);

// The address by which what listens at `host` can be called: "every address" becomes loopback of
// the same family, any other stays.
std::string CallableHost(const std::string& host);

// "https://127.0.0.1:9443/mutate-pods" for what listens at this IP address and port.
std::string WebhookUrl(const std::string& host, uint16_t port);

// The certificate's names for a webhook called by WebhookUrl.
CertificateNames NamesForUrl(const std::string& host);
// The API server calls a Service as <name>.<namespace>.svc, whatever the cluster's domain is
// (k8s.io/apiserver v0.34.2, pkg/util/webhook/client.go).
CertificateNames NamesForService(const WebhookService& service);

}  // namespace muster::extender
