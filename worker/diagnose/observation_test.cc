#include "worker/diagnose/observation.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

LineTime AtSecond(int second) { return {.time = absl::FromUnixSeconds(1'800'000'000 + second)}; }

Observation SeenAt(int64_t line, std::optional<LineTime> time) {
  return {.cause = CauseId::kPeerLost, .line = line, .time = time};
}

TEST(Observation, WhatLiesBetweenIsTheLeastThatItsBoundsAllow) {
  const Observation early = SeenAt(1, AtSecond(10));
  const Observation late = SeenAt(2, AtSecond(40));
  EXPECT_EQ(Between(early, late), absl::Seconds(30));
  EXPECT_EQ(Between(late, early), absl::Seconds(-30));
  EXPECT_EQ(Between(early, SeenAt(2, {})), absl::ZeroDuration());
  Observation by_then = late;
  by_then.time_is_near = true;
  EXPECT_EQ(Between(early, by_then), absl::ZeroDuration());
  EXPECT_EQ(Between(by_then, early), absl::ZeroDuration());
  by_then.since = AtSecond(25);
  EXPECT_EQ(Between(early, by_then), absl::Seconds(15));
  EXPECT_EQ(Between(by_then, early), absl::Seconds(-15));
}

TEST(Observation, LinesAreInOrderWithinAPartWhereTimesDontSay) {
  EXPECT_TRUE(IsBefore(SeenAt(9, AtSecond(10)), SeenAt(1, AtSecond(40))));
  EXPECT_FALSE(IsBefore(SeenAt(1, AtSecond(40)), SeenAt(9, AtSecond(10))));
  EXPECT_TRUE(IsBefore(SeenAt(1, {}), SeenAt(2, AtSecond(10))));
  EXPECT_FALSE(IsBefore(SeenAt(2, {}), SeenAt(1, AtSecond(10))));
  Observation elsewhere = SeenAt(2, {});
  elsewhere.part = 1;
  EXPECT_FALSE(IsBefore(SeenAt(1, {}), elsewhere));
  Observation event = SeenAt(2, {});
  event.is_event = true;
  EXPECT_FALSE(IsBefore(SeenAt(1, {}), event));
  Observation state = SeenAt(2, {});
  state.is_state = true;
  EXPECT_FALSE(IsBefore(SeenAt(1, {}), state));
}

TEST(Observation, NoProgramIsToBlameForAnExceptionOfTorchDistributed) {
  Raised raised;
  raised.text = "torch.distributed.DistBackendError: something new";
  EXPECT_TRUE(ShownBy(raised)->is_weak);
  raised.text = "my.DistanceError: something new";
  EXPECT_FALSE(ShownBy(raised)->is_weak);
}

}  // namespace
}  // namespace muster::worker
