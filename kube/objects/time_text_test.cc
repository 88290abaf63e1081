#include "kube/objects/time_text.h"

#include <gtest/gtest.h>

namespace muster::kube {
namespace {

const absl::Time kNoon =
    absl::FromUnixSeconds(1'767'268'800) + absl::Microseconds(123'456);  // 2026-01-01

TEST(TimeText, CutsOffWhatItsFormCannotHold) {
  EXPECT_EQ(TimeText(kNoon), "2026-01-01T12:00:00Z");
  EXPECT_EQ(MilliTimeText(kNoon), "2026-01-01T12:00:00.123Z");
  EXPECT_EQ(MicroTimeText(kNoon), "2026-01-01T12:00:00.123456Z");
}

TEST(TimeText, IsReadAsItWasWritten) {
  EXPECT_EQ(ReadTimeText(TimeText(kNoon)), absl::FromUnixSeconds(absl::ToUnixSeconds(kNoon)));
  EXPECT_EQ(ReadTimeText(MicroTimeText(kNoon)), kNoon);
}

TEST(TimeText, IsReadWithAnyOffset) {
  EXPECT_EQ(ReadTimeText("2026-01-01T21:00:00.123456+09:00"), kNoon);
}

TEST(TimeText, OfAnotherFormIsNoTime) {
  for (const char* text :
       {"", "now", "2026-01-01", "2026-01-01T12:00:00", "2026-13-01T12:00:00Z"}) {
    EXPECT_EQ(ReadTimeText(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace muster::kube
