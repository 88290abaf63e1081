#include "kube/client/concurrency_limit.h"

#include <gtest/gtest.h>

#include <vector>

namespace muster::kube {
namespace {

class ConcurrencyLimitTest : public ::testing::Test {
 protected:
  // So many requests are sent now and answered `took` later, all alike.
  void Round(size_t count, const absl::StatusOr<Response>& answer = Response{201},
             absl::Duration took = absl::Milliseconds(20)) {
    const absl::Time sent = now_;
    now_ += took;
    for (size_t left = count; left > 0; --left) limit_.OnAnswer(sent, now_, answer, left);
  }
  // As many as may be.
  void FullRound(const absl::StatusOr<Response>& answer = Response{201},
                 absl::Duration took = absl::Milliseconds(20)) {
    Round(limit_.limit(), answer, took);
  }

  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  ConcurrencyLimit limit_{
      {.least = 4, .first = 16, .most = 128, .step = 3, .patience = absl::Milliseconds(500)}};
};

TEST_F(ConcurrencyLimitTest, DoublesUpToTheMostWhileNothingSpeaksAgainstIt) {
  EXPECT_EQ(limit_.limit(), 16u);
  FullRound();
  EXPECT_EQ(limit_.limit(), 32u);
  for (int i = 0; i < 5; ++i) FullRound();
  EXPECT_EQ(limit_.limit(), 128u);
}

TEST_F(ConcurrencyLimitTest, ARoundHasAsManyAnswersAsMayBeUnderWay) {
  Round(16);
  ASSERT_EQ(limit_.limit(), 32u);
  const absl::Time sent = now_;
  for (int i = 0; i < 31; ++i) limit_.OnAnswer(sent, now_, Response{201}, 32);
  EXPECT_EQ(limit_.limit(), 32u);
  limit_.OnAnswer(sent, now_, Response{201}, 32);
  EXPECT_EQ(limit_.limit(), 64u);
}

TEST_F(ConcurrencyLimitTest, HalvesAtEverySignAndThenGrowsByTheStep) {
  const std::vector<absl::StatusOr<Response>> signs = {
      Response{429}, Response{503}, Response{504}, absl::DeadlineExceededError("30 s are over")};
  for (const auto& sign : signs) {
    limit_ = ConcurrencyLimit({.least = 4, .first = 16, .most = 128, .step = 3});
    Round(1, sign);
    EXPECT_EQ(limit_.limit(), 8u) << (sign.ok() ? sign->status : 0);
    FullRound();
    EXPECT_EQ(limit_.limit(), 11u);
    FullRound();
    EXPECT_EQ(limit_.limit(), 14u);
  }
}

TEST_F(ConcurrencyLimitTest, SignsOfWhatWasSentBeforeItWasHalvedDoNotHalveItAgain) {
  FullRound(Response{429});
  EXPECT_EQ(limit_.limit(), 8u);
  FullRound(Response{429});
  EXPECT_EQ(limit_.limit(), 4u);
  FullRound(Response{429});
  EXPECT_EQ(limit_.limit(), 4u) << "never below the least";
}

TEST_F(ConcurrencyLimitTest, SlowAnswersAreASignOnAverageNotOneAlone) {
  const absl::Time sent = now_;
  for (int i = 0; i < 15; ++i) {
    limit_.OnAnswer(sent, sent + absl::Milliseconds(20), Response{201}, 16);
  }
  now_ = sent + absl::Seconds(5);
  limit_.OnAnswer(sent, now_, Response{201}, 16);
  EXPECT_EQ(limit_.limit(), 32u) << "330 ms on average";
  FullRound(Response{201}, absl::Milliseconds(501));
  EXPECT_EQ(limit_.limit(), 16u);
}

TEST_F(ConcurrencyLimitTest, WhatIsNeverReachedIsNotRaised) {
  for (int i = 0; i < 100; ++i) Round(15);
  EXPECT_EQ(limit_.limit(), 16u);
}

TEST_F(ConcurrencyLimitTest, RefusalsAreAnswersAndWhatWasNotSentSaysNothing) {
  FullRound(Response{409});
  EXPECT_EQ(limit_.limit(), 32u);
  FullRound(absl::UnavailableError("no connection"));
  FullRound(absl::FailedPreconditionError("not sent: this process doesn't lead"));
  EXPECT_EQ(limit_.limit(), 32u);
}

TEST(ConcurrencyLimit, TheMostGoesBeforeTheOtherBounds) {
  ConcurrencyLimit limit({.least = 8, .first = 64, .most = 2});
  EXPECT_EQ(limit.limit(), 2u);
  const absl::Time noon = absl::FromUnixSeconds(1'700'000'000);
  limit.OnAnswer(noon, noon, Response{429}, 1);
  EXPECT_EQ(limit.limit(), 2u);
}

}  // namespace
}  // namespace muster::kube
