#include <cuda_pipeline.h>

#include <algorithm>
#include <array>
#include <utility>

#include "worker/gpu/kernels/column_sums.h"
#include "worker/gpu/kernels/norm.h"
#include "worker/gpu/kernels/vector.cuh"

namespace muster::worker {
namespace {

// The backward, and the forward of wide rows: a row belongs to a group of warps, each thread
// holding one vector of it. A block has several groups, so that another row is on its way while a
// group adds up its own. The forward of narrower rows: a row belongs to a warp.
constexpr int kMaxGroupWarps = kMaxNormChannels / (kWarp * kVector);
constexpr int kForwardThreads = 256;
constexpr int kBackwardThreads = 768;
constexpr int kMaxGroups = 15;      // named barriers, of which 0 is the block's
constexpr int kMaxWarpVectors = 8;  // of a row, that each thread of a warp holds
constexpr int kStages = 2;          // rows of a group in the backward: one in use, one coming

// Sums of two values over a group. Every thread of the group calls it as often.
class GroupSum {
 public:
  __device__ GroupSum()
      : warps_(blockDim.x / kWarp), warp_(threadIdx.x / kWarp), lane_(threadIdx.x % kWarp) {}

  __device__ float2 operator()(float2 values) {
    // Two copies, so that the next sum needn't wait for the readers of this one.
    __shared__ float2 sums[2][kMaxGroups][kMaxGroupWarps];
    values.x = WarpSum(values.x);
    values.y = WarpSum(values.y);
    if (warps_ == 1) {
      return values;
    }
    float2* group = sums[copy_][threadIdx.y];
    copy_ = 1 - copy_;
    if (lane_ == 0) {
      group[warp_] = values;
    }
    asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.y), "r"(blockDim.x) : "memory");
    values = {0, 0};
    for (int warp = 0; warp < warps_; ++warp) {
      values.x += group[warp].x;
      values.y += group[warp].y;
    }
    return values;
  }

 private:
  int warps_;
  int warp_;
  int lane_;
  int copy_ = 0;
};

template <NormKind kKind, int kVectors>
__global__ void __launch_bounds__(kForwardThreads)
    NormForwardWarpKernel(NormShape shape, const Bf16* x, NormWeights weights, Bf16* y,
                          NormStatistics statistics) {
  constexpr bool kLayerNorm = kKind == NormKind::kLayerNorm;
  const int lane = threadIdx.x % kWarp;
  const int64_t row = int64_t{blockIdx.x} * (kForwardThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= shape.rows) {
    return;
  }
  const auto channels = static_cast<int>(shape.channels);
  const float per_channel = 1 / static_cast<float>(channels);
  x += row * channels;
  y += row * channels;
  Vector vectors[kVectors] = {};
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int column = (i * kWarp + lane) * kVector;
    if (column < channels) {
      vectors[i] = LoadVector(x + column);
    }
  }
  float mean = 0;
  if constexpr (kLayerNorm) {
    float sum = 0;
#pragma unroll
    for (const Vector& vector : vectors) {
      float values[kVector];
      Unpack(vector, values);
#pragma unroll
      for (const float value : values) {
        sum += value;
      }
    }
    mean = WarpSum(sum) * per_channel;
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if ((i * kWarp + lane) * kVector < channels) {
      float values[kVector];
      Unpack(vectors[i], values);
#pragma unroll
      for (const float value : values) {
        squares += (value - mean) * (value - mean);
      }
    }
  }
  const float inverse = rsqrtf(WarpSum(squares) * per_channel + shape.epsilon);
  if (lane == 0) {
    if constexpr (kLayerNorm) {
      statistics.mean[row] = mean;
    }
    statistics.inverse[row] = inverse;
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int column = (i * kWarp + lane) * kVector;
    if (column < channels) {
      float values[kVector];
      float scale[kVector];
      float shift[kVector] = {};
      Unpack(vectors[i], values);
      Load(weights.weight + column, scale);
      if constexpr (kLayerNorm) {
        Load(weights.bias + column, shift);
      }
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        values[k] = (values[k] - mean) * inverse * scale[k] + shift[k];
      }
      Store(values, y + column);
    }
  }
}

