#include "coscheduling/in_flight.h"

#include <gtest/gtest.h>

namespace muster::coscheduling {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'000);
const absl::Status kFailure = absl::UnavailableError("no");

TEST(InFlight, ATargetIsAskedOnceAtATime) {
  InFlight in_flight;
  const uint64_t id = in_flight.Start("bind/a", nullptr);
  EXPECT_FALSE(in_flight.MayStart("bind/a", kNow));
  EXPECT_TRUE(in_flight.MayStart("bind/b", kNow));
  in_flight.Finish(id, absl::OkStatus(), kNow);
  EXPECT_TRUE(in_flight.MayStart("bind/a", kNow));
  EXPECT_EQ(in_flight.size(), 0u);
}

TEST(InFlight, AFailureIsFollowedByAPauseThatDoublesUpToTenSeconds) {
  InFlight in_flight;
  absl::Time now = kNow;
  absl::Duration pause = absl::Milliseconds(100);
  for (int i = 0; i < 12; ++i) {
    in_flight.Finish(in_flight.Start("x", nullptr), kFailure, now);
    EXPECT_FALSE(in_flight.MayStart("x", now + pause - absl::Milliseconds(1)));
    EXPECT_TRUE(in_flight.MayStart("x", now + pause));
    EXPECT_EQ(in_flight.NextRetry(now), now + pause);
    now += pause;
    pause = std::min(pause * 2, absl::Seconds(10));
  }
  EXPECT_EQ(in_flight.Failures("x"), 12);
  in_flight.Finish(in_flight.Start("x", nullptr), absl::OkStatus(), now);
  EXPECT_EQ(in_flight.Failures("x"), 0);
}

TEST(InFlight, TheOutcomeIsHandedOnAndAnUnknownIdIsIgnored) {
  InFlight in_flight;
  absl::Status seen;
  const uint64_t id =
      in_flight.Start("x", [&](const absl::Status& status, absl::Time) { seen = status; });
  in_flight.Finish(id + 7, absl::OkStatus(), kNow);
  in_flight.Finish(id, kFailure, kNow);
  EXPECT_EQ(seen, kFailure);
  in_flight.Finish(id, absl::OkStatus(), kNow);
  EXPECT_EQ(seen, kFailure);
}

TEST(InFlight, OldPausesAreForgotten) {
  InFlight in_flight;
  in_flight.Finish(in_flight.Start("x", nullptr), kFailure, kNow);
  in_flight.Prune(kNow + absl::Seconds(30));
  EXPECT_EQ(in_flight.Failures("x"), 1);
  in_flight.Prune(kNow + absl::Minutes(2));
  EXPECT_EQ(in_flight.Failures("x"), 0);
}

}  // namespace
}  // namespace muster::coscheduling
