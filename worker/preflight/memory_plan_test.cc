#include "worker/preflight/memory_plan.h"

#include <gtest/gtest.h>

#include <limits>

#include "worker/preflight/made_up_machine.h"

namespace muster::worker {
namespace {

constexpr int64_t kLlama8B = 8'030'261'248;
double GiBPerGpu(ShardingStage stage, int ranks) {
  const int64_t bytes = PlannedBytes({.parameters = kLlama8B, .stage = stage, .ranks = ranks});
  return static_cast<double>(bytes) / static_cast<double>(kGiB);
}

// 8.03 B parameters, by the formula: what is partitioned is divided by the ranks.
TEST(MemoryPlan, Llama8BPerGpu) {
  struct Row {
    int ranks;
    double zero1;
    double zero2;
    double zero3;
  };
  for (const Row& row : {Row{1, 119.7, 119.7, 119.7}, Row{2, 74.8, 67.3, 59.8},
                         Row{4, 52.4, 41.1, 29.9}, Row{8, 41.1, 28.0, 15.0}}) {
    EXPECT_NEAR(GiBPerGpu(ShardingStage::kZero1, row.ranks), row.zero1, 0.1) << row.ranks;
    EXPECT_NEAR(GiBPerGpu(ShardingStage::kZero2, row.ranks), row.zero2, 0.1) << row.ranks;
    EXPECT_NEAR(GiBPerGpu(ShardingStage::kZero3, row.ranks), row.zero3, 0.1) << row.ranks;
  }
}

TEST(MemoryPlan, TheLowestStageThatFitsIsProposed) {
  const MemoryPlan plan{.parameters = kLlama8B, .stage = ShardingStage::kNone, .ranks = 8};
  EXPECT_EQ(PlanThatFits(plan, 130 * kGiB)->stage, ShardingStage::kNone);
  EXPECT_EQ(PlanThatFits(plan, 45 * kGiB)->stage, ShardingStage::kZero1);
  EXPECT_EQ(PlanThatFits(plan, 30 * kGiB)->stage, ShardingStage::kZero2);
  EXPECT_EQ(PlanThatFits(plan, 20 * kGiB)->stage, ShardingStage::kZero3);
}

TEST(MemoryPlan, ElseMoreRanks) {
  const MemoryPlan plan{.parameters = kLlama8B, .stage = ShardingStage::kZero3, .ranks = 4};
  EXPECT_EQ(PlanThatFits(plan, 16 * kGiB)->ranks, 8);
  EXPECT_FALSE(PlanThatFits(plan, 1));
}

TEST(MemoryPlan, NothingOverflows) {
  const MemoryPlan plan{.parameters = std::numeric_limits<int64_t>::max(), .ranks = 1};
  EXPECT_EQ(PlannedBytes(plan), std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace muster::worker
