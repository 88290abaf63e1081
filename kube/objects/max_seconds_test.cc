#include "kube/objects/max_seconds.h"

#include <gtest/gtest.h>

namespace muster::kube {
namespace {

TEST(MaxSeconds, AreAPositiveInt32) {
  EXPECT_EQ(MaxSecondsOf("1"), 1);
  EXPECT_EQ(MaxSecondsOf("2147483647"), 2147483647);
  for (const char* value : {"", "0", "-1", "1h", "1.5", "2147483648", "1_000"}) {
    EXPECT_EQ(MaxSecondsOf(value), std::nullopt) << value;
  }
  EXPECT_EQ(BadMaxSeconds("1h"),
            "label kueue.x-k8s.io/max-exec-time-seconds is \"1h\", must be an integer from 1 to "
            "2147483647");
}

}  // namespace
}  // namespace muster::kube