template <NormKind kKind>
__global__ void __launch_bounds__(kBackwardThreads)
    NormForwardKernel(NormShape shape, const Bf16* x, NormWeights weights, Bf16* y,
                      NormStatistics statistics) {
  constexpr bool kLayerNorm = kKind == NormKind::kLayerNorm;
  const int column = threadIdx.x * kVector;
  const bool active = column < shape.channels;
  const auto channels = static_cast<float>(shape.channels);
  float scale[kVector] = {};
  float shift[kVector] = {};
  if (active) {
    Load(weights.weight + column, scale);
    if constexpr (kLayerNorm) {
      Load(weights.bias + column, shift);
    }
  }
  GroupSum group_sum;
  const int64_t stride = int64_t{gridDim.x} * blockDim.y;
  int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  Vector next = {};
  if (active && row < shape.rows) {
    next = LoadVector(x + row * shape.channels + column);
  }
  for (; row < shape.rows; row += stride) {
    float values[kVector];
    Unpack(next, values);
    if (active && row + stride < shape.rows) {
      next = LoadVector(x + (row + stride) * shape.channels + column);
    }
    float mean = 0;
    if constexpr (kLayerNorm) {
      float sum = 0;
#pragma unroll
      for (const float value : values) {
        sum += value;
      }
      mean = group_sum({sum, 0}).x / channels;
    }
    float squares = 0;
    if (active) {
#pragma unroll
      for (const float value : values) {
        squares += (value - mean) * (value - mean);
      }
    }
    const float inverse = rsqrtf(group_sum({squares, 0}).x / channels + shape.epsilon);
    if (threadIdx.x == 0) {
      if constexpr (kLayerNorm) {
        statistics.mean[row] = mean;
      }
      statistics.inverse[row] = inverse;
    }
    if (active) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        values[i] = (values[i] - mean) * inverse * scale[i] + shift[i];
      }
      Store(values, y + row * shape.channels + column);
    }
  }
}

// What a thread needs of a row.
struct BackwardVectors {
  Vector x, dy, dx;
};

// Adds up the groups' sums, one group after the other, and stores them as partials[block][kind].
template <int kKinds>
__device__ void StoreGroupSums(const float (&sums)[kKinds][kVector], int64_t channels, int column,
                               float* total, float* partials) {
#pragma unroll
  for (int kind = 0; kind < kKinds; ++kind) {
    for (int group = 0; group < blockDim.y; ++group) {
      if (threadIdx.y == group && column < channels) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          total[column + i] = sums[kind][i] + (group == 0 ? 0 : total[column + i]);
        }
      }
      __syncthreads();
    }
    if (threadIdx.y == 0 && column < channels) {
      float* out = partials + (int64_t{blockIdx.x} * kKinds + kind) * channels + column;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        out[i] = total[column + i];
      }
    }
    __syncthreads();
  }
}

template <NormKind kKind, bool kStoresOutput>
__global__ void __launch_bounds__(kBackwardThreads, 1)
    NormBackwardKernel(NormShape shape, const Bf16* x, NormWeights weights,
                       NormStatistics statistics, const Bf16* dy, const Bf16* dx_in, Bf16* dx_out,
                       Bf16* y, float* partials) {
  constexpr bool kLayerNorm = kKind == NormKind::kLayerNorm;
  const int column = threadIdx.x * kVector;
  const bool active = column < shape.channels;
  const float per_channel = 1 / static_cast<float>(shape.channels);
  float scale[kVector] = {};
  float shift[kVector] = {};
  if (active) {
    Load(weights.weight + column, scale);
    if constexpr (kLayerNorm && kStoresOutput) {
      Load(weights.bias + column, shift);
    }
  }
  // Each thread copies and reads places of its own, so no barrier is needed between them.
  extern __shared__ BackwardVectors stages[];
  BackwardVectors* own = stages + threadIdx.y * blockDim.x + threadIdx.x;
  const int threads = blockDim.x * blockDim.y;
  const auto fetch = [&](int stage, int64_t row) {
    if (active && row < shape.rows) {
      const int64_t at = row * shape.channels + column;
      BackwardVectors* to = own + stage * threads;
      __pipeline_memcpy_async(&to->x, x + at, sizeof(Vector));
      __pipeline_memcpy_async(&to->dy, dy + at, sizeof(Vector));
      if (dx_in != nullptr) {
        __pipeline_memcpy_async(&to->dx, dx_in + at, sizeof(Vector));
      }
    }
    __pipeline_commit();
  };
  float sums[3][kVector] = {};  // of weight, bias, stream
  GroupSum group_sum;
  const int64_t stride = int64_t{gridDim.x} * blockDim.y;
  int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  for (int stage = 0; stage < kStages - 1; ++stage) {
    fetch(stage, row + stage * stride);
  }
  float next_mean = 0;
  float next_inverse = 0;
  const auto fetch_statistics = [&](int64_t of_row) {
    if (of_row < shape.rows) {
      next_mean = kLayerNorm ? statistics.mean[of_row] : 0;
      next_inverse = statistics.inverse[of_row];
    }
  };
  fetch_statistics(row);
  for (int stage = 0; row < shape.rows; row += stride, stage = (stage + 1) % kStages) {
    fetch((stage + kStages - 1) % kStages, row + (kStages - 1) * stride);
    const float mean = next_mean;
    const float inverse = next_inverse;
    fetch_statistics(row + stride);
    __pipeline_wait_prior(kStages - 1);
    BackwardVectors now = {};
    if (active) {
      now.x = own[stage * threads].x;
      now.dy = own[stage * threads].dy;
      if (dx_in != nullptr) {
        now.dx = own[stage * threads].dx;
      }
    }
    float normal[kVector];
    float gradient[kVector];
    Unpack(now.x, normal);
    Unpack(now.dy, gradient);
    float2 local = {0, 0};  // sums of the scaled gradient, and of it times the normal
    const float shift_mean = -mean * inverse;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      normal[i] = fmaf(normal[i], inverse, shift_mean);
      sums[0][i] += gradient[i] * normal[i];
      sums[1][i] += gradient[i];
      gradient[i] *= scale[i];
      local.x += gradient[i];
      local.y += gradient[i] * normal[i];
    }
    const float2 group = group_sum(local);
    const float constant = kLayerNorm ? -inverse * per_channel * group.x : 0;
    const float slope = -inverse * per_channel * group.y;
    float stream[kVector];
    Unpack(now.dx, stream);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      stream[i] = fmaf(inverse, gradient[i], fmaf(normal[i], slope, stream[i] + constant));
      sums[2][i] += stream[i];
    }
    if (active) {
      const int64_t at = row * shape.channels + column;
      Store(stream, dx_out + at);
      if constexpr (kStoresOutput) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          normal[i] = normal[i] * scale[i] + shift[i];
        }
        Store(normal, y + at);
      }
    }
  }
  __syncthreads();
  StoreGroupSums(sums, shape.channels, column, reinterpret_cast<float*>(stages), partials);
}

