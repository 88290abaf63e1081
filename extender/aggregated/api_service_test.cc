#include "extender/aggregated/api_service.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "extender/admission/ca_bundle.h"
#include "extender/admission/certificates.h"
#include "kube/client/fake_transport.h"

namespace muster::extender {
namespace {

using nlohmann::json;

const absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);

std::string Authority() { return IssueAuthority(absl::Hours(24), kStart).value().chain; }

std::string Object(const std::string& bundle) {
  json object = {{"metadata", {{"resourceVersion", "5"}}}, {"spec", {{"group", "g"}}}};
  if (!bundle.empty()) object["spec"]["caBundle"] = absl::Base64Escape(bundle);
  return object.dump();
}

class ApiServiceTest : public ::testing::Test {
 protected:
  size_t sent() const { return transport_.sent.size(); }
  void Answer(int status, const std::string& body) {
    transport_.sent.back()->Answer(status, body);
    service_.Tick(now_);
  }
  std::string Patched() {
    const json patch = json::parse(transport_.sent.back()->request.body);
    EXPECT_EQ(patch["metadata"]["resourceVersion"], "5");
    EXPECT_EQ(patch["spec"].size(), 1u);
    std::string bundle;
    EXPECT_TRUE(absl::Base64Unescape(patch["spec"]["caBundle"].get<std::string>(), &bundle));
    return bundle;
  }

  absl::Time now_ = kStart;
  kube::FakeTransport transport_;
  ApiService service_{transport_};
};

TEST_F(ApiServiceTest, AddsItsAuthorityToThoseOfOthers) {
  const std::string own = Authority();
  const std::string other = Authority();
  service_.Tick(now_);
  EXPECT_EQ(sent(), 0u) << "there is nothing to add yet";
  service_.SetCaBundle(own);
  service_.Tick(now_);
  ASSERT_EQ(sent(), 1u);
  EXPECT_EQ(transport_.sent[0]->request.path,
            "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.visibility.muster.dev");
  Answer(200, Object(other));
  ASSERT_EQ(sent(), 2u);
  EXPECT_EQ(transport_.sent[1]->request.method, kube::Method::kPatch);
  const std::string bundle = Patched();
  EXPECT_TRUE(BundleContains(bundle, own));
  EXPECT_TRUE(BundleContains(bundle, other));
  Answer(200, Object(bundle));
  EXPECT_EQ(sent(), 2u);
  service_.Tick(now_ += absl::Seconds(30));
  EXPECT_EQ(sent(), 3u);
  Answer(200, Object(bundle));
  EXPECT_EQ(sent(), 3u);
}

TEST_F(ApiServiceTest, ANewAuthorityIsAddedAtOnce) {
  const std::string first = Authority();
  service_.SetCaBundle(first);
  service_.Tick(now_);
  Answer(200, Object(first));
  ASSERT_EQ(sent(), 1u);
  service_.SetCaBundle(first + Authority());
  service_.Tick(now_);
  ASSERT_EQ(sent(), 2u);
  Answer(200, Object(first));
  EXPECT_EQ(sent(), 3u);
}

TEST_F(ApiServiceTest, WhereThereIsNoneNoneIsMade) {
  service_.SetCaBundle(Authority());
  service_.Tick(now_);
  Answer(404, "{}");
  EXPECT_EQ(sent(), 1u);
  service_.Tick(now_ += absl::Seconds(5));
  EXPECT_EQ(sent(), 1u);
  service_.Tick(now_ += absl::Seconds(25));
  EXPECT_EQ(sent(), 2u);
}

TEST_F(ApiServiceTest, AConflictIsLookedAtAgainAndAFailureLater) {
  service_.SetCaBundle(Authority());
  service_.Tick(now_);
  Answer(200, Object(""));
  ASSERT_EQ(sent(), 2u);
  Answer(409, "{}");
  ASSERT_EQ(sent(), 3u);
  EXPECT_EQ(transport_.sent.back()->request.method, kube::Method::kGet);
  Answer(403, "{}");
  EXPECT_EQ(sent(), 3u);
  service_.Tick(now_ += absl::Seconds(5));
  ASSERT_EQ(sent(), 4u);
  Answer(200, "no object");
  EXPECT_EQ(sent(), 4u);
}

}  // namespace
}  // namespace muster::extender
