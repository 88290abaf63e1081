#include "extender/admission/webhook_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <utility>

#include "absl/status/status.h"

namespace muster::extender {
namespace {

struct Ip {
  bool v6 = false;
  bool unspecified = false;
  bool loopback = false;
};

Ip Classify(const std::string& host) {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    const uint32_t address = ntohl(v4.s_addr);
    return {.v6 = false, .unspecified = address == INADDR_ANY, .loopback = address >> 24 == 127};
  }
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return {};
  return {.v6 = true,
          .unspecified = IN6_IS_ADDR_UNSPECIFIED(&v6) != 0,
          .loopback = IN6_IS_ADDR_LOOPBACK(&v6) != 0};
}

}  // namespace

absl::StatusOr<std::optional<WebhookService>> ServiceToRegister(
    WebhookService configured, const std::string& host,
    const std::optional<std::string>& pod_namespace) {
  if (configured.name.empty()) {
    if (!configured.name_space.empty()) {
      return absl::InvalidArgumentError(
          "webhook.serviceName: missing, while webhook.serviceNamespace is given");
    }
    const Ip ip = Classify(host);
    if (pod_namespace && (ip.unspecified || ip.loopback)) {
      return absl::InvalidArgumentError(fmt::format(
          "webhook.serviceName: missing; in a pod that listens at {} the API server can "
          "reach the webhook through a Service only",
          host));
    }
    return std::nullopt;
  }
  if (configured.name_space.empty()) {
    if (!pod_namespace) {
      return absl::InvalidArgumentError(
          "webhook.serviceNamespace: missing; only in a pod of the cluster is there a default");
    }
    configured.name_space = *pod_namespace;
  }
  return configured;
}

std::string CallableHost(const std::string& host) {
  const Ip ip = Classify(host);
  if (!ip.unspecified) return host;
  return ip.v6 ? "::1" : "127.0.0.1";
}

std::string WebhookUrl(const std::string& host, uint16_t port, std::string_view path) {
  const std::string callable = CallableHost(host);
  const bool v6 = Classify(callable).v6;
  return fmt::format("https://{}{}{}:{}{}", v6 ? "[" : "", callable, v6 ? "]" : "", port, path);
}

CertificateNames NamesForUrl(const std::string& host) { return {{}, {CallableHost(host)}}; }

CertificateNames NamesForService(const WebhookService& service) {
  return {{fmt::format("{}.{}.svc", service.name, service.name_space)}, {}};
}

}  // namespace muster::extender
