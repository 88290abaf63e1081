#include "worker/gpu/kernels/cross_entropy.h"

#include <cuda_pipeline.h>

#include "worker/gpu/kernels/vector.cuh"

namespace muster::worker {
namespace {

constexpr int kThreads = 512;
// Two blocks of a multiprocessor then overlap one's reading with the other's writing.
constexpr int64_t kMaxSharedRow = 110 * 1024;

// The sum of exp(x - highest) over what was seen, and the highest.
struct Exponentials {
  float highest = -INFINITY;
  float sum = 0;

  __device__ void Add(const Exponentials& other) {
    const float both = fmaxf(highest, other.highest);
    if (both != -INFINITY) {
      sum = sum * __expf(highest - both) + other.sum * __expf(other.highest - both);
      highest = both;
    }
  }
};

__device__ Exponentials BlockAdd(Exponentials values) {
  __shared__ Exponentials warps[kThreads / kWarp];
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    values.Add({__shfl_xor_sync(0xFFFFFFFF, values.highest, offset),
                __shfl_xor_sync(0xFFFFFFFF, values.sum, offset)});
  }
  if (threadIdx.x % kWarp == 0) {
    warps[threadIdx.x / kWarp] = values;
  }
  __syncthreads();
  values = warps[0];
  for (int warp = 1; warp < kThreads / kWarp; ++warp) {
    values.Add(warps[warp]);
  }
  return values;
}

// A block takes a row, and reads it twice: from a copy in shared memory if it fits there, or else
// the second time from L2, mostly.
template <bool kShared>
__global__ void __launch_bounds__(kThreads)
    CrossEntropyKernel(int64_t vocabulary, int64_t stride, const int32_t* targets, float scale,
                       Bf16* logits, float* losses) {
  extern __shared__ Vector copy[];
  Bf16* row = logits + blockIdx.x * stride;
  const Bf16* source = row;
  if constexpr (kShared) {
    for (int64_t at = threadIdx.x * kVector; at < vocabulary; at += kThreads * kVector) {
      __pipeline_memcpy_async(copy + at / kVector, row + at, sizeof(Vector));
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);  // each thread reads only what it copied itself
    source = reinterpret_cast<const Bf16*>(copy);
  }
  const int32_t target = targets[blockIdx.x];
  const float target_logit = __bfloat162float(row[target]);
  Exponentials local;
  for (int64_t at = threadIdx.x * kVector; at < vocabulary; at += kThreads * kVector) {
    float values[kVector];
    Load(source + at, values);
    float highest = -INFINITY;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      values[i] = at + i < vocabulary ? values[i] : -INFINITY;
      highest = fmaxf(highest, values[i]);
    }
    if (highest > local.highest) {
      local.sum *= __expf(local.highest - highest);
      local.highest = highest;
    }
#pragma unroll
    for (const float value : values) {
      local.sum += __expf(value - local.highest);
    }
  }
  // Also a barrier between the reading of the target's logit and the writing.
  const Exponentials all = BlockAdd(local);
  if (threadIdx.x == 0) {
    losses[blockIdx.x] = all.highest + __logf(all.sum) - target_logit;
  }
  if (scale == 0) {
    return;
  }
  const float factor = scale / all.sum;
  for (int64_t at = threadIdx.x * kVector; at < stride; at += kThreads * kVector) {
    float values[kVector] = {};
    if (at < vocabulary) {
      Load(source + at, values);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        values[i] = at + i < vocabulary ? factor * __expf(values[i] - all.highest) : 0;
        if (at + i == target) {
          values[i] -= scale;
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
  if (bytes <= kMaxSharedRow) {
    cudaFuncSetAttribute(CrossEntropyKernel<true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(bytes));
    CrossEntropyKernel<true><<<rows, kThreads, bytes, context.stream>>>(
        vocabulary, stride, targets, scale, logits, losses);
  } else {
    CrossEntropyKernel<false><<<rows, kThreads, 0, context.stream>>>(vocabulary, stride, targets,
                                                                     scale, logits, losses);
  }
}

}  // namespace muster::worker
