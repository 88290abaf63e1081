#include "extender/admission/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "absl/time/clock.h"
#include "extender/admission/ca_bundle.h"
#include "extender/admission/openssl_handles.h"
#include "extender/admission/testing/certificate_folder.h"

namespace muster::extender {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const CertificateNames kNames = {{"muster-webhook.muster-system.svc"}, {"127.0.0.1", "::1"}};

KeyedCertificate Authority(absl::Time now = kNow) {
  return IssueAuthority(365 * kDay, now).value();
}

std::string Fault(const CertificateFiles& files, absl::Time now = kNow) {
  return std::string(LoadCertificateFiles(files, kNames, now).status().message());
}

TEST(IssuedCertificate, CarriesEveryNameInItsSubjectAlternativeName) {
  const KeyedCertificate leaf =
      IssueServingCertificate(kNames, Authority(), 90 * kDay, kNow).value();
  const std::vector<X509Handle> parsed = ReadCertificates(leaf.chain);
  ASSERT_EQ(parsed.size(), 1u);
  const auto covers = [&](const std::string& host) {
    return X509_check_host(parsed[0].get(), host.data(), host.size(), 0, nullptr) == 1;
  };
  EXPECT_TRUE(covers("muster-webhook.muster-system.svc"));
  EXPECT_FALSE(covers("muster-webhook.other.svc"));
  EXPECT_EQ(X509_check_ip_asc(parsed[0].get(), "127.0.0.1", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(parsed[0].get(), "::1", 0), 1);
  EXPECT_NE(X509_check_ip_asc(parsed[0].get(), "127.0.0.2", 0), 1);
}

TEST(IssuedCertificate, IsAboutToBeReplacedWhenAThirdOfItsLifetimeIsLeft) {
  const KeyedCertificate leaf =
      IssueServingCertificate(kNames, Authority(), 90 * kDay, kNow).value();
  EXPECT_EQ(leaf.not_after, kNow + 90 * kDay);
  EXPECT_EQ(leaf.RotationTime(), kNow + 60 * kDay);
  EXPECT_FALSE(leaf.NeedsRotation(kNow + 60 * kDay - absl::Seconds(1)));
  EXPECT_TRUE(leaf.NeedsRotation(kNow + 60 * kDay));
  EXPECT_FALSE(leaf.Expired(kNow + 90 * kDay - absl::Seconds(1)));
  EXPECT_TRUE(leaf.Expired(kNow + 90 * kDay));
}

TEST(IssuedCertificate, StaysWithinItsAuthority) {
  const KeyedCertificate authority = Authority();
  const KeyedCertificate leaf =
      IssueServingCertificate(kNames, authority, 90 * kDay, kNow + 300 * kDay).value();
  EXPECT_EQ(leaf.not_after, authority.not_after);
}

TEST(IssuedCertificate, IsValidForAClockThatIsALittleBehind) {
  const KeyedCertificate leaf =
      IssueServingCertificate(kNames, Authority(), 90 * kDay, kNow).value();
  const std::vector<X509Handle> parsed = ReadCertificates(leaf.chain);
  EXPECT_EQ(NotBefore(parsed[0].get()), kNow - absl::Minutes(5));
}

TEST(IssuedCertificate, RefusesWhatNobodyCouldUse) {
  const auto fault = [](const CertificateNames& names, absl::Duration validity) {
    return std::string(
        IssueServingCertificate(names, Authority(), validity, kNow).status().message());
  };
  EXPECT_THAT(fault({}, kDay), HasSubstr("names are empty"));
  EXPECT_THAT(fault({{"a,DNS:b"}, {}}, kDay), HasSubstr("\"a,DNS:b\" is no DNS name"));
  EXPECT_THAT(fault({{}, {"300.1.1.1"}}, kDay), HasSubstr("\"300.1.1.1\" is no IP address"));
  EXPECT_THAT(fault(kNames, absl::Seconds(1)), HasSubstr("validity is 1s, must be at least 2s"));
  EXPECT_THAT(std::string(IssueAuthority(-kDay, kNow).status().message()),
              HasSubstr("must be at least 2s"));
}

class Files : public ::testing::Test {
 protected:
  void SetUp() override { folder_.WriteIssued(kNames, authority_, 90 * kDay, kNow); }

  const KeyedCertificate authority_ = Authority();
  CertificateFolder folder_;
};

TEST_F(Files, AreLoadedWithTheirTimes) {
  const absl::StatusOr<GivenCertificate> given =
      LoadCertificateFiles(folder_.files(), kNames, kNow);
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->serving.not_after, kNow + 90 * kDay);
  EXPECT_EQ(given->authorities, authority_.chain);
}

TEST_F(Files, TextAroundTheCertificatesAndOtherBlocksGoNoFurther) {
  folder_.Write(folder_.files().authority, "# ours\n" + authority_.chain + authority_.key);
  const absl::StatusOr<GivenCertificate> given =
      LoadCertificateFiles(folder_.files(), kNames, kNow);
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->authorities, authority_.chain);
}

TEST_F(Files, ExpiredSaysSinceWhen) {
  EXPECT_THAT(Fault(folder_.files(), kNow + 90 * kDay),
              AllOf(HasSubstr("webhook certificate " + folder_.files().certificate),
                    HasSubstr("expired at 2027-04-15T08:00:00Z, now is 2027-04-15T08:00:00Z")));
}

