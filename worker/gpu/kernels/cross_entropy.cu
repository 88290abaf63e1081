#include <cuda_pipeline.h>

#include "worker/gpu/kernels/cross_entropy.h"
#include "worker/gpu/kernels/vector.cuh"

namespace muster::worker {
namespace {

constexpr int kThreads = 512;
// Two blocks of a multiprocessor then overlap one's reading with the other's writing.
constexpr int64_t kMaxSharedRow = 110 * 1024;

__device__ float Exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// `warp` is the reduction of this warp's values; the same for all threads of the block.
template <typename Combine>
__device__ float AllWarps(float warp, float* shared, Combine combine) {
  if (threadIdx.x % kWarp == 0) {
    shared[threadIdx.x / kWarp] = warp;
  }
  __syncthreads();
  float all = shared[0];
#pragma unroll
  for (int i = 1; i < kThreads / kWarp; ++i) {
    all = combine(all, shared[i]);
  }
  return all;
}

// A block takes a row, and reads it three times: from a copy in shared memory if it fits there, or
// else again from L2, mostly.
template <bool kShared>
__global__ void __launch_bounds__(kThreads, 2)
    CrossEntropyKernel(int64_t vocabulary, int64_t stride, const int32_t* targets, float scale,
                       Bf16* logits, float* losses) {
  extern __shared__ Vector copy[];
  __shared__ float highest_of[kThreads / kWarp];
  __shared__ float sum_of[kThreads / kWarp];
  constexpr float kLog2E = 1.4426950408889634F;
  Bf16* row = logits + blockIdx.x * stride;
  const auto end = static_cast<int>(vocabulary);
  if constexpr (kShared) {
    for (int at = threadIdx.x * kVector; at < end; at += kThreads * kVector) {
      __pipeline_memcpy_async(copy + at / kVector, row + at, sizeof(Vector));
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);  // each thread reads only what it copied itself
  }
  const Bf16* source = kShared ? reinterpret_cast<const Bf16*>(copy) : row;
  // Beyond the vocabulary: minus infinity.
  const auto read = [&](int at) {
    Vector vector = LoadVector(source + at);
    if (at + kVector > end) {
      float values[kVector];
      Unpack(vector, values);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        values[i] = at + i < end ? values[i] : -INFINITY;
      }
      vector = Pack(values);
    }
    return vector;
  };
  const int target = targets[blockIdx.x];
  const float target_logit = __bfloat162float(row[target]);

  __nv_bfloat162 pair = __float2bfloat162_rn(-INFINITY);
#pragma unroll 4
  for (int at = threadIdx.x * kVector; at < end; at += kThreads * kVector) {
    const Vector vector = read(at);
#pragma unroll
    for (const __nv_bfloat162 values : vector.pairs) {
      pair = __hmax2(pair, values);
    }
  }
  const float2 both = __bfloat1622float2(pair);
  const float highest = AllWarps(WarpMax(fmaxf(both.x, both.y)), highest_of,
                                 [](float a, float b) { return fmaxf(a, b); });
  const float shift = -highest * kLog2E;
  float sum = 0;
#pragma unroll 4
  for (int at = threadIdx.x * kVector; at < end; at += kThreads * kVector) {
    float values[kVector];
    Unpack(read(at), values);
#pragma unroll
    for (const float value : values) {
      sum += Exp2(fmaf(value, kLog2E, shift));
    }
  }
  sum = AllWarps(WarpSum(sum), sum_of, [](float a, float b) { return a + b; });
  if (threadIdx.x == 0) {
    losses[blockIdx.x] = highest + __logf(sum) - target_logit;
  }
  if (scale == 0) {
    return;
  }
  // scale * exp(x - highest) / sum
  const float gradient_shift = shift + __log2f(scale) - __log2f(sum);
#pragma unroll 4
  for (int at = threadIdx.x * kVector; at < stride; at += kThreads * kVector) {
    float values[kVector] = {};
    if (at < end) {
      Unpack(read(at), values);
#pragma unroll
      for (float& value : values) {
        value = Exp2(fmaf(value, kLog2E, gradient_shift));
      }
      if (at <= target && target < at + kVector) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          values[i] -= at + i == target ? scale : 0;
        }
      }
    }
    Store(values, row + at);
  }
}

}  // namespace

void CrossEntropy(const LaunchContext& context, int64_t rows, int64_t vocabulary, int64_t stride,
                  const int32_t* targets, float scale, Bf16* logits, float* losses) {
  const int64_t bytes = CeilDiv(vocabulary, kVector) * static_cast<int64_t>(sizeof(Vector));
  // Smaller GPUs than Hopper's may not have as much.
  if (bytes <= kMaxSharedRow &&
      cudaFuncSetAttribute(CrossEntropyKernel<true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes)) == cudaSuccess) {
    CrossEntropyKernel<true><<<rows, kThreads, bytes, context.stream>>>(vocabulary, stride, targets,
                                                                        scale, logits, losses);
    return;
  }
  cudaGetLastError();
  CrossEntropyKernel<false>
      <<<rows, kThreads, 0, context.stream>>>(vocabulary, stride, targets, scale, logits, losses);
}

}  // namespace muster::worker
