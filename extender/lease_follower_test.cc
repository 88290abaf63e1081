#include "extender/lease_follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fmt/format.h"

namespace muster::extender {
namespace {

using ::testing::HasSubstr;

constexpr absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);

// A follower on host "a" in virtual time, and the Lease as kube-schedulers write it.
class LeaseFollowerTest : public ::testing::Test {
 protected:
  LeaseFollowerTest()
      : follower_({.name_space = "muster-system", .name = "coscheduling", .holder_prefix = "a_"}) {}

  // The Lease is renewed by `holder` now.
  void Renew(const std::string& holder, int duration = 15) {
    lease_ =
        fmt::format(R"({{"metadata":{{"resourceVersion":"{0}"}},"spec":{{"holderIdentity":"{1}",)"
                    R"("leaseDurationSeconds":{2},"renewTime":"{3}","leaseTransitions":1}}}})",
                    ++version_, holder, duration,
                    absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", now_, absl::UTCTimeZone()));
  }
  // One look, answered after `latency`.
  void Look(absl::Duration latency = absl::ZeroDuration()) {
    ASSERT_TRUE(follower_.Tick(now_).has_value());
    now_ += latency;
    follower_.OnAnswer(now_, kube::Response{200, lease_, std::nullopt});
  }
  void LookFails(int status) {
    ASSERT_TRUE(follower_.Tick(now_).has_value());
    follower_.OnAnswer(now_, kube::Response{status, R"({"message":"no luck"})", std::nullopt});
  }
  bool Leads() const { return follower_.IsLeader(now_); }
  std::string WhyNoLeader() const { return follower_.WhyNoLeader(now_); }

  LeaseFollower follower_;
  absl::Time now_ = kStart;
  int version_ = 0;
  std::string lease_;
};

TEST_F(LeaseFollowerTest, LooksOncePerIntervalAndNeverTwiceAtOnce) {
  const std::optional<kube::Request> look = follower_.Tick(now_);
  ASSERT_TRUE(look.has_value());
  EXPECT_EQ(look->method, kube::Method::kGet);
  EXPECT_EQ(look->path,
            "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/coscheduling");
  EXPECT_FALSE(follower_.Tick(now_ + absl::Minutes(1)).has_value());
  Renew("a_1");
  follower_.OnAnswer(now_, kube::Response{200, lease_, std::nullopt});
  EXPECT_FALSE(follower_.Tick(now_ + absl::Milliseconds(999)).has_value());
  EXPECT_TRUE(follower_.Tick(now_ + absl::Seconds(1)).has_value());
}

TEST_F(LeaseFollowerTest, LooksMoreOftenWhileNobodyLeads) {
  Renew("b_1", 6);
  Look();
  now_ += absl::Milliseconds(5999);
  Look();
  now_ += absl::Milliseconds(249);
  EXPECT_FALSE(follower_.Tick(now_).has_value());
  now_ += absl::Milliseconds(1);
  Renew("a_1", 6);
  Look();
  EXPECT_TRUE(Leads());
  now_ += absl::Milliseconds(250);
  EXPECT_FALSE(follower_.Tick(now_).has_value()) << "somebody leads";
}

TEST_F(LeaseFollowerTest, LeadsWhileTheHolderIsOnItsHost) {
  EXPECT_FALSE(Leads());
  EXPECT_THAT(WhyNoLeader(), HasSubstr("has not been read yet"));
  Renew("a_1");
  Look();
  EXPECT_TRUE(Leads());
  EXPECT_EQ(WhyNoLeader(), "");
  for (int i = 0; i < 100; ++i) {
    now_ += absl::Seconds(2);
    Renew("a_1");
    Look();
    EXPECT_TRUE(Leads());
  }
}

TEST_F(LeaseFollowerTest, AHostWhoseNameBeginsAlikeIsAnother) {
  for (const char* other : {"ab_1", "a", "b_1", "A_1", "xa_1"}) {
    now_ += absl::Seconds(2);
    Renew(other);
    Look();
    EXPECT_FALSE(Leads()) << other;
    EXPECT_EQ(follower_.holder(), other);
    EXPECT_EQ(WhyNoLeader(), "") << other;
  }
}

TEST_F(LeaseFollowerTest, StopsAtTheFirstLookThatShowsAnotherHolder) {
  Renew("a_1");
  Look();
  now_ += absl::Seconds(1);
  Renew("b_1");
  EXPECT_TRUE(Leads());
  Look();
  EXPECT_FALSE(Leads());
  EXPECT_EQ(follower_.leading_until(), absl::InfinitePast());
  EXPECT_EQ(WhyNoLeader(), "");
  now_ += absl::Seconds(1);
  Renew("a_2");
  Look();
  EXPECT_TRUE(Leads());
}

TEST_F(LeaseFollowerTest, AReleasedLeaseHasNoLeader) {
  Renew("a_1");
  Look();
  now_ += absl::Seconds(1);
  Renew("", 1);
  Look();
  EXPECT_FALSE(Leads());
  EXPECT_EQ(WhyNoLeader(), "no scheduler leads: Lease muster-system/coscheduling has no holder");
}

TEST_F(LeaseFollowerTest, AHolderThatDoesNotRenewIsNoneAfterTheLeasesDuration) {
  Renew("b_1");
  Look();
  for (int i = 1; i < 15; ++i) {
    now_ += absl::Seconds(1);
    Look();
    EXPECT_EQ(WhyNoLeader(), "") << i;
  }
  now_ += absl::Seconds(1);
  EXPECT_EQ(WhyNoLeader(),
            "no scheduler leads: b_1 has not renewed Lease muster-system/coscheduling for more "
            "than 15s");
  Look();
  EXPECT_NE(WhyNoLeader(), "");
  Renew("b_1");
  now_ += absl::Seconds(1);
  Look();
  EXPECT_EQ(WhyNoLeader(), "");
}

TEST_F(LeaseFollowerTest, OwnSchedulersDeathEndsTheLeadAfterTheLeasesDuration) {
  Renew("a_1");
  Look();
  for (int i = 1; i < 15; ++i) {
    now_ += absl::Seconds(1);
    Look();
  }
  EXPECT_TRUE(Leads());
  now_ += absl::Seconds(1);
  EXPECT_FALSE(Leads());
}

// Another scheduler takes the Lease when it has stood for its duration, from when that one saw it.
TEST_F(LeaseFollowerTest, TheLeadIsOverBeforeAnotherMayTakeTheLease) {
  Renew("a_1");
  Look();
  now_ = kStart + absl::Seconds(1);
  Look();
  now_ = kStart + absl::Milliseconds(1'100);
  Renew("a_1");
  for (int i = 2; i < 16; ++i) {
    now_ = kStart + absl::Seconds(i);
    Look(absl::Milliseconds(300));
    EXPECT_TRUE(Leads()) << i;
  }
  now_ = kStart + absl::Milliseconds(16'099);
  EXPECT_FALSE(Leads());
  EXPECT_EQ(WhyNoLeader(), "") << "it may still renew it";
}

TEST_F(LeaseFollowerTest, LeadsForTheTrustTimeAfterTheLastLookThatSucceeded) {
  Renew("a_1");
  Look(absl::Seconds(3));  // counted from when it was sent
  EXPECT_EQ(follower_.leading_until(), kStart + absl::Seconds(10));
  while (now_ < kStart + absl::Seconds(9)) {
    now_ += absl::Seconds(1);
    LookFails(500);
    EXPECT_TRUE(Leads());
  }
  EXPECT_EQ(follower_.failed_looks(), 6u);
  now_ += absl::Seconds(1);
  EXPECT_FALSE(Leads());
  // By then nobody is known to have taken it: still that holder's.
  EXPECT_EQ(WhyNoLeader(), "");
  EXPECT_EQ(follower_.WhyOutOfTouch(now_),
            "Lease muster-system/coscheduling has not been read for 10s: HTTP 500: no luck");
  now_ = kStart + absl::Seconds(15);
  EXPECT_THAT(WhyNoLeader(), HasSubstr("; HTTP 500: no luck"));
  Look();
  EXPECT_EQ(follower_.WhyOutOfTouch(now_), "");
}

TEST_F(LeaseFollowerTest, ALateAnswerDoesNotRestoreAnExpiredLead) {
  Renew("a_1");
  ASSERT_TRUE(follower_.Tick(now_).has_value());
  now_ += absl::Seconds(11);
  follower_.OnAnswer(now_, kube::Response{200, lease_, std::nullopt});
  EXPECT_FALSE(Leads());
  EXPECT_EQ(follower_.leading_until(), absl::InfinitePast());
}

TEST_F(LeaseFollowerTest, SaysThatThereIsNoLeaseOrThatItMayNotBeRead) {
  LookFails(403);
  EXPECT_THAT(WhyNoLeader(), HasSubstr("has not been read yet; HTTP 403: no luck"));
  now_ += absl::Seconds(1);
  LookFails(404);
  EXPECT_EQ(WhyNoLeader(), "no scheduler leads: there is no Lease muster-system/coscheduling");
  // Deleted while it leads.
  now_ += absl::Seconds(1);
  Renew("a_1");
  Look();
  EXPECT_TRUE(Leads());
  now_ += absl::Seconds(1);
  LookFails(404);
  EXPECT_FALSE(Leads());
  EXPECT_EQ(follower_.holder(), "");
}

TEST_F(LeaseFollowerTest, AnAnswerThatIsNoLeaseIsAFailedLook) {
  for (const char* bad : {"", "[]", R"({"spec":{"holderIdentity":7}})",
                          R"({"spec":{"holderIdentity":"a_1","leaseDurationSeconds":"long"}})"}) {
    lease_ = bad;
    Look();
    EXPECT_FALSE(Leads()) << bad;
    EXPECT_NE(WhyNoLeader(), "") << bad;
    now_ += absl::Seconds(1);
  }
  EXPECT_EQ(follower_.failed_looks(), 4u);
}

}  // namespace
}  // namespace muster::extender
