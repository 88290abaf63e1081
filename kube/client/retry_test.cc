#include "kube/client/retry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/client/fake_transport.h"
#include "kube/client/manual_timer.h"

namespace muster::kube {
namespace {

Request Of(Method method, std::string content_type = "") {
  Request request;
  request.method = method;
  request.path = "/x";
  request.content_type = std::move(content_type);
  return request;
}

Response Answer(int status, std::optional<absl::Duration> retry_after = std::nullopt) {
  return {status, "", retry_after};
}

TEST(MayRetry, WhatWasNotCarriedOutAlwaysMay) {
  RetryPolicy policy;
  for (const Method method : {Method::kGet, Method::kPost, Method::kPatch}) {
    const Request request = Of(method, std::string(kJsonPatch));
    EXPECT_TRUE(MayRetry(request, policy, absl::UnavailableError("refused")));
    EXPECT_TRUE(MayRetry(request, policy, absl::ResourceExhaustedError("queue")));
    EXPECT_TRUE(MayRetry(request, policy, Answer(429)));
    EXPECT_TRUE(MayRetry(request, policy, Answer(503, absl::Seconds(1))));
    EXPECT_FALSE(MayRetry(request, policy, absl::CancelledError("closing")));
    for (const int final_status : {200, 201, 400, 401, 403, 404, 409, 410, 422, 501}) {
      EXPECT_FALSE(MayRetry(request, policy, Answer(final_status))) << final_status;
    }
  }
}

TEST(MayRetry, AnUnknownOutcomeIsOnlyRetriedWhereTwiceIsHarmless) {
  RetryPolicy plain;
  RetryPolicy guarded;
  guarded.carries_precondition = true;
  const auto retried = [](const Request& request, const RetryPolicy& policy) {
    const bool timeout = MayRetry(request, policy, absl::DeadlineExceededError(""));
    EXPECT_EQ(MayRetry(request, policy, absl::UnknownError("cut")), timeout);
    for (const int status : {500, 502, 503, 504}) {
      EXPECT_EQ(MayRetry(request, policy, Answer(status)), timeout) << status;
    }
    return timeout;
  };
  EXPECT_TRUE(retried(Of(Method::kGet), plain));
  EXPECT_TRUE(retried(Of(Method::kPut), plain));
  EXPECT_TRUE(retried(Of(Method::kDelete), plain));
  EXPECT_TRUE(retried(Of(Method::kPatch, std::string(kMergePatch)), plain));
  EXPECT_TRUE(retried(Of(Method::kPatch, std::string(kStrategicMergePatch)), plain));
  EXPECT_FALSE(retried(Of(Method::kPatch, std::string(kJsonPatch)), plain));
  EXPECT_TRUE(retried(Of(Method::kPatch, std::string(kJsonPatch)), guarded));
  EXPECT_FALSE(retried(Of(Method::kPost), plain));
  EXPECT_TRUE(retried(Of(Method::kPost), guarded));
}

class RetryingSenderTest : public ::testing::Test {
 protected:
  void Send(Method method, RetryPolicy policy = {}) {
    sender_->Send(Of(method), policy,
                  [this](absl::StatusOr<Response> answer) { answers_.push_back(answer); });
  }
  FakeTransport::Sent& Last() { return *transport_.sent.back(); }
  size_t attempts() const { return transport_.sent.size(); }

  std::vector<absl::StatusOr<Response>> answers_;
  FakeTransport transport_;
  ManualTimer timer_{absl::FromUnixSeconds(1'000'000)};
  std::unique_ptr<RetryingSender> sender_ = std::make_unique<RetryingSender>(transport_, timer_, 2);
};

TEST_F(RetryingSenderTest, TriesAgainUntilAnAnswerIsFinal) {
  Send(Method::kGet);
  Last().Answer(503);
  EXPECT_EQ(attempts(), 1u);
  EXPECT_EQ(sender_->waiting(), 1u);
  timer_.Advance(absl::Milliseconds(100));
  ASSERT_EQ(attempts(), 2u);
  Last().Answer(absl::UnknownError("cut"));
  timer_.Advance(absl::Milliseconds(200));
  ASSERT_EQ(attempts(), 3u);
  Last().Answer(200);
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0]->status, 200);
  EXPECT_EQ(sender_->retries(), 2u);
  EXPECT_EQ(sender_->waiting(), 0u);
}

TEST_F(RetryingSenderTest, WaitsAsLongAsTheServerSays) {
  Send(Method::kPost);
  Last().Answer(Answer(429, absl::Seconds(8)));
  timer_.Advance(absl::Milliseconds(7900));
  EXPECT_EQ(attempts(), 1u);
  timer_.Advance(absl::Milliseconds(200));
  EXPECT_EQ(attempts(), 2u);
}

TEST_F(RetryingSenderTest, GivesTheLastAnswerWhenCountOrTimeIsUp) {
  RetryPolicy policy;
  policy.max_attempts = 3;
  Send(Method::kGet, policy);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(answers_.empty());
    Last().Answer(500 + i % 2 * 3);
    timer_.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(attempts(), 3u);
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0]->status, 500);

  Send(Method::kGet);
  Last().Answer(Answer(429, absl::Minutes(5)));
  ASSERT_EQ(answers_.size(), 2u);
  EXPECT_EQ(answers_[1]->status, 429);

  policy.budget = absl::Seconds(5);
  Send(Method::kGet, policy);
  EXPECT_EQ(Last().request.timeout, absl::Seconds(5));
  timer_.Advance(absl::Seconds(4));
  Last().Answer(503);
  timer_.Advance(absl::Milliseconds(100));
  EXPECT_LT(Last().request.timeout, absl::Seconds(1));
}

TEST_F(RetryingSenderTest, BoundsHowManyWait) {
  for (int i = 0; i < 3; ++i) {
    Send(Method::kGet);
    Last().Answer(503);
  }
  EXPECT_EQ(sender_->waiting(), 2u);
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0]->status, 503);
}

TEST_F(RetryingSenderTest, DestructionAnswersEverythingOnce) {
  Send(Method::kGet);
  Last().Answer(503);
  Send(Method::kGet);
  sender_.reset();
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0]->status, 503);
  Last().Answer(503);
  ASSERT_EQ(answers_.size(), 2u);
  timer_.Advance(absl::Minutes(1));
  EXPECT_EQ(attempts(), 2u);
}

}  // namespace
}  // namespace muster::kube
