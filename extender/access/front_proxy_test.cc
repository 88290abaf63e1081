#include "extender/access/front_proxy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/x509.h>

#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "extender/admission/certificates.h"
#include "extender/admission/openssl_handles.h"
#include "kube/client/test_certificates.h"

namespace muster::extender {
namespace {

using kube::MakeTestAuthority;
using kube::MakeTestCertificate;
using kube::TestCertificate;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

json ConfigMap(const TestCertificate& authority) {
  return {{"kind", "ConfigMap"},
          {"data",
           {{"client-ca-file", "of users"},
            {"requestheader-client-ca-file", authority.certificate_pem},
            {"requestheader-allowed-names", R"(["front-proxy-client"])"},
            {"requestheader-username-headers", R"(["X-Remote-User"])"},
            {"requestheader-uid-headers", R"(["X-Remote-Uid"])"},
            {"requestheader-group-headers", R"(["X-Remote-Group"])"},
            {"requestheader-extra-headers-prefix", R"(["X-Remote-Extra-"])"}}}};
}

std::shared_ptr<const std::vector<std::string>> Shown(const std::string& pem) {
  auto shown = std::make_shared<std::vector<std::string>>();
  for (const X509Handle& certificate : ReadCertificates(pem)) {
    unsigned char* der = nullptr;
    const int size = i2d_X509(certificate.get(), &der);
    shown->emplace_back(reinterpret_cast<const char*>(der), size);
    OPENSSL_free(der);
  }
  return shown;
}

http::Request RequestOf(const std::string& pem) {
  http::Request request;
  request.headers = {{"X-Remote-User", "anna"},
                     {"x-remote-group", "team"},
                     {"X-Remote-Group", ""},
                     {"X-Remote-Group", "system:authenticated"},
                     {"X-Remote-Uid", "7"},
                     {"X-Remote-Extra-Example.org%2FScope", "a"},
                     {"x-remote-extra-example.org%2fscope", "b"},
                     {"X-Remote-Extra-Bad%zz", "c"},
                     {"X-Remote-Users", "root"}};
  if (!pem.empty()) request.client_certificates = Shown(pem);
  return request;
}

class FrontProxyTest : public ::testing::Test {
 protected:
  FrontProxyTest() { proxy_.Trust(*ReadFrontProxyConfig(ConfigMap(authority_).dump())); }
  std::string Named(const std::string& name, const TestCertificate& authority) {
    return MakeTestCertificate(name, "", authority).certificate_pem;
  }
  absl::Status Refusal(const std::string& pem, absl::Time now = absl::Now()) {
    return proxy_.CallerOf(RequestOf(pem), now).status();
  }

