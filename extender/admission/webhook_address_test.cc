#include "extender/admission/webhook_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "extender/admission/webhook.h"
#include "fmt/format.h"

namespace muster::extender {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(WebhookAddress, AnAddressOfItsOwnIsRegisteredAsItIs) {
  EXPECT_EQ(WebhookUrl("127.0.0.1", 9443, kMutatePodsPath), "https://127.0.0.1:9443/mutate-pods");
  EXPECT_EQ(WebhookUrl("10.1.2.3", 443, kMutatePodsPath), "https://10.1.2.3:443/mutate-pods");
  EXPECT_EQ(WebhookUrl("fd00::7", 9443, kMutatePodsPath), "https://[fd00::7]:9443/mutate-pods");
  EXPECT_THAT(NamesForUrl("fd00::7").ips, ElementsAre("fd00::7"));
}

TEST(WebhookAddress, EveryAddressIsRegisteredAsLoopbackOfItsFamily) {
  EXPECT_EQ(WebhookUrl("0.0.0.0", 9443, kMutatePodsPath), "https://127.0.0.1:9443/mutate-pods");
  for (const char* any : {"::", "0::0", "0:0:0:0:0:0:0:0"}) {
    EXPECT_EQ(WebhookUrl(any, 9443, kMutatePodsPath), "https://[::1]:9443/mutate-pods") << any;
    EXPECT_THAT(NamesForUrl(any).ips, ElementsAre("::1")) << any;
  }
  EXPECT_THAT(NamesForUrl("0.0.0.0").ips, ElementsAre("127.0.0.1"));
  EXPECT_THAT(NamesForUrl("0.0.0.0").dns, IsEmpty());
}

std::string ErrorOf(const WebhookService& configured, const std::string& host,
                    const std::optional<std::string>& pod_namespace) {
  const auto service = ServiceToRegister(configured, host, pod_namespace);
  return service.ok() ? "ok" : std::string(service.status().message());
}

TEST(WebhookAddress, AServiceWithoutANamespaceIsInThePods) {
  const WebhookService configured{.name_space = "", .name = "gate", .port = 8443};
  const auto service = ServiceToRegister(configured, "0.0.0.0", "muster-system").value();
  ASSERT_TRUE(service.has_value());
  EXPECT_EQ(service->name_space, "muster-system");
  EXPECT_EQ(service->name, "gate");
  EXPECT_EQ(service->port, 8443);
  EXPECT_THAT(ErrorOf(configured, "0.0.0.0", std::nullopt),
              HasSubstr("webhook.serviceNamespace: missing"));
  const auto elsewhere =
      ServiceToRegister({.name_space = "other", .name = "gate"}, "0.0.0.0", "muster-system");
  EXPECT_EQ(elsewhere.value()->name_space, "other");
}

TEST(WebhookAddress, APodNeedsAServiceUnlessItListensAtAnAddressOfItsOwn) {
  for (const char* host : {"0.0.0.0", "127.0.0.1", "127.8.0.1", "::", "::1"}) {
    EXPECT_THAT(
        ErrorOf({}, host, "muster-system"),
        HasSubstr(fmt::format("webhook.serviceName: missing; in a pod that listens at {} ", host)));
    EXPECT_EQ(ErrorOf({}, host, std::nullopt), "ok") << host;
  }
  for (const char* host : {"10.0.0.1", "128.0.0.1", "fd00::1", "::2"}) {
    EXPECT_EQ(ServiceToRegister({}, host, "muster-system").value(), std::nullopt) << host;
  }
}

TEST(WebhookAddress, ANamespaceAloneIsAMistake) {
  EXPECT_THAT(ErrorOf({.name_space = "muster-system", .name = ""}, "10.0.0.1", "muster-system"),
              HasSubstr("webhook.serviceName: missing, while webhook.serviceNamespace is given"));
}

TEST(WebhookAddress, AServiceHasTheOneNameThatTheApiServerUses) {
  const CertificateNames names =
      NamesForService({.name_space = "muster-system", .name = "muster-webhook"});
  EXPECT_THAT(names.dns, ElementsAre("muster-webhook.muster-system.svc"));
  EXPECT_THAT(names.ips, IsEmpty());
}

}  // namespace
}  // namespace muster::extender
