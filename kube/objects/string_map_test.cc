#include "kube/objects/string_map.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace muster::kube {
namespace {

TEST(StringMap, KeepsTheFirstOfEqualKeysAndSortsByKey) {
  StringMap map = {{"b", "1"}, {"a", "2"}, {"b", "3"}};
  EXPECT_EQ(map, (StringMap{{"a", "2"}, {"b", "1"}}));
  EXPECT_EQ(map.begin()->first, "a");
  EXPECT_FALSE(map.emplace("a", "9").second);
  EXPECT_EQ(map.at("a"), "2");
  map.insert_or_assign("a", "9");
  EXPECT_EQ(map.at("a"), "9");
  EXPECT_THROW(map.at("x"), std::out_of_range);
}

TEST(StringMap, DoesWhatAStdMapDoes) {
  std::mt19937 random(7);
  StringMap map;
  std::map<std::string, std::string> want;
  for (int i = 0; i < 5000; ++i) {
    const std::string key = std::to_string(random() % 40);
    const std::string value = std::to_string(i);
    switch (random() % 5) {
      case 0:
        map[key] = value;
        want[key] = value;
        break;
      case 1:
        EXPECT_EQ(map.emplace(key, value).second, want.emplace(key, value).second);
        break;
      case 2:
        EXPECT_EQ(map.erase(key), want.erase(key));
        break;
      case 3:
        EXPECT_EQ(map.contains(key), want.contains(key));
        break;
      default:
        EXPECT_EQ(map.find(key) == map.end(), want.find(key) == want.end());
    }
    ASSERT_TRUE(std::equal(
        map.begin(), map.end(), want.begin(), want.end(),
        [](const auto& a, const auto& b) { return a.first == b.first && a.second == b.second; }));
  }
}

TEST(StringMap, CopiesShareTheirEntriesUntilOneIsChanged) {
  const StringMap map = {{"a", "1"}, {"b", "2"}};
  EXPECT_FALSE(map.is_shared());
  StringMap copy = map;
  EXPECT_TRUE(map.is_shared());
  EXPECT_EQ(std::as_const(copy).begin(), map.begin());
  copy["a"] = "9";
  EXPECT_FALSE(map.is_shared());
  EXPECT_EQ(map.at("a"), "1");
  EXPECT_EQ(copy.at("a"), "9");
  StringMap other = map;
  other.find("b")->second = "8";
  EXPECT_EQ(map.at("b"), "2");
  other = map;
  other.erase("a");
  EXPECT_EQ(map.size(), 2u);
  const StringMap moved = std::move(other);
  EXPECT_TRUE(other.empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(moved, (StringMap{{"b", "2"}}));
}

}  // namespace
}  // namespace muster::kube
