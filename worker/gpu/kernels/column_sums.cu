#include <algorithm>

#include "worker/gpu/kernels/column_sums.h"
#include "worker/gpu/kernels/column_tiles.cuh"

namespace muster::worker {
namespace {

constexpr int kDepth = 32;  // threads that share a column's partial sums

__global__ void ColumnSumsKernel(int64_t rows, int64_t channels, const Bf16* x, float* partials) {
  const int64_t column = int64_t{blockIdx.x} * kTileColumns + threadIdx.x * kVector;
  float sums[kVector] = {};
  if (column < channels) {
    const int64_t stride = int64_t{gridDim.y} * kTileWarps;
#pragma unroll 8
    for (int64_t row = blockIdx.y * kTileWarps + threadIdx.y; row < rows; row += stride) {
      float values[kVector];
      Load(x + row * channels + column, values);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        sums[i] += values[i];
      }
    }
  }
  StoreTileSums(sums, channels, partials);
}

__global__ void AddPartialsKernel(int64_t partials, int kinds, int64_t channels, const float* from,
                                  Into into, SumOutputs outputs) {
  float* out = outputs.rows[blockIdx.y];
  if (out == nullptr) {
    return;
  }
  __shared__ float sums[kDepth][kWarp];
  const int64_t channel = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  float sum = 0;
  if (channel < channels) {
#pragma unroll 4
    for (int64_t p = threadIdx.y; p < partials; p += kDepth) {
      sum += from[(p * kinds + blockIdx.y) * channels + channel];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && channel < channels) {
    float total = into == Into::kAdd ? out[channel] : 0;
    for (int depth = 0; depth < kDepth; ++depth) {
      total += sums[depth][threadIdx.x];
    }
    out[channel] = total;
  }
}

}  // namespace

int64_t PartialFloats(int multiprocessors, int64_t width) {
  // Three sums of each of two blocks per multiprocessor, or those of TileColumns.
  return std::max(int64_t{6} * multiprocessors * width,
                  int64_t{4} * multiprocessors * kTileColumns + width);
}

void AddPartials(const LaunchContext& context, int64_t partials, int kinds, int64_t channels,
                 Into into, const SumOutputs& outputs) {
  AddPartialsKernel<<<dim3(CeilDiv(channels, kWarp), kinds), dim3(kWarp, kDepth), 0,
                      context.stream>>>(partials, kinds, channels, context.partials, into, outputs);
}

void ColumnSums(const LaunchContext& context, int64_t rows, int64_t channels, const Bf16* x,
                Into into, float* out) {
  const ColumnTiles tiles = TileColumns(context, rows, channels);
  ColumnSumsKernel<<<tiles.grid, tiles.block, 0, context.stream>>>(rows, channels, x,
                                                                   context.partials);
  AddPartials(context, tiles.grid.y, 1, channels, into, {.rows = {out}});
}

}  // namespace muster::worker
