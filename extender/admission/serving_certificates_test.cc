#include "extender/admission/serving_certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "extender/admission/ca_bundle.h"
#include "extender/admission/testing/certificate_folder.h"

namespace muster::extender {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const CertificateNames kServingNames = {{"muster-webhook.muster-system.svc"}, {}};

TEST(OwnAuthority, SignsANewCertificateWhenAThirdIsLeft) {
  ServingCertificates certificates =
      ServingCertificates::Create({.names = kServingNames}, kNow).value();
  const std::string bundle = certificates.CaBundle();
  const std::string first = certificates.serving().chain;
  EXPECT_EQ(certificates.NextTick(), kNow + 60 * kDay);
  EXPECT_FALSE(certificates.Tick(kNow + 60 * kDay - absl::Seconds(1)));
  EXPECT_TRUE(certificates.Tick(kNow + 60 * kDay));
  EXPECT_NE(certificates.serving().chain, first);
  EXPECT_EQ(certificates.serving().not_after, kNow + 150 * kDay);
  EXPECT_EQ(certificates.CaBundle(), bundle) << "the API server need not be told";
  EXPECT_FALSE(certificates.Tick(kNow + 60 * kDay));
}

// The same steps a service makes in years, in order of time.
TEST(OwnAuthority, IsReplacedOnlyOnceTheNewOneIsTrusted) {
  ServingCertificates certificates =
      ServingCertificates::Create({.names = kServingNames}, kNow).value();
  certificates.SetTrusted(certificates.CaBundle());
  const std::string old_bundle = certificates.CaBundle();
  absl::Time now = kNow;
  while (certificates.CaBundle() == old_bundle) {
    now = certificates.NextTick();
    ASSERT_LE(now, kNow + 365 * kDay);
    certificates.Tick(now);
  }
  EXPECT_EQ(now, kNow + 365 * kDay * 2 / 3);
  EXPECT_TRUE(BundleContains(certificates.CaBundle(), old_bundle));
  const std::string served = certificates.serving().chain;
  EXPECT_FALSE(certificates.Tick(now + absl::Seconds(1))) << "served though not trusted yet";
  EXPECT_EQ(certificates.serving().chain, served);

  certificates.SetTrusted(certificates.CaBundle());
  EXPECT_FALSE(certificates.Tick(now + 2 * absl::Seconds(1))) << "some API server may not know yet";
  EXPECT_EQ(certificates.NextTick(), now + 32 * absl::Seconds(1));
  EXPECT_TRUE(certificates.Tick(now + 32 * absl::Seconds(1)));
  EXPECT_NE(certificates.serving().chain, served);
  EXPECT_FALSE(BundleContains(certificates.CaBundle(), old_bundle));
  EXPECT_TRUE(certificates.Health(now + 32 * absl::Seconds(1)).ok());
}

TEST(OwnAuthority, ExpiredWhileTheProcessStoodStillIsReplacedAtOnce) {
  ServingCertificates certificates =
      ServingCertificates::Create(
          {.names = kServingNames, .certificate_validity = absl::Seconds(30)}, kNow)
          .value();
  EXPECT_THAT(std::string(certificates.Health(kNow + 31 * absl::Seconds(1)).message()),
              HasSubstr("expired at 2027-01-15T08:00:30Z"));
  EXPECT_TRUE(certificates.Tick(kNow + 31 * absl::Seconds(1)));
  EXPECT_TRUE(certificates.Health(kNow + 31 * absl::Seconds(1)).ok());

  EXPECT_TRUE(certificates.Tick(kNow + 400 * kDay)) << "authority expired too";
  EXPECT_TRUE(certificates.Health(kNow + 400 * kDay).ok());
  EXPECT_EQ(certificates.serving().not_after, kNow + 400 * kDay + absl::Seconds(30));
}

TEST(OwnAuthority, ShorterThanItsCertificatesIsNoBusyLoop) {
  ServingCertificates certificates =
      ServingCertificates::Create({.names = kServingNames, .authority_validity = absl::Hours(3)},
                                  kNow)
          .value();
  absl::Time now = kNow;
  int ticks = 0;
  while ((now = certificates.NextTick()) < kNow + absl::Hours(30)) {
    certificates.Tick(now);
    certificates.SetTrusted(certificates.CaBundle());
    ASSERT_TRUE(certificates.Health(now).ok());
    ASSERT_LT(++ticks, 40);
  }
}

class GivenFiles : public ::testing::Test {
 protected:
  void SetUp() override { folder_.WriteIssued(kServingNames, authority_, 90 * kDay, kNow); }
  ServingCertificates Create() {
    return ServingCertificates::Create({.names = kServingNames, .files = folder_.files()}, kNow)
        .value();
  }

