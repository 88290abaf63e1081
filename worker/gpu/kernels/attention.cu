#include <cmath>

#include "worker/gpu/kernels/attention.h"
#include "worker/gpu/kernels/vector.cuh"

namespace muster::worker {
namespace {

// Four neighbouring threads share a row (a query, or a key); a block has 64 rows and walks over
// the other side 32 rows at a time.
constexpr int kLanes = 4;
constexpr int kRows = 64;
constexpr int kTile = 32;
constexpr int kThreads = kLanes * kRows;

__device__ float LanesSum(float value) {
  value += __shfl_xor_sync(0xFFFFFFFF, value, 1);
  return value + __shfl_xor_sync(0xFFFFFFFF, value, 2);
}

// This lane's channels of a row: lane, lane + 4, ...
template <int kSize>
struct Share {
  static constexpr int kCount = kSize / kLanes;
  float values[kCount] = {};

  __device__ void Read(const Bf16* row, int lane) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = __bfloat162float(row[i * kLanes + lane]);
    }
  }
  __device__ void Write(float factor, Bf16* row, int lane) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      row[i * kLanes + lane] = __float2bfloat16(factor * values[i]);
    }
  }
  __device__ float Dot(const float* row, int lane) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      sum += values[i] * row[i * kLanes + lane];
    }
    return LanesSum(sum);
  }
  __device__ void Add(float factor, const float* row, int lane) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] += factor * row[i * kLanes + lane];
    }
  }
};

template <int kSize>
struct Tile {
  float rows[kTile][kSize];

  // Rows from `first` on; zero from `end` on.
  __device__ void Read(const Bf16* from, int64_t stride, int64_t first, int64_t end) {
    for (int i = threadIdx.x; i < kTile * kSize; i += kThreads) {
      const int64_t row = first + i / kSize;
      rows[i / kSize][i % kSize] = row < end ? __bfloat162float(from[row * stride + i % kSize]) : 0;
    }
  }
};

template <int kSize>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(AttentionShape shape, float scale, const Bf16* qkv, Bf16* y, float* statistics) {
  __shared__ Tile<kSize> keys;
  __shared__ Tile<kSize> values;
  const int lane = threadIdx.x % kLanes;
  const int64_t head = blockIdx.y;
  const int64_t key_head = shape.heads + head / (shape.heads / shape.key_value_heads);
  const int64_t query = int64_t{blockIdx.x} * kRows + threadIdx.x / kLanes;
  const int64_t stride = shape.heads * shape.head_size;
  const int64_t row = shape.heads * kSize + 2 * shape.key_value_heads * kSize;
  const Bf16* sequence = qkv + blockIdx.z * shape.sequence * row;
  Share<kSize> q;
  Share<kSize> sum;
  if (query < shape.sequence) {
    q.Read(sequence + query * row + head * kSize, lane);
  }
  float highest = -INFINITY;
  float total = 0;
  const int64_t end = min(shape.sequence, (int64_t{blockIdx.x} + 1) * kRows);
  for (int64_t first = 0; first < end; first += kTile) {
    __syncthreads();
    keys.Read(sequence + key_head * kSize, row, first, end);
    values.Read(sequence + (key_head + shape.key_value_heads) * kSize, row, first, end);
    __syncthreads();
    for (int k = 0; k < kTile; ++k) {
      const float score = scale * q.Dot(keys.rows[k], lane);
      if (first + k <= query && query < shape.sequence) {
        const float higher = fmaxf(highest, score);
        const float shrink = __expf(highest - higher);
        const float weight = __expf(score - higher);
        total = total * shrink + weight;
#pragma unroll
        for (float& value : sum.values) {
          value *= shrink;
        }
        sum.Add(weight, values.rows[k], lane);
        highest = higher;
      }
    }
  }
  if (query < shape.sequence) {
    sum.Write(1 / total, y + (blockIdx.z * shape.sequence + query) * stride + head * kSize, lane);
    if (lane == 0) {
      statistics[(blockIdx.z * shape.heads + head) * shape.sequence + query] =
          highest + __logf(total);
    }
  }
}

// Gradients of queries; leaves each query's sum of dy * y in `deltas` for the other kernel.
template <int kSize>
__global__ void __launch_bounds__(kThreads)
    QueryGradientKernel(AttentionShape shape, float scale, const Bf16* qkv, const Bf16* y,
                        const float* statistics, const Bf16* dy, Bf16* dqkv, float* deltas) {
  __shared__ Tile<kSize> keys;
  __shared__ Tile<kSize> values;
  const int lane = threadIdx.x % kLanes;
  const int64_t head = blockIdx.y;
  const int64_t key_head = shape.heads + head / (shape.heads / shape.key_value_heads);
  const int64_t query = int64_t{blockIdx.x} * kRows + threadIdx.x / kLanes;
  const bool active = query < shape.sequence;
  const int64_t row = (shape.heads + 2 * shape.key_value_heads) * kSize;
  const Bf16* sequence = qkv + blockIdx.z * shape.sequence * row;
  const int64_t output = ((blockIdx.z * shape.sequence + query) * shape.heads + head) * kSize;
  const int64_t statistic = (blockIdx.z * shape.heads + head) * shape.sequence + query;
  Share<kSize> q;
  Share<kSize> gradient;
  Share<kSize> dq;
  float delta = 0;
  float logarithm = 0;
  if (active) {
    q.Read(sequence + query * row + head * kSize, lane);
    gradient.Read(dy + output, lane);
    logarithm = statistics[statistic];
#pragma unroll
    for (int i = 0; i < Share<kSize>::kCount; ++i) {
      delta += gradient.values[i] * __bfloat162float(y[output + i * kLanes + lane]);
    }
  }
  delta = LanesSum(delta);
  const int64_t end = min(shape.sequence, (int64_t{blockIdx.x} + 1) * kRows);
  for (int64_t first = 0; first < end; first += kTile) {
    __syncthreads();
    keys.Read(sequence + key_head * kSize, row, first, end);
    values.Read(sequence + (key_head + shape.key_value_heads) * kSize, row, first, end);
    __syncthreads();
    for (int k = 0; k < kTile; ++k) {
      const float score = scale * q.Dot(keys.rows[k], lane);
      const float dp = gradient.Dot(values.rows[k], lane);
      if (active && first + k <= query) {
        dq.Add(scale * __expf(score - logarithm) * (dp - delta), keys.rows[k], lane);
      }
    }
  }
  if (active) {
    dq.Write(1, dqkv + blockIdx.z * shape.sequence * row + query * row + head * kSize, lane);
    if (lane == 0) {
      deltas[statistic] = delta;
    }
  }
}

