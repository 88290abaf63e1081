#include "worker/training/shard_layout.h"

#include <algorithm>

namespace muster::worker {

ShardLayout::ShardLayout(const ParameterLayout& layout, int world_size, int rank,
                         int64_t multiple) {
  const int64_t granule = multiple * world_size;
  for (const ParameterLayout::Unit& unit : layout.units()) {
    const int64_t chunk = (unit.size + granule - 1) / granule * multiple;
    const int64_t first = std::min(unit.size, rank * chunk);
    units_.push_back({.whole = {.offset = unit.offset,
                                .used = unit.size,
                                .size = chunk * world_size,
                                .begin = whole_size_},
                      .chunk = {.offset = unit.offset + first,
                                .used = std::min(chunk, unit.size - first),
                                .size = chunk,
                                .begin = chunk_size_},
                      .own = whole_size_ + rank * chunk});
    whole_size_ += chunk * world_size;
    chunk_size_ += chunk;
  }
}

}  // namespace muster::worker
