#include "worker/communicator/rank_order.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace muster::worker {
namespace {

// Small enough for the first-level cache.
constexpr size_t kBlock = 1024;

void Accumulate(const float* values, Reduction reduction, float* sums, size_t count) {
  if (reduction == Reduction::kSum) {
    for (size_t i = 0; i < count; ++i) sums[i] += values[i];
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    if (std::isnan(values[i]) || values[i] > sums[i]) sums[i] = values[i];
  }
}

}  // namespace

void ReduceInRankOrder(std::span<const float* const> inputs, Reduction reduction, float* output,
                       size_t count) {
  std::array<float, kBlock> sums;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t length = std::min(kBlock, count - begin);
    std::copy_n(inputs[0] + begin, length, sums.begin());
    for (const float* input : inputs.subspan(1)) {
      Accumulate(input + begin, reduction, sums.data(), length);
    }
    std::copy_n(sums.begin(), length, output + begin);
  }
}

ShardRange ShardOf(size_t total, int rank, int world_size) {
  const size_t stride = (total + world_size - 1) / world_size;
  return {.begin = std::min(total, rank * stride), .end = std::min(total, (rank + 1) * stride)};
}

std::vector<ShardRange> ShardsOf(std::span<const int> group, size_t total) {
  const auto ranks = static_cast<int>(group.size());
  std::vector<ShardRange> shards;
  for (int place = 0; place < ranks; ++place) shards.push_back(ShardOf(total, place, ranks));
  return shards;
}

size_t PlaceIn(std::span<const int> group, int rank) {
  return static_cast<size_t>(std::ranges::lower_bound(group, rank) - group.begin());
}

}  // namespace muster::worker