// Gradients of keys and values, summed over the query heads that share them.
template <int kSize>
__global__ void __launch_bounds__(kThreads)
    KeyGradientKernel(AttentionShape shape, float scale, const Bf16* qkv, const float* statistics,
                      const Bf16* dy, Bf16* dqkv, const float* deltas) {
  __shared__ Tile<kSize> queries;
  __shared__ Tile<kSize> gradients;
  const int lane = threadIdx.x % kLanes;
  const int64_t group = shape.heads / shape.key_value_heads;
  const int64_t key_head = shape.heads + blockIdx.y;
  const int64_t value_head = key_head + shape.key_value_heads;
  const int64_t first_key = int64_t{blockIdx.x} * kRows;
  const int64_t key = first_key + threadIdx.x / kLanes;
  const bool active = key < shape.sequence;
  const int64_t row = (shape.heads + 2 * shape.key_value_heads) * kSize;
  const Bf16* sequence = qkv + blockIdx.z * shape.sequence * row;
  Share<kSize> k;
  Share<kSize> v;
  Share<kSize> dk;
  Share<kSize> dv;
  if (active) {
    k.Read(sequence + key * row + key_head * kSize, lane);
    v.Read(sequence + key * row + value_head * kSize, lane);
  }
  for (int64_t head = blockIdx.y * group; head < (blockIdx.y + 1) * group; ++head) {
    const int64_t statistic = (blockIdx.z * shape.heads + head) * shape.sequence;
    for (int64_t first = first_key; first < shape.sequence; first += kTile) {
      __syncthreads();
      queries.Read(sequence + head * kSize, row, first, shape.sequence);
      gradients.Read(dy + (blockIdx.z * shape.sequence * shape.heads + head) * kSize,
                     shape.heads * kSize, first, shape.sequence);
      __syncthreads();
      for (int q = 0; q < kTile; ++q) {
        const float score = scale * k.Dot(queries.rows[q], lane);
        const float dp = v.Dot(gradients.rows[q], lane);
        const int64_t query = first + q;
        if (active && key <= query && query < shape.sequence) {
          const float weight = __expf(score - statistics[statistic + query]);
          dv.Add(weight, gradients.rows[q], lane);
          dk.Add(scale * weight * (dp - deltas[statistic + query]), queries.rows[q], lane);
        }
      }
    }
  }
  if (active) {
    Bf16* out = dqkv + (blockIdx.z * shape.sequence + key) * row;
    dk.Write(1, out + key_head * kSize, lane);
    dv.Write(1, out + value_head * kSize, lane);
  }
}

float ScaleOf(const AttentionShape& shape) {
  return 1 / std::sqrt(static_cast<float>(shape.head_size));
}

dim3 GridOf(const AttentionShape& shape, int64_t heads) {
  return dim3(CeilDiv(shape.sequence, kRows), heads, shape.sequences);
}

template <int kSize>
void Backward(const LaunchContext& context, const AttentionShape& shape, const Bf16* qkv,
              const Bf16* y, const float* statistics, const Bf16* dy, Bf16* dqkv, float* deltas) {
  QueryGradientKernel<kSize><<<GridOf(shape, shape.heads), kThreads, 0, context.stream>>>(
      shape, ScaleOf(shape), qkv, y, statistics, dy, dqkv, deltas);
  KeyGradientKernel<kSize><<<GridOf(shape, shape.key_value_heads), kThreads, 0, context.stream>>>(
      shape, ScaleOf(shape), qkv, statistics, dy, dqkv, deltas);
}

}  // namespace

void AttentionForward(const LaunchContext& context, const AttentionShape& shape, const Bf16* qkv,
                      Bf16* y, float* statistics) {
  const auto kernel = shape.head_size == 16   ? ForwardKernel<16>
                      : shape.head_size == 32 ? ForwardKernel<32>
                      : shape.head_size == 64 ? ForwardKernel<64>
                                              : ForwardKernel<128>;
  kernel<<<GridOf(shape, shape.heads), kThreads, 0, context.stream>>>(shape, ScaleOf(shape), qkv, y,
                                                                      statistics);
}

void AttentionBackward(const LaunchContext& context, const AttentionShape& shape, const Bf16* qkv,
                       const Bf16* y, const float* statistics, const Bf16* dy, Bf16* dqkv,
                       float* deltas) {
  const auto backward = shape.head_size == 16   ? Backward<16>
                        : shape.head_size == 32 ? Backward<32>
                        : shape.head_size == 64 ? Backward<64>
                                                : Backward<128>;
  backward(context, shape, qkv, y, statistics, dy, dqkv, deltas);
}

}  // namespace muster::worker
