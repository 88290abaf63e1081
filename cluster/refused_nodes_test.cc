#include "cluster/refused_nodes.h"

#include "gtest/gtest.h"

namespace muster::cluster {
namespace {

constexpr absl::Duration kLongest = absl::Seconds(5);
const absl::Time kStart = absl::FromUnixSeconds(1000);

TEST(RefusedNodes, FirstTimeIsShort) {
  RefusedNodes refused;
  refused.Refuse("n", kStart, kLongest);
  EXPECT_EQ(refused.left_out().at("n"), kStart + absl::Seconds(1));
  refused.Expire(kStart + absl::Milliseconds(999));
  EXPECT_EQ(refused.left_out().size(), 1);
  refused.Expire(kStart + absl::Seconds(1));
  EXPECT_TRUE(refused.left_out().empty());
}

TEST(RefusedNodes, EachFurtherTimeIsTwiceAsLongUpToTheLongest) {
  RefusedNodes refused;
  absl::Time now = kStart;
  for (const int seconds : {1, 2, 4, 5, 5}) {
    refused.Refuse("n", now, kLongest);
    EXPECT_EQ(refused.left_out().at("n") - now, absl::Seconds(seconds));
    now = refused.left_out().at("n");
    refused.Expire(now);
  }
}

TEST(RefusedNodes, OldRefusalsAreForgotten) {
  RefusedNodes refused;
  refused.Refuse("n", kStart, kLongest);
  refused.Expire(kStart + absl::Seconds(6));
  refused.Refuse("n", kStart + absl::Seconds(6), kLongest);
  EXPECT_EQ(refused.left_out().at("n"), kStart + absl::Seconds(7));
}

TEST(RefusedNodes, LongestMayBeShorterThanTheFirst) {
  RefusedNodes refused;
  refused.Refuse("n", kStart, absl::Milliseconds(200));
  EXPECT_EQ(refused.left_out().at("n"), kStart + absl::Milliseconds(200));
}

}  // namespace
}  // namespace muster::cluster
