#include "extender/leader_fence.h"

#include <gtest/gtest.h>

#include <vector>

#include "kube/client/fake_transport.h"
#include "kube/client/manual_timer.h"
#include "kube/client/retry.h"

namespace muster::extender {
namespace {

class LeaderFenceTest : public ::testing::Test {
 protected:
  static kube::Request With(kube::Method method) { return {.method = method, .path = "/api/v1/x"}; }
  kube::Transport::Done Note() {
    return [this](const absl::StatusOr<kube::Response>& answer) {
      answers_.push_back(answer.status());
    };
  }

  kube::FakeTransport transport_;
  kube::ManualTimer timer_{absl::FromUnixSeconds(1'800'000'000)};
  bool leads_ = true;
  LeaderFence fence_{transport_, timer_, [this] { return leads_; }};
  std::vector<absl::Status> answers_;
};

TEST_F(LeaderFenceTest, ALeaderWrites) {
  fence_.Send(With(kube::Method::kPatch), Note());
  ASSERT_EQ(transport_.sent.size(), 1u);
  EXPECT_EQ(transport_.sent[0]->request.path, "/api/v1/x");
  transport_.sent[0]->Answer(200);
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_TRUE(answers_[0].ok());
}

TEST_F(LeaderFenceTest, NobodyElseDoes) {
  leads_ = false;
  for (const kube::Method method :
       {kube::Method::kPost, kube::Method::kPut, kube::Method::kPatch, kube::Method::kDelete}) {
    answers_.clear();
    fence_.Send(With(method), Note());
    EXPECT_TRUE(answers_.empty()) << "answered inside Send";
    timer_.Advance(absl::ZeroDuration());
    ASSERT_EQ(answers_.size(), 1u);
    EXPECT_TRUE(absl::IsFailedPrecondition(answers_[0])) << answers_[0];
  }
  EXPECT_TRUE(transport_.sent.empty());
}

TEST_F(LeaderFenceTest, EverybodyReadsAndWatches) {
  leads_ = false;
  fence_.Send(With(kube::Method::kGet), Note());
  EXPECT_EQ(transport_.sent.size(), 1u);
  const auto watch =
      fence_.Watch(With(kube::Method::kGet), [](std::string_view) {}, [](const auto&) {});
  EXPECT_EQ(transport_.watches.size(), 1u);
}

TEST_F(LeaderFenceTest, ARetryAfterTheLeadIsLostIsTheLast) {
  kube::RetryingSender sender(fence_, timer_);
  sender.Send(With(kube::Method::kPatch), {}, Note());
  transport_.sent.at(0)->Answer(503);
  leads_ = false;
  timer_.Advance(absl::Minutes(1));
  EXPECT_EQ(transport_.sent.size(), 1u);
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(answers_[0])) << answers_[0];
}

}  // namespace
}  // namespace muster::extender
