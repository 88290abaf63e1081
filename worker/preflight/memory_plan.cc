#include "worker/preflight/memory_plan.h"

#include <limits>

namespace muster::worker {
namespace {

constexpr int kWeightBytes = 2;
constexpr int kGradientBytes = 2;
constexpr int kOptimizerBytes = 12;
constexpr int kMaxRanks = 65'536;
constexpr int64_t kMaxParameters = std::numeric_limits<int64_t>::max() / 16;

int64_t Share(int64_t bytes, bool partitioned, int ranks) {
  return partitioned ? (bytes + ranks - 1) / ranks : bytes;
}

}  // namespace

int64_t PlannedBytes(const MemoryPlan& plan) {
  if (plan.parameters > kMaxParameters) return std::numeric_limits<int64_t>::max();
  const auto part = [&](int bytes_each, ShardingStage from) {
    return Share(plan.parameters * bytes_each, plan.stage >= from, plan.ranks);
  };
  return part(kOptimizerBytes, ShardingStage::kZero1) +
         part(kGradientBytes, ShardingStage::kZero2) + part(kWeightBytes, ShardingStage::kZero3);
}

std::optional<MemoryPlan> PlanThatFits(const MemoryPlan& plan, int64_t free_bytes) {
  MemoryPlan other = plan;
  for (const ShardingStage stage : {ShardingStage::kNone, ShardingStage::kZero1,
                                    ShardingStage::kZero2, ShardingStage::kZero3}) {
    other.stage = stage;
    if (PlannedBytes(other) <= free_bytes) return other;
  }
  while (other.ranks < kMaxRanks) {
    other.ranks *= 2;
    if (PlannedBytes(other) <= free_bytes) return other;
  }
  return std::nullopt;
}

std::string StageName(ShardingStage stage) {
  if (stage == ShardingStage::kNone) return "data parallel";
  return "ZeRO-" + std::to_string(static_cast<int>(stage));
}

}  // namespace muster::worker
