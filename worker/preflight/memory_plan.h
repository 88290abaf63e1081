// How much of a GPU's memory a model's weights, gradients and optimizer take before any activation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::worker {

// What is partitioned over the ranks: the optimizer's state; gradients too; weights too.
enum class ShardingStage : uint8_t { kNone = 0, kZero1 = 1, kZero2 = 2, kZero3 = 3 };

struct MemoryPlan {
  int64_t parameters = 0;
  ShardingStage stage = ShardingStage::kNone;
  int ranks = 1;
};

// Bytes per GPU with weights and gradients in bf16 and, in fp32, the master weights and AdamW's two
// moments: 16 bytes a parameter, less what is partitioned. Saturates instead of overflowing;
// `parameters` isn't negative and `ranks` is at least 1.
int64_t PlannedBytes(const MemoryPlan& plan);

// What to do so that the plan fits into `free_bytes`: the lowest stage that does at these ranks, or
// else the fewest ranks with kZero3; nothing if not even 65,536 ranks are enough.
std::optional<MemoryPlan> PlanThatFits(const MemoryPlan& plan, int64_t free_bytes);

std::string StageName(ShardingStage stage);  // "data parallel", "ZeRO-1", ...

}  // namespace muster::worker
