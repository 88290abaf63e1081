#include "extender/admission/webhook_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "extender/admission/ca_bundle.h"
#include "extender/admission/testing/certificate_folder.h"
#include "extender/admission/testing/https_client.h"
#include "extender/admission/webhook.h"
#include "http/testing/raw_client.h"

namespace muster::extender {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr const char* kService = "muster-webhook.muster-system.svc";
constexpr const char* kReview = R"({"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",
  "request":{"uid":"u1","operation":"CREATE",
    "resource":{"group":"","version":"v1","resource":"pods"},
    "object":{"spec":{"schedulerName":"coscheduling"}}}})";

WebhookServerOptions Options() {
  WebhookServerOptions options;
  options.listen = "127.0.0.1:0";
  options.certificates.names = {{kService}, {"127.0.0.1"}};
  return options;
}

std::unique_ptr<WebhookServer> StartServer(WebhookServerOptions options, absl::Time now) {
  absl::StatusOr<std::unique_ptr<WebhookServer>> server =
      WebhookServer::Start(std::move(options), now);
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

absl::StatusOr<HttpsAnswer> Ask(const WebhookServer& server, const std::string& bundle,
                                const std::string& name = kService,
                                const std::string& body = kReview) {
  return HttpsPost(name, server.port(), bundle, std::string(kMutatePodsPath) + "?timeout=10s",
                   body);
}

std::string TlsFault(const absl::StatusOr<HttpsAnswer>& answer) {
  return answer.ok() ? "trusted" : std::string(answer.status().message());
}

TEST(WebhookServer, IsTrustedByItsBundleUnderEachOfItsNames) {
  const auto server = StartServer(Options(), absl::Now());
  for (const char* name : {kService, "127.0.0.1"}) {
    const absl::StatusOr<HttpsAnswer> answer = Ask(*server, server->CaBundlePem(), name);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->status, 200);
    EXPECT_THAT(answer->body, AllOf(HasSubstr(R"("uid":"u1")"), HasSubstr("JSONPatch")));
  }
}

TEST(WebhookServer, IdleConnectionsOfOthersDoNotCloseTheGate) {
  const auto server = StartServer(Options(), absl::Now());
  ASSERT_TRUE(http::AllowManyConnections());
  std::vector<std::unique_ptr<http::RawClient>> idle;
  for (int i = 0; i < 2'500; ++i) {
    const std::string peer = "127.0.0." + std::to_string(2 + i % 6);
    idle.push_back(std::make_unique<http::RawClient>(server->port(), peer.c_str()));
  }
  for (int i = 0; i < 5; ++i) {
    const absl::StatusOr<HttpsAnswer> answer = Ask(*server, server->CaBundlePem());
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->status, 200);
  }
  EXPECT_EQ(server->connection_counts().turned_away, 0u);
  EXPECT_LE(server->connection_counts().open, 2'048u);
}

TEST(WebhookServer, IsNotTrustedByAnotherAuthorityOrUnderAnotherName) {
  const auto server = StartServer(Options(), absl::Now());
  const std::string other = IssueAuthority(kDay, absl::Now()).value().chain;
  EXPECT_THAT(TlsFault(Ask(*server, other)), HasSubstr("unable to get local issuer certificate"));
  EXPECT_THAT(TlsFault(Ask(*server, server->CaBundlePem(), "muster-webhook.other.svc")),
              AnyOf(HasSubstr("no alternative certificate subject name matches")));
}

TEST(WebhookServer, RefusesBadReviewsWithTheField) {
  const auto server = StartServer(Options(), absl::Now());
  const auto answer = Ask(*server, server->CaBundlePem(), kService, R"({"kind":"Pod"})");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 400);
  EXPECT_THAT(answer->body, HasSubstr("apiVersion: want \"admission.k8s.io/v1\", got nothing"));
  const auto oversize =
      Ask(*server, server->CaBundlePem(), kService, std::string(kMaxReviewBytes + 1, ' '));
  ASSERT_TRUE(oversize.ok()) << oversize.status();
  EXPECT_EQ(oversize->status, 413);
}

TEST(WebhookServer, ExpiredCertificateIsRefusedUntilItIsRotated) {
  // Made an hour ago for half an hour, by a process that then stood still.
  WebhookServerOptions options = Options();
  options.certificates.certificate_validity = absl::Minutes(30);
  const auto server = StartServer(std::move(options), absl::Now() - absl::Hours(1));
  const std::string bundle = server->CaBundlePem();
  EXPECT_THAT(TlsFault(Ask(*server, bundle)), HasSubstr("certificate has expired"));
  EXPECT_FALSE(server->Health(absl::Now()).ok());
  server->Tick(absl::Now());
  EXPECT_EQ(TlsFault(Ask(*server, bundle)), "trusted");
  EXPECT_TRUE(server->Health(absl::Now()).ok());
}

TEST(WebhookServer, IsTrustedBeforeDuringAndAfterAChangeOfAuthority) {
  const absl::Time start = absl::Now() - 300 * kDay;
  WebhookServerOptions options = Options();
  options.certificates.certificate_validity = 365 * kDay;
  const auto server = StartServer(std::move(options), start);
  const std::string before = server->CaBundlePem();
  EXPECT_EQ(TlsFault(Ask(*server, before)), "trusted");

  server->Tick(absl::Now());
  const std::string during = server->CaBundlePem();
  EXPECT_FALSE(SameBundle(before, during));
  EXPECT_EQ(TlsFault(Ask(*server, before)), "trusted");
  EXPECT_EQ(TlsFault(Ask(*server, during)), "trusted");

  server->SetTrusted(during);
  server->Tick(absl::Now());
  server->Tick(absl::Now() + absl::Minutes(1));
  const std::string after = server->CaBundlePem();
  EXPECT_EQ(TlsFault(Ask(*server, during)), "trusted");
  EXPECT_EQ(TlsFault(Ask(*server, after)), "trusted");
  EXPECT_NE(TlsFault(Ask(*server, before)), "trusted");
}

TEST(WebhookServer, ServesGivenFilesAndTheirSuccessors) {
  const absl::Time now = absl::Now();
  WebhookServerOptions options = Options();
  const KeyedCertificate authority = IssueAuthority(kDay, now).value();
  CertificateFolder folder;
  folder.WriteIssued(options.certificates.names, authority, absl::Hours(1), now);
  options.certificates.files = folder.files();
  const auto server = StartServer(std::move(options), now);
  EXPECT_EQ(TlsFault(Ask(*server, authority.chain)), "trusted");
  const absl::Time expires = server->certificate_expires();
  folder.WriteIssued({{kService}, {"127.0.0.1"}}, authority, absl::Hours(5), now);
  server->Tick(now + absl::Seconds(11));
  EXPECT_EQ(server->certificate_expires(), expires + absl::Hours(4));
  EXPECT_EQ(TlsFault(Ask(*server, authority.chain)), "trusted");
}

TEST(WebhookServer, SaysWhyItCannotStart) {
  WebhookServerOptions no_names = Options();
  no_names.certificates.names = {};
  EXPECT_THAT(
      std::string(WebhookServer::Start(std::move(no_names), absl::Now()).status().message()),
      HasSubstr("names are empty"));
  WebhookServerOptions bad_address = Options();
  bad_address.listen = "nowhere";
  EXPECT_THAT(
      std::string(WebhookServer::Start(std::move(bad_address), absl::Now()).status().message()),
      HasSubstr("nowhere"));
}

}  // namespace
}  // namespace muster::extender
