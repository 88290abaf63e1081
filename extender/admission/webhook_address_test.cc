#include "extender/admission/webhook_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::extender {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(WebhookAddress, AnAddressOfItsOwnIsRegisteredAsItIs) {
  EXPECT_EQ(WebhookUrl("127.0.0.1", 9443), "https://127.0.0.1:9443/mutate-pods");
  EXPECT_EQ(WebhookUrl("10.1.2.3", 443), "https://10.1.2.3:443/mutate-pods");
  EXPECT_EQ(WebhookUrl("fd00::7", 9443), "https://[fd00::7]:9443/mutate-pods");
  EXPECT_THAT(NamesForUrl("fd00::7").ips, ElementsAre("fd00::7"));
}

TEST(WebhookAddress, EveryAddressIsRegisteredAsLoopbackOfItsFamily) {
  EXPECT_EQ(WebhookUrl("0.0.0.0", 9443), "https://127.0.0.1:9443/mutate-pods");
  for (const char* any : {"::", "0::0", "0:0:0:0:0:0:0:0"}) {
    EXPECT_EQ(WebhookUrl(any, 9443), "https://[::1]:9443/mutate-pods") << any;
    EXPECT_THAT(NamesForUrl(any).ips, ElementsAre("::1")) << any;
  }
  EXPECT_THAT(NamesForUrl("0.0.0.0").ips, ElementsAre("127.0.0.1"));
  EXPECT_THAT(NamesForUrl("0.0.0.0").dns, IsEmpty());
}

TEST(WebhookAddress, OnlyRealAddressesAreReachableFromElsewhere) {
  for (const char* here : {"0.0.0.0", "127.0.0.1", "127.8.0.1", "::", "::1"}) {
    EXPECT_TRUE(IsReachableFromItsHostOnly(here)) << here;
  }
  for (const char* there : {"10.0.0.1", "128.0.0.1", "fd00::1", "::2"}) {
    EXPECT_FALSE(IsReachableFromItsHostOnly(there)) << there;
  }
}

TEST(WebhookAddress, AServiceHasTheOneNameThatTheApiServerUses) {
  const CertificateNames names =
      NamesForService({.name_space = "muster-system", .name = "muster-webhook"});
  EXPECT_THAT(names.dns, ElementsAre("muster-webhook.muster-system.svc"));
  EXPECT_THAT(names.ips, IsEmpty());
}

}  // namespace
}  // namespace muster::extender
