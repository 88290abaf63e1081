#include "extender/admission/webhook_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include "extender/admission/webhook.h"

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

bool IsReachableFromItsHostOnly(const std::string& host) {
  const Ip ip = Classify(host);
  return ip.unspecified || ip.loopback;
}

std::string CallableHost(const std::string& host) {
  const Ip ip = Classify(host);
  if (!ip.unspecified) return host;
  return ip.v6 ? "::1" : "127.0.0.1";
}

std::string WebhookUrl(const std::string& host, uint16_t port) {
  const std::string callable = CallableHost(host);
  const bool v6 = Classify(callable).v6;
  return fmt::format("https://{}{}{}:{}{}", v6 ? "[" : "", callable, v6 ? "]" : "", port,
                     kMutatePodsPath);
}

CertificateNames NamesForUrl(const std::string& host) { return {{}, {CallableHost(host)}}; }

CertificateNames NamesForService(const WebhookService& service) {
  return {{fmt::format("{}.{}.svc", service.name, service.name_space)}, {}};
}

}  // namespace muster::extender