// Threads of a row, and rows of a block.
dim3 GroupsOf(const NormShape& shape, int threads) {
  const int64_t group = CeilDiv(shape.channels, kWarp * kVector) * kWarp;
  return dim3(group, std::clamp<int64_t>(threads / group, 1, kMaxGroups));
}

// Those for rows of 1, 2, ... vectors a thread.
template <NormKind kKind, int... kVectors>
constexpr auto WarpKernels(std::integer_sequence<int, kVectors...> /*counts*/) {
  return std::array{&NormForwardWarpKernel<kKind, kVectors + 1>...};
}

}  // namespace

void NormForward(const LaunchContext& context, const NormShape& shape, const Bf16* x,
                 NormWeights weights, Bf16* y, NormStatistics statistics) {
  if (const int64_t vectors = CeilDiv(shape.channels, kWarp * kVector);
      vectors <= kMaxWarpVectors) {
    constexpr auto kCounts = std::make_integer_sequence<int, kMaxWarpVectors>();
    const auto warp_kernel = shape.kind == NormKind::kLayerNorm
                                 ? WarpKernels<NormKind::kLayerNorm>(kCounts)[vectors - 1]
                                 : WarpKernels<NormKind::kRmsNorm>(kCounts)[vectors - 1];
    warp_kernel<<<CeilDiv(shape.rows, kForwardThreads / kWarp), kForwardThreads, 0,
                  context.stream>>>(shape, x, weights, y, statistics);
    return;
  }
  const dim3 block = GroupsOf(shape, kForwardThreads);
  const int64_t resident = 2048 / (block.x * block.y);
  const int64_t blocks =
      std::min<int64_t>(CeilDiv(shape.rows, block.y), resident * context.multiprocessors);
  const auto kernel = shape.kind == NormKind::kLayerNorm ? NormForwardKernel<NormKind::kLayerNorm>
                                                         : NormForwardKernel<NormKind::kRmsNorm>;
  kernel<<<blocks, block, 0, context.stream>>>(shape, x, weights, y, statistics);
}

void NormBackward(const LaunchContext& context, const NormShape& shape, const Bf16* x,
                  NormWeights weights, NormStatistics statistics, const Bf16* dy, const Bf16* dx_in,
                  Bf16* dx_out, Bf16* y, Into into, const NormGradients& gradients) {
  const dim3 block = GroupsOf(shape, kBackwardThreads);
  const int64_t blocks = std::min<int64_t>(CeilDiv(shape.rows, block.y), context.multiprocessors);
  const auto kernel = shape.kind == NormKind::kLayerNorm
                          ? (y == nullptr ? NormBackwardKernel<NormKind::kLayerNorm, false>
                                          : NormBackwardKernel<NormKind::kLayerNorm, true>)
                          : (y == nullptr ? NormBackwardKernel<NormKind::kRmsNorm, false>
                                          : NormBackwardKernel<NormKind::kRmsNorm, true>);
  const auto shared = static_cast<int>(kStages * block.x * block.y * sizeof(BackwardVectors));
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  kernel<<<blocks, block, shared, context.stream>>>(shape, x, weights, statistics, dy, dx_in,
                                                    dx_out, y, context.partials);
  AddPartials(context, blocks, 3, shape.channels, into,
              {.rows = {gradients.weight, gradients.bias, gradients.stream}});
}

}  // namespace muster::worker
