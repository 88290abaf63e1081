#include "worker/training/shard_layout.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

namespace muster::worker {
namespace {

class ShardLayoutOf : public testing::TestWithParam<std::tuple<int, int64_t>> {
 protected:
  const ParameterLayout layout{*NamedModel("llama-3-tiny")};
  const int world_size = std::get<0>(GetParam());
  const int64_t multiple = std::get<1>(GetParam());
};

TEST_P(ShardLayoutOf, EveryParameterIsOwnedByOneRank) {
  std::vector<int> owners(layout.size());
  for (int rank = 0; rank < world_size; ++rank) {
    const ShardLayout shards(layout, world_size, rank, multiple);
    for (const auto& unit : shards.units()) {
      for (int64_t i = 0; i < unit.chunk.used; ++i) ++owners[unit.chunk.offset + i];
    }
  }
  EXPECT_EQ(owners, std::vector<int>(layout.size(), 1));
}

TEST_P(ShardLayoutOf, ChunksOfAllRanksFillEachUnitInTheirOrder) {
  for (int rank = 0; rank < world_size; ++rank) {
    const ShardLayout shards(layout, world_size, rank, multiple);
    int64_t whole = 0;
    int64_t chunks = 0;
    for (const auto& unit : shards.units()) {
      EXPECT_EQ(unit.whole.begin, whole);
      EXPECT_EQ(unit.chunk.begin, chunks);
      EXPECT_EQ(unit.chunk.size % multiple, 0);
      EXPECT_EQ(unit.whole.size, unit.chunk.size * world_size);
      EXPECT_GE(unit.whole.size, unit.whole.used);
      EXPECT_EQ(unit.own, whole + rank * unit.chunk.size);
      // What the chunk holds lies in the whole where the chunk does.
      if (unit.chunk.used > 0) {
        EXPECT_EQ(unit.chunk.offset - unit.whole.offset, unit.own - whole);
      }
      whole += unit.whole.size;
      chunks += unit.chunk.size;
    }
    EXPECT_EQ(shards.whole_size(), whole);
    EXPECT_EQ(shards.chunk_size(), chunks);
  }
}

INSTANTIATE_TEST_SUITE_P(, ShardLayoutOf,
                         testing::Combine(testing::Values(1, 2, 3, 16, 1000),
                                          testing::Values(1, 64)));

}  // namespace
}  // namespace muster::worker
