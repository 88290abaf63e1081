#include "extender/other_kueue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fmt/format.h"
#include "kube/client/fake_transport.h"

namespace muster::extender {
namespace {

using testing::HasSubstr;

class OtherKueueTest : public testing::Test {
 protected:
  std::optional<quota::Wait> After(absl::Duration time) { return other_.Tick(now_ += time); }
  // Answers the last look.
  void Lease(const std::string& holder, int renewed) {
    transport_.sent.back()->Answer(
        200, fmt::format(R"({{"spec":{{"holderIdentity":"{}","leaseDurationSeconds":15,
                             "renewTime":"2026-01-01T00:00:{:02}.000000Z"}}}})",
                         holder, renewed));
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  kube::FakeTransport transport_;
  OtherKueue other_{transport_, "kueue-system", "lease"};
};

TEST_F(OtherKueueTest, UntilTheFirstAnswerNobodyIsGivenQuota) {
  const auto verdict = After(absl::ZeroDuration());
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->code, quota::WaitCode::kAnotherKueue);
  EXPECT_FALSE(other_.IsRunning());
  EXPECT_FALSE(After(absl::Seconds(1))) << "it was told";
  ASSERT_EQ(transport_.sent.size(), 1u);
  EXPECT_EQ(transport_.sent[0]->request.path,
            "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases/lease");
  transport_.sent[0]->Answer(404);
  const auto none = After(absl::Seconds(1));
  ASSERT_TRUE(none);
  EXPECT_EQ(none->code, quota::WaitCode::kNone);
}

TEST_F(OtherKueueTest, OneThatRenewsItsLeaseRunsAndOneThatDoesNotHasEnded) {
  After(absl::ZeroDuration());
  Lease("manager-0_1", 0);
  const auto running = After(absl::Seconds(2));
  ASSERT_TRUE(running);
  EXPECT_EQ(running->code, quota::WaitCode::kAnotherKueue);
  EXPECT_THAT(running->message, HasSubstr("manager-0_1 holds Lease kueue-system/lease"));
  EXPECT_TRUE(other_.IsRunning());
  for (int renewed = 2; renewed < 40; renewed += 2) {
    Lease("manager-0_1", renewed);
    EXPECT_FALSE(After(absl::Seconds(2)));
  }
  // Killed: the Lease stays as it was, until its duration is over.
  std::optional<quota::Wait> changed;
  int seconds = 0;
  for (; !changed && seconds < 60; seconds += 2) {
    Lease("manager-0_1", 38);
    changed = After(absl::Seconds(2));
  }
  ASSERT_TRUE(changed);
  EXPECT_EQ(changed->code, quota::WaitCode::kNone);
  EXPECT_GE(seconds, 14);
  EXPECT_LE(seconds, 20);
}

TEST_F(OtherKueueTest, OneThatGaveItsLeaseBackHasEnded) {
  After(absl::ZeroDuration());
  Lease("manager-0_1", 0);
  After(absl::Seconds(2));
  Lease("", 2);
  const auto ended = After(absl::Seconds(2));
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->code, quota::WaitCode::kNone);
}

TEST_F(OtherKueueTest, ALeaseThatMayNotBeReadKeepsNobodyWaiting) {
  After(absl::ZeroDuration());
  transport_.sent.back()->Answer(403, R"({"message":"forbidden"})");
  const auto open = After(absl::Seconds(2));
  ASSERT_TRUE(open);
  EXPECT_EQ(open->code, quota::WaitCode::kNone);
}

TEST_F(OtherKueueTest, OneThatWasSeenRunsUntilItsLeaseIsOverThoughLooksFail) {
  After(absl::ZeroDuration());
  Lease("manager-0_1", 0);
  After(absl::Seconds(2));
  for (int i = 0; i < 5; ++i) {
    transport_.sent.back()->Answer(absl::UnavailableError("no connection"));
    EXPECT_FALSE(After(absl::Seconds(2)));
  }
  EXPECT_TRUE(other_.IsRunning());
}

}  // namespace
}  // namespace muster::extender
