#include "worker/gpu/kernels/embedding.h"
#include "worker/gpu/kernels/vector.cuh"

namespace muster::worker {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = 8;

__global__ void EmbedForwardKernel(int64_t size, int64_t sequence, int64_t channels,
                                   const int32_t* tokens, const Bf16* embedding,
                                   const Bf16* positions, Bf16* x) {
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  if (at >= size) {
    return;
  }
  const int64_t row = at / channels;
  const int64_t channel = at % channels;
  float values[kVector];
  Load(embedding + tokens[row] * channels + channel, values);
  if (positions != nullptr) {
    float position[kVector];
    Load(positions + row % sequence * channels + channel, position);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      values[i] += position[i];
    }
  }
  Store(values, x + at);
}

// A block takes one token and 256 channels; its warps share the token's rows.
__global__ void EmbedBackwardKernel(int64_t channels, TokenOrder tokens, const Bf16* dx,
                                    float* dembedding) {
  __shared__ float shared[kWarps][kWarp * kVector];
  const int64_t channel = (int64_t{blockIdx.y} * kWarp + threadIdx.x) * kVector;
  const int32_t end = tokens.first[blockIdx.x + 1];
  float sums[kVector] = {};
  if (channel < channels) {
#pragma unroll 2
    for (int32_t i = tokens.first[blockIdx.x] + threadIdx.y; i < end; i += kWarps) {
      float values[kVector];
      Load(dx + tokens.order[i] * channels + channel, values);
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        sums[k] += values[k];
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kVector; ++k) {
    shared[threadIdx.y][threadIdx.x * kVector + k] = sums[k];
  }
  __syncthreads();
  const int column = threadIdx.y * kWarp + threadIdx.x;
  const int64_t out = int64_t{blockIdx.y} * kWarp * kVector + column;
  if (out < channels) {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      sum += shared[warp][column];
    }
    dembedding[tokens.distinct[blockIdx.x] * channels + out] += sum;
  }
}

__global__ void PositionsBackwardKernel(int64_t rows, int64_t sequence, int64_t channels,
                                        const Bf16* dx, Into into, float* dpositions) {
  const int64_t size = sequence * channels;
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  if (at >= size) {
    return;
  }
  float sums[kVector] = {};
#pragma unroll 4
  for (int64_t first = 0; first < rows; first += sequence) {
    float values[kVector];
    Load(dx + first * channels + at, values);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      sums[i] += values[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    dpositions[at + i] = sums[i] + (into == Into::kAdd ? dpositions[at + i] : 0);
  }
}

}  // namespace

void EmbedForward(const LaunchContext& context, int64_t rows, int64_t sequence, int64_t channels,
                  const int32_t* tokens, const Bf16* embedding, const Bf16* positions, Bf16* x) {
  EmbedForwardKernel<<<CeilDiv(rows * channels, kThreads * kVector), kThreads, 0, context.stream>>>(
      rows * channels, sequence, channels, tokens, embedding, positions, x);
}

void EmbedBackward(const LaunchContext& context, int64_t channels, const TokenOrder& order,
                   const Bf16* dx, float* dembedding_add) {
  const dim3 grid(order.tokens, CeilDiv(channels, kWarp * kVector));
  EmbedBackwardKernel<<<grid, dim3(kWarp, kWarps), 0, context.stream>>>(channels, order, dx,
                                                                        dembedding_add);
}

void PositionsBackward(const LaunchContext& context, int64_t rows, int64_t sequence,
                       int64_t channels, const Bf16* dx, Into into, float* dpositions) {
  PositionsBackwardKernel<<<CeilDiv(sequence * channels, kThreads * kVector), kThreads, 0,
                            context.stream>>>(rows, sequence, channels, dx, into, dpositions);
}

}  // namespace muster::worker
