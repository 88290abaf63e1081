#include "extender/access/answer_cache.h"

#include <gtest/gtest.h>

#include <string>

namespace muster::extender {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);

TEST(AnswerCache, KeepsAnAnswerForItsTime) {
  AnswerCache<std::string> cache(4);
  cache.Put("a", "yes", kStart + absl::Seconds(10));
  ASSERT_NE(cache.Find("a", kStart + absl::Seconds(9)), nullptr);
  EXPECT_EQ(*cache.Find("a", kStart), "yes");
  EXPECT_EQ(cache.Find("b", kStart), nullptr);
  EXPECT_EQ(cache.Find("a", kStart + absl::Seconds(10)), nullptr);
  EXPECT_EQ(cache.size(), 0u);
}

TEST(AnswerCache, TheNewestAnswerCounts) {
  AnswerCache<std::string> cache(4);
  cache.Put("a", "yes", kStart + absl::Seconds(10));
  cache.Put("a", "no", kStart + absl::Seconds(1));
  EXPECT_EQ(*cache.Find("a", kStart), "no");
  EXPECT_EQ(cache.size(), 1u);
}

TEST(AnswerCache, OfTooManyThatGoesWhichWasAskedForLongestAgo) {
  AnswerCache<int> cache(2);
  const absl::Time until = kStart + absl::Seconds(10);
  cache.Put("a", 1, until);
  cache.Put("b", 2, until);
  ASSERT_NE(cache.Find("a", kStart), nullptr);
  cache.Put("c", 3, until);
  EXPECT_NE(cache.Find("a", kStart), nullptr);
  EXPECT_EQ(cache.Find("b", kStart), nullptr);
  EXPECT_NE(cache.Find("c", kStart), nullptr);
  EXPECT_EQ(cache.size(), 2u);
}

}  // namespace
}  // namespace muster::extender