  const TestCertificate authority_ = MakeTestAuthority("front-proxy-ca");
  FrontProxy proxy_;
};

TEST_F(FrontProxyTest, TheApiServerSaysWhoAsks) {
  const auto found =
      proxy_.CallerOf(RequestOf(Named("front-proxy-client", authority_)), absl::Now());
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(found->has_value());
  const Caller& anna = **found;
  EXPECT_EQ(anna.user, "anna");
  EXPECT_EQ(anna.uid, "7");
  EXPECT_THAT(anna.groups, ElementsAre("team", "system:authenticated"));
  ASSERT_EQ(anna.extra.size(), 2u);
  EXPECT_THAT(anna.extra.at("example.org/scope"), ElementsAre("a", "b"));
  EXPECT_THAT(anna.extra.at("bad%zz"), ElementsAre("c"));
}

// Whoever reaches the port can write headers.
TEST_F(FrontProxyTest, WithoutACertificateHeadersAreNobodysWord) {
  const auto found = proxy_.CallerOf(RequestOf(""), absl::Now());
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->has_value());
}

TEST_F(FrontProxyTest, AnothersCertificateIsRefused) {
  const TestCertificate other = MakeTestAuthority("front-proxy-ca");
  EXPECT_TRUE(absl::IsUnauthenticated(Refusal(Named("front-proxy-client", other))));
  // Of the right authority, for somebody else.
  EXPECT_TRUE(absl::IsUnauthenticated(Refusal(Named("kubelet", authority_))));
  EXPECT_TRUE(absl::IsUnauthenticated(Refusal(Named("", authority_))));
  // The authority's own, too, has another name.
  EXPECT_TRUE(absl::IsUnauthenticated(Refusal(authority_.certificate_pem)));
}

TEST_F(FrontProxyTest, AnExpiredCertificateIsRefused) {
  const std::string pem = Named("front-proxy-client", authority_);
  EXPECT_TRUE(Refusal(pem).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(Refusal(pem, absl::Now() + absl::Hours(2))));
  EXPECT_TRUE(absl::IsUnauthenticated(Refusal(pem, absl::Now() - absl::Hours(2))));
}

TEST_F(FrontProxyTest, AServersCertificateIsNoClients) {
  const absl::Time now = absl::Now();
  const KeyedCertificate authority = *IssueAuthority(absl::Hours(1), now);
  json map = ConfigMap(authority_);
  map["data"]["requestheader-client-ca-file"] = authority.chain;
  map["data"]["requestheader-allowed-names"] = "[]";
  proxy_.Trust(*ReadFrontProxyConfig(map.dump()));
  const KeyedCertificate server =
      *IssueServingCertificate({{"localhost"}, {}}, authority, absl::Hours(1), now);
  EXPECT_TRUE(absl::IsUnauthenticated(Refusal(server.chain)));
}

TEST_F(FrontProxyTest, WithoutNamesWhateverItsAuthoritySignedIsTheApiServer) {
  json map = ConfigMap(authority_);
  map["data"]["requestheader-allowed-names"] = "[]";
  proxy_.Trust(*ReadFrontProxyConfig(map.dump()));
  EXPECT_TRUE(Refusal(Named("anything", authority_)).ok());
  EXPECT_FALSE(Refusal(Named("anything", MakeTestAuthority("other"))).ok());
}

TEST_F(FrontProxyTest, ANewAuthorityTakesTheOldOnesPlace) {
  const TestCertificate next = MakeTestAuthority("front-proxy-ca-2");
  proxy_.Trust(*ReadFrontProxyConfig(ConfigMap(next).dump()));
  EXPECT_TRUE(Refusal(Named("front-proxy-client", next)).ok());
  EXPECT_FALSE(Refusal(Named("front-proxy-client", authority_)).ok());
}

TEST_F(FrontProxyTest, WhoIsntNamedIsNobody) {
  http::Request request = RequestOf(Named("front-proxy-client", authority_));
  request.headers.erase(request.headers.begin());
  const auto found = proxy_.CallerOf(request, absl::Now());
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->has_value());
}

TEST(FrontProxy, UntilItIsKnownNoCertificateIsTaken) {
  const TestCertificate authority = MakeTestAuthority("a");
  FrontProxy proxy;
  EXPECT_FALSE(proxy.IsKnown());
  const std::string pem = MakeTestCertificate("front-proxy-client", "", authority).certificate_pem;
  EXPECT_TRUE(absl::IsUnavailable(proxy.CallerOf(RequestOf(pem), absl::Now()).status()));
  EXPECT_TRUE(proxy.CallerOf(RequestOf(""), absl::Now()).ok());
}

TEST(FrontProxyConfig, NeedsAnAuthorityAndAHeader) {
  const json good = ConfigMap(MakeTestAuthority("a"));
  const absl::StatusOr<FrontProxyConfig> config = ReadFrontProxyConfig(good.dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->allowed_names, ElementsAre("front-proxy-client"));
  EXPECT_THAT(config->user_headers, ElementsAre("X-Remote-User"));
  EXPECT_THAT(config->extra_prefixes, ElementsAre("X-Remote-Extra-"));
  for (const auto& [key, value] : {std::pair{"requestheader-client-ca-file", ""},
                                   std::pair{"requestheader-client-ca-file", "no PEM"},
                                   std::pair{"requestheader-username-headers", "[]"},
                                   std::pair{"requestheader-username-headers", "X-Remote-User"},
                                   std::pair{"requestheader-username-headers", R"([1, ""])"}}) {
    json bad = good;
    bad["data"][key] = value;
    EXPECT_TRUE(absl::IsFailedPrecondition(ReadFrontProxyConfig(bad.dump()).status()))
        << key << value;
  }
  for (const char* text : {"", "[]", "{}", R"({"data":[]})", R"({"data":{"a":1}})"}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(ReadFrontProxyConfig(text).status())) << text;
  }
}

}  // namespace
}  // namespace muster::extender
