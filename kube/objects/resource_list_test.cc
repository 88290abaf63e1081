#include "kube/objects/resource_list.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <limits>

namespace muster::kube {
namespace {

constexpr int64_t kMaxAmount = std::numeric_limits<int64_t>::max();

ResourceList List(std::initializer_list<ResourceList::Entry> entries) {
  ResourceList list;
  for (const auto& [name, amount] : entries) list.Set(name, amount);
  return list;
}

TEST(ResourceList, KeepsNamesSortedAndTellsZeroFromAbsent) {
  ResourceList list = List({{"nvidia.com/gpu", 0}, {"cpu", 1500}});
  EXPECT_EQ(list.entries().front().first, "cpu");
  EXPECT_TRUE(list.Has(kNvidiaGpu));
  EXPECT_FALSE(list.Has(kEfa));
  EXPECT_EQ(list.Get(kEfa), 0);
  EXPECT_NE(list, List({{"cpu", 1500}}));
  list.Set("cpu", 2000);
  EXPECT_EQ(list.Get(kCpu), 2000);
  EXPECT_EQ(list.entries().size(), 2u);
}

TEST(ResourceList, AddsAndSubtractsPerName) {
  ResourceList list = List({{"cpu", 1000}, {"pods", 1}});
  ASSERT_TRUE(list.Add(List({{"cpu", 500}, {"nvidia.com/gpu", 8}})).ok());
  EXPECT_EQ(list, List({{"cpu", 1500}, {"nvidia.com/gpu", 8}, {"pods", 1}}));
  ASSERT_TRUE(list.Subtract(List({{"cpu", 2000}})).ok());
  EXPECT_EQ(list.Get(kCpu), -500);
}

TEST(ResourceList, AnOverflowNamesTheResourceAndChangesNothing) {
  ResourceList list = List({{"cpu", 1}, {"memory", kMaxAmount}});
  ResourceList before = list;
  absl::Status status = list.Add(List({{"cpu", 1}, {"memory", 1}}));
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "memory: 9223372036854775807 + 1 doesn't fit 64 bits");
  EXPECT_EQ(list, before);

  ResourceList low = List({{"cpu", 1}, {"memory", -2}});
  before = low;
  EXPECT_EQ(low.Subtract(List({{"cpu", 1}, {"memory", kMaxAmount}})).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(low, before);
}

TEST(ResourceList, AddingAndSubtractingGivesBackAnEqualListOnceZerosAreDropped) {
  const ResourceList before = List({{"cpu", 1000}, {"pods", 1}});
  const ResourceList other = List({{"amd.com/gpu", 1}, {"memory", 0}, {"nvidia.com/gpu", 8}});
  ResourceList list = before;
  ASSERT_TRUE(list.Add(other).ok());
  ASSERT_TRUE(list.Subtract(other).ok());
  EXPECT_NE(list, before);
  list.DropZeros();
  EXPECT_EQ(list, before);
}

TEST(ResourceList, MaxTakesTheLargerPerName) {
  ResourceList list = List({{"cpu", 1000}, {"memory", 5}});
  list.Max(List({{"cpu", 500}, {"memory", 9}, {"pods", 0}}));
  EXPECT_EQ(list, List({{"cpu", 1000}, {"memory", 9}, {"pods", 0}}));
}

TEST(ResourceList, CoversAsksOnlyForAmountsAboveZero) {
  ResourceList free = List({{"cpu", 1000}, {"memory", -5}});
  EXPECT_TRUE(free.Covers(List({{"cpu", 1000}, {"memory", 0}, {"nvidia.com/gpu", 0}})));
  EXPECT_TRUE(free.Covers({}));
  EXPECT_FALSE(free.Covers(List({{"cpu", 1001}})));
  EXPECT_FALSE(free.Covers(List({{"nvidia.com/gpu", 1}})));
}

TEST(ResourceList, NamesTheFirstShortage) {
  ResourceList request = List({{"cpu", 1000}, {"nvidia.com/gpu", 8}, {"pods", 1}});
  const ResourceList::Entry* shortage =
      List({{"cpu", 4000}, {"nvidia.com/gpu", 7}}).FirstShortage(request);
  ASSERT_NE(shortage, nullptr);
  EXPECT_EQ(shortage->first, "nvidia.com/gpu");
  EXPECT_EQ(shortage->second, 8);
  EXPECT_EQ(request.FirstShortage(request), nullptr);
}

TEST(ResourceList, PrintsCanonicalQuantities) {
  EXPECT_EQ(List({{"nvidia.com/gpu", 8}, {"cpu", 1500}, {"memory", int64_t{16} << 30}}).ToString(),
            "cpu=1500m, memory=16Gi, nvidia.com/gpu=8");
  EXPECT_EQ(ResourceList().ToString(), "");
}

}  // namespace
}  // namespace muster::kube
