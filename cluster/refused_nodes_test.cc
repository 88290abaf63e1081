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

TEST(NodesNotOffered, AreKeptByShapeUntilTheyChangeAndOfSoManyShapes) {
  NodesNotOffered not_offered;
  const auto left_out = [&](const std::string& shape, absl::Time now) {
    std::map<std::string, absl::Time> all;
    not_offered.AddTo(shape, now, &all);
    return all.size();
  };
  for (size_t i = 0; i < NodesNotOffered::kMostShapes; ++i) {
    RefusedNodes* nodes = not_offered.To(std::to_string(i), kStart);
    ASSERT_NE(nodes, nullptr);
    nodes->Refuse("n", kStart, kLongest);
    nodes->Refuse("m", kStart, kLongest);
  }
  EXPECT_EQ(not_offered.To("one more", kStart), nullptr);
  EXPECT_NE(not_offered.To("0", kStart), nullptr);
  EXPECT_EQ(left_out("0", kStart), 2);
  EXPECT_EQ(left_out("0", kStart + kLongest), 0);
  EXPECT_EQ(left_out("one more", kStart), 0);
  not_offered.Forget("n");
  EXPECT_EQ(left_out("0", kStart), 1);
  not_offered.Forget("m");
  EXPECT_NE(not_offered.To("one more", kStart), nullptr);
}

}  // namespace
}  // namespace muster::cluster
