// Reductions in the order of ranks, the same in every communicator that computes on the CPU.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "worker/communicator/communicator.h"

namespace muster::worker {

// output[i] = inputs[0][i] + inputs[1][i] + ..., or their maximum, over `count` elements. `output`
// may be one of `inputs`.
void ReduceInRankOrder(std::span<const float* const> inputs, Reduction reduction, float* output,
                       size_t count);

// Elements [begin, end) of `total`, cut into one shard a rank: equal ones, but the last ones that
// may be shorter or empty.
struct ShardRange {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
};
ShardRange ShardOf(size_t total, int rank, int world_size);
// The shards of a group's ranks, in its order, when they alone share the elements.
std::vector<ShardRange> ShardsOf(std::span<const int> group, size_t total);
// Where in a group that rank is.
size_t PlaceIn(std::span<const int> group, int rank);

}  // namespace muster::worker