TEST_F(Files, NotYetValidSaysFromWhen) {
  EXPECT_THAT(Fault(folder_.files(), kNow - kDay), HasSubstr("not valid before 2027-01-15"));
}

TEST_F(Files, ExpiredAuthorityVerifiesNothing) {
  const KeyedCertificate old = IssueAuthority(kDay, kNow).value();
  folder_.Write(folder_.files().authority, old.chain);
  EXPECT_THAT(Fault(folder_.files(), kNow + 2 * kDay), HasSubstr("does not verify against"));
}

TEST_F(Files, KeyOfAnotherCertificateIsNamedAndNotShown) {
  const std::string other = Authority().key;
  folder_.Write(folder_.files().key, other);
  const std::string fault = Fault(folder_.files());
  EXPECT_THAT(fault, AllOf(HasSubstr("webhook key " + folder_.files().key),
                           HasSubstr("is not the key of " + folder_.files().certificate)));
  EXPECT_THAT(fault, Not(HasSubstr(other.substr(40, 20))));
}

TEST_F(Files, SignedByAnotherAuthority) {
  folder_.Write(folder_.files().authority, Authority().chain);
  EXPECT_THAT(Fault(folder_.files()),
              HasSubstr("does not verify against webhook CA " + folder_.files().authority));
}

TEST_F(Files, NameThatIsNotCovered) {
  folder_.WriteIssued({{"other.svc"}, {}}, authority_, kDay, kNow);
  EXPECT_THAT(Fault(folder_.files()),
              HasSubstr("covers DNS name muster-webhook.muster-system.svc"));
  folder_.WriteIssued({kNames.dns, {"127.0.0.1"}}, authority_, kDay, kNow);
  EXPECT_THAT(Fault(folder_.files()), HasSubstr("covers IP address ::1"));
}

TEST_F(Files, NotPem) {
  folder_.Write(folder_.files().key, "secret");
  EXPECT_THAT(Fault(folder_.files()),
              AllOf(HasSubstr("webhook key " + folder_.files().key),
                    HasSubstr("contains no PEM private key"), Not(HasSubstr("secret"))));
  folder_.Write(folder_.files().authority, "");
  folder_.Write(folder_.files().certificate, "\x30\x82 raw");
  EXPECT_THAT(Fault(folder_.files()),
              HasSubstr(folder_.files().certificate + ": contains no PEM certificate"));
}

TEST_F(Files, TruncatedAnywhereIsAnErrorAndNoCrash) {
  const std::string chain =
      IssueServingCertificate(kNames, authority_, 90 * kDay, kNow).value().chain;
  for (size_t size = 0; size + 1 < chain.size(); size += 7) {
    folder_.Write(folder_.files().certificate, chain.substr(0, size));
    EXPECT_NE(Fault(folder_.files()), "") << size;
  }
}

TEST_F(Files, MissingOrUnnamed) {
  CertificateFiles files = folder_.files();
  files.authority += ".absent";
  EXPECT_THAT(Fault(files),
              AllOf(HasSubstr("webhook CA " + files.authority), HasSubstr("No such file")));
  files.authority = "";
  EXPECT_THAT(Fault(files), HasSubstr("webhook CA: no file is named"));
  files.authority = "/";
  EXPECT_THAT(Fault(files), HasSubstr("webhook CA /: Is a directory"));
}

TEST_F(Files, StampChangesWhenAFileIsReplacedOrGoes) {
  const std::string before = StampOf(folder_.files());
  EXPECT_EQ(StampOf(folder_.files()), before);
  folder_.Write(folder_.files().key, authority_.key);
  const std::string replaced = StampOf(folder_.files());
  EXPECT_NE(replaced, before);
  std::remove(folder_.files().key.c_str());
  EXPECT_NE(StampOf(folder_.files()), replaced);
}

TEST(CaBundle, EveryReplicaKeepsTheOthersAuthority) {
  const std::string a = Authority().chain;
  const std::string b = Authority().chain;
  const std::string joined = JoinBundles(a, b, kNow, 16);
  EXPECT_EQ(joined, a + b);
  EXPECT_TRUE(BundleContains(joined, a));
  EXPECT_FALSE(BundleContains(a, joined));
  EXPECT_TRUE(SameBundle(joined, b + a));
  EXPECT_EQ(JoinBundles(joined, a, kNow, 16), joined);
}

TEST(CaBundle, WhatExpiredOrIsNoCertificateGoes) {
  const std::string old = IssueAuthority(kDay, kNow).value().chain;
  const std::string own = Authority().chain;
  EXPECT_EQ(JoinBundles("rubbish" + old, own, kNow + kDay, 16), own);
}

TEST(CaBundle, PastTheLimitTheOldestEntriesGoAndNeverOurOwn) {
  std::string bundle;
  std::vector<std::string> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(Authority().chain);
    bundle += all.back();
  }
  EXPECT_EQ(JoinBundles(bundle, all[0], kNow, 2), all[0] + all[3]);
  // Whoever was pushed out comes back at the end: live replicas outlast what dead ones left.
  EXPECT_EQ(JoinBundles(all[2] + all[3], all[0], kNow, 2), all[3] + all[0]);
}

}  // namespace
}  // namespace muster::extender
