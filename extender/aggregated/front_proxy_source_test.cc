#include "extender/aggregated/front_proxy_source.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kube/client/fake_transport.h"
#include "kube/client/test_certificates.h"

namespace muster::extender {
namespace {

using nlohmann::json;

std::string ConfigMap() {
  return json{{"data",
               {{"requestheader-client-ca-file", kube::MakeTestAuthority("a").certificate_pem},
                {"requestheader-username-headers", R"(["X-Remote-User"])"}}}}
      .dump();
}

TEST(FrontProxySource, ReadsAtOnceAndEveryMinute) {
  absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  kube::FakeTransport transport;
  FrontProxy proxy;
  FrontProxySource source(transport, proxy);
  source.Tick(now);
  source.Tick(now);
  ASSERT_EQ(transport.sent.size(), 1u);
  EXPECT_EQ(transport.sent[0]->request.path,
            "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication");
  transport.sent[0]->Answer(200, ConfigMap());
  source.Tick(now);
  EXPECT_TRUE(proxy.IsKnown());
  source.Tick(now += absl::Seconds(59));
  EXPECT_EQ(transport.sent.size(), 1u);
  source.Tick(now += absl::Seconds(1));
  EXPECT_EQ(transport.sent.size(), 2u);
}

TEST(FrontProxySource, AFailureIsTriedAgainAndForgetsNothing) {
  absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  kube::FakeTransport transport;
  FrontProxy proxy;
  FrontProxySource source(transport, proxy);
  source.Tick(now);
  transport.sent.back()->Answer(403, "{}");
  source.Tick(now);
  EXPECT_FALSE(proxy.IsKnown());
  source.Tick(now += absl::Seconds(5));
  ASSERT_EQ(transport.sent.size(), 2u);
  transport.sent.back()->Answer(200, ConfigMap());
  source.Tick(now);
  ASSERT_TRUE(proxy.IsKnown());
  source.Tick(now += absl::Minutes(1));
  transport.sent.back()->Answer(absl::UnavailableError("away"));
  source.Tick(now);
  EXPECT_TRUE(proxy.IsKnown());
  source.Tick(now += absl::Seconds(5));
  transport.sent.back()->Answer(200, "{}");
  source.Tick(now);
  EXPECT_TRUE(proxy.IsKnown());
}

}  // namespace
}  // namespace muster::extender
