// Blocks that each take 256 columns and a share of the rows, for passes over a matrix that sum its
// columns on the way.
#pragma once

#include <algorithm>

#include "worker/gpu/kernels/vector.cuh"

namespace muster::worker {

constexpr int kTileColumns = kWarp * kVector;
constexpr int kTileWarps = 8;

struct ColumnTiles {
  dim3 grid;  // tiles of columns, shares of the rows
  dim3 block;
};

inline ColumnTiles TileColumns(const LaunchContext& context, int64_t rows, int64_t columns) {
  const int64_t tiles = CeilDiv(columns, kTileColumns);
  const int64_t shares =
      std::min(CeilDiv(int64_t{4} * context.multiprocessors, tiles), CeilDiv(rows, kTileWarps));
  return {.grid = dim3(tiles, shares), .block = dim3(kWarp, kTileWarps)};
}

// Adds up the block's sums and leaves them in its share's row of partials[shares][columns].
__device__ inline void StoreTileSums(const float (&sums)[kVector], int64_t columns,
                                     float* partials) {
  __shared__ float tile[kTileWarps][kTileColumns];
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    tile[threadIdx.y][threadIdx.x * kVector + i] = sums[i];
  }
  __syncthreads();
  const int column = threadIdx.y * kWarp + threadIdx.x;
  const int64_t at = int64_t{blockIdx.x} * kTileColumns + column;
  if (at < columns) {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kTileWarps; ++warp) {
      sum += tile[warp][column];
    }
    partials[blockIdx.y * columns + at] = sum;
  }
}

}  // namespace muster::worker