  const KeyedCertificate authority_ = IssueAuthority(365 * kDay, kNow).value();
  CertificateFolder folder_;
};

TEST_F(GivenFiles, AreReadAgainWhenTheyChange) {
  ServingCertificates certificates = Create();
  EXPECT_EQ(certificates.CaBundle(), authority_.chain);
  EXPECT_FALSE(certificates.Tick(kNow + 10 * absl::Seconds(1)));
  folder_.WriteIssued(kServingNames, authority_, 120 * kDay, kNow);
  EXPECT_FALSE(certificates.Tick(kNow + 19 * absl::Seconds(1))) << "not every moment";
  EXPECT_TRUE(certificates.Tick(kNow + 20 * absl::Seconds(1)));
  EXPECT_EQ(certificates.serving().not_after, kNow + 120 * kDay);
}

TEST_F(GivenFiles, HalfWrittenOnesAreTriedAgainWhileTheOldStillServe) {
  ServingCertificates certificates = Create();
  folder_.Write(folder_.files().key, "half");
  EXPECT_FALSE(certificates.Tick(kNow + 10 * absl::Seconds(1)));
  EXPECT_THAT(std::string(certificates.file_error().message()),
              HasSubstr(folder_.files().key + ": contains no PEM private key"));
  EXPECT_TRUE(certificates.Health(kNow + 10 * absl::Seconds(1)).ok());
  folder_.WriteIssued(kServingNames, authority_, 120 * kDay, kNow);
  EXPECT_TRUE(certificates.Tick(kNow + 20 * absl::Seconds(1)));
  EXPECT_TRUE(certificates.file_error().ok());
}

TEST_F(GivenFiles, OfANewAuthorityWaitUntilItIsTrusted) {
  ServingCertificates certificates = Create();
  const KeyedCertificate other = IssueAuthority(365 * kDay, kNow).value();
  folder_.WriteIssued(kServingNames, other, 120 * kDay, kNow);
  EXPECT_FALSE(certificates.Tick(kNow + 10 * absl::Seconds(1)));
  EXPECT_TRUE(SameBundle(certificates.CaBundle(), authority_.chain + other.chain));
  certificates.SetTrusted(certificates.CaBundle());
  EXPECT_FALSE(certificates.Tick(kNow + 11 * absl::Seconds(1)));
  EXPECT_TRUE(certificates.Tick(kNow + 41 * absl::Seconds(1)));
  EXPECT_EQ(certificates.CaBundle(), other.chain);
}

TEST_F(GivenFiles, ExpiredOnesRecoverByNewFilesAlone) {
  ServingCertificates certificates = Create();
  const absl::Time late = kNow + 91 * kDay;
  EXPECT_FALSE(certificates.Tick(late));
  EXPECT_THAT(std::string(certificates.Health(late).message()), HasSubstr("expired at 2027-04-15"));
  folder_.Write(folder_.files().certificate, "half");
  EXPECT_FALSE(certificates.Tick(late + 10 * absl::Seconds(1)));
  EXPECT_THAT(std::string(certificates.Health(late + 10 * absl::Seconds(1)).message()),
              AllOf(HasSubstr("expired at"), HasSubstr("contains no PEM certificate")));
  folder_.WriteIssued(kServingNames, IssueAuthority(kDay, late).value(), kDay, late);
  EXPECT_TRUE(certificates.Tick(late + 20 * absl::Seconds(1)))
      << "of a new authority, but nothing is lost";
  EXPECT_TRUE(certificates.Health(late + 20 * absl::Seconds(1)).ok());
}

TEST_F(GivenFiles, ThatAreUnusableAtTheStartAreAnError) {
  folder_.Write(folder_.files().certificate, "");
  const auto status =
      ServingCertificates::Create({.names = kServingNames, .files = folder_.files()}, kNow)
          .status();
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder_.files().certificate));
}

}  // namespace
}  // namespace muster::extender
