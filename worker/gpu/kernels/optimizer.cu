#include <algorithm>

#include "worker/gpu/kernels/optimizer.h"
#include "worker/gpu/kernels/vector.cuh"

namespace muster::worker {
namespace {

constexpr int kThreads = 256;
constexpr int kSumThreads = 1024;
constexpr int kQuad = 4;

// The block's sum, in thread 0.
template <int kBlock>
__device__ double BlockSum(double value) {
  __shared__ double warps[kBlock / kWarp];
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFF, value, offset);
  }
  if (threadIdx.x % kWarp == 0) {
    warps[threadIdx.x / kWarp] = value;
  }
  __syncthreads();
  value = 0;
  if (threadIdx.x == 0) {
    for (const double warp : warps) {
      value += warp;
    }
  }
  return value;
}

__global__ void AddLossesKernel(int64_t rows, const float* losses, double scale, StepSums* sums) {
  double sum = 0;
#pragma unroll 8
  for (int64_t row = threadIdx.x; row < rows; row += kSumThreads) {
    sum += losses[row];
  }
  sum = BlockSum<kSumThreads>(sum);
  if (threadIdx.x == 0) {
    sums->loss += scale * sum;
  }
}

__global__ void SquaredNormKernel(int64_t size, const float* values, double* partials) {
  double sum = 0;
  const int64_t stride = int64_t{gridDim.x} * kThreads * kQuad;
#pragma unroll 4
  for (int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kQuad; at < size;
       at += stride) {
    const auto quad = *reinterpret_cast<const float4*>(values + at);
    sum += quad.x * quad.x + quad.y * quad.y + (quad.z * quad.z + quad.w * quad.w);
  }
  sum = BlockSum<kThreads>(sum);
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = sum;
  }
}

__global__ void AddSquaredNormKernel(int64_t count, const double* partials, StepSums* sums) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kSumThreads) {
    sum += partials[i];
  }
  sum = BlockSum<kSumThreads>(sum);
  if (threadIdx.x == 0) {
    sums->squared_norm += sum;
  }
}

// What gradients are multiplied by; 0 if there must be no step.
__device__ float ClipFactor(const AdamWFactors& factors, const StepSums& sums) {
  if (!isfinite(sums.loss) || !isfinite(sums.squared_norm)) {
    return 0;
  }
  if (factors.clip_norm == 0) {
    return 1;
  }
  return fminf(1, factors.clip_norm / (static_cast<float>(sqrt(sums.squared_norm)) + 1e-6F));
}

// Each rounding is spelled out, so that all kernels get the same bits.
__device__ void UpdateOne(const AdamWFactors& factors, float keep, float gradient, float& m,
                          float& v, float& value) {
  m = __fmaf_rn(factors.beta1, m, __fmul_rn(1 - factors.beta1, gradient));
  v = __fmaf_rn(factors.beta2, v, __fmul_rn(__fmul_rn(1 - factors.beta2, gradient), gradient));
  const float root = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), factors.correction), factors.epsilon);
  value = __fmaf_rn(keep, value, -__fdiv_rn(__fmul_rn(factors.step_size, m), root));
}

__global__ void AdamWKernel(AdamWFactors factors, const StepSums* sums, int run_count,
                            const DecayRun* runs, AdamWRange range) {
  const float clip = ClipFactor(factors, *sums);
  if (clip == 0) {
    return;
  }
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kQuad;
  if (at >= range.size) {
    return;
  }
  int low = 0;
  for (int high = run_count - 1; low < high;) {
    const int middle = (low + high) / 2;
    if (runs[middle].end <= range.offset + at) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const float keep = runs[low].decays ? factors.keep : 1;
  const auto gradients = *reinterpret_cast<const float4*>(range.gradients + at);
  auto first = *reinterpret_cast<const float4*>(range.first_moment + at);
  auto second = *reinterpret_cast<const float4*>(range.second_moment + at);
  auto values = *reinterpret_cast<const float4*>(range.parameters + at);
  const auto update = [&](float gradient, float& m, float& v, float& value) {
    UpdateOne(factors, keep, __fmul_rn(gradient, clip), m, v, value);
  };
  update(gradients.x, first.x, second.x, values.x);
  update(gradients.y, first.y, second.y, values.y);
  update(gradients.z, first.z, second.z, values.z);
  update(gradients.w, first.w, second.w, values.w);
  *reinterpret_cast<float4*>(range.first_moment + at) = first;
  *reinterpret_cast<float4*>(range.second_moment + at) = second;
  *reinterpret_cast<float4*>(range.parameters + at) = values;
  auto* weights = reinterpret_cast<__nv_bfloat162*>(range.weights + at);
  weights[0] = __floats2bfloat162_rn(values.x, values.y);
  weights[1] = __floats2bfloat162_rn(values.z, values.w);
}

__global__ void CopyRunsKernel(const ParameterRun* runs, const float* parameters, float* out) {
  const ParameterRun run = runs[blockIdx.x];
  for (int64_t i = threadIdx.x; i < run.size; i += kThreads) {
    out[run.to + i] = parameters[run.parameter + i];
  }
}

__global__ void CopyRunsAheadKernel(AdamWFactors factors, const StepSums* sums,
                                    const ParameterRun* runs, AdamWBuffers buffers, float* out) {
  const ParameterRun run = runs[blockIdx.x];
  const float clip = ClipFactor(factors, *sums);
  for (int64_t i = threadIdx.x; i < run.size; i += kThreads) {
    const int64_t at = run.parameter + i;
    float value = buffers.parameters[at];
    if (clip != 0) {
      float m = buffers.first_moment[at];
      float v = buffers.second_moment[at];
      UpdateOne(factors, 1, __fmul_rn(buffers.gradients[run.gradient + i], clip), m, v, value);
    }
    out[run.to + i] = value;
  }
}

__global__ void AddToKernel(int64_t size, const float* values, float* sums) {
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kQuad;
  if (at < size) {
    const auto value = *reinterpret_cast<const float4*>(values + at);
    auto sum = *reinterpret_cast<const float4*>(sums + at);
    sum.x += value.x;
    sum.y += value.y;
    sum.z += value.z;
    sum.w += value.w;
    *reinterpret_cast<float4*>(sums + at) = sum;
  }
}

__global__ void RoundToBf16Kernel(int64_t size, const float* values, Bf16* rounded) {
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  if (at < size) {
    float loaded[kVector];
    Load(values + at, loaded);
    Store(loaded, rounded + at);
  }
}

template <Into kInto>
__global__ void FromBf16Kernel(int64_t size, const Bf16* values, float* floats) {
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  if (at < size) {
    float loaded[kVector];
    float sums[kVector] = {};
    Load(values + at, loaded);
    if constexpr (kInto == Into::kAdd) {
      Load(floats + at, sums);
    }
    auto* out = reinterpret_cast<float4*>(floats + at);
    out[0] = {sums[0] + loaded[0], sums[1] + loaded[1], sums[2] + loaded[2], sums[3] + loaded[3]};
    out[1] = {sums[4] + loaded[4], sums[5] + loaded[5], sums[6] + loaded[6], sums[7] + loaded[7]};
  }
}

__global__ void FillRandomKernel(int64_t size, float deviation, Bf16* values) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at < size) {
    uint32_t hash = static_cast<uint32_t>(at) * 0x9E3779B9U;
    float sum = 0;  // of four uniform values: close to normal
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      hash = (hash ^ (hash >> 16)) * 0x85EBCA6BU + 0x27D4EB2FU;
      sum += static_cast<float>(hash >> 8) / (1 << 23) - 1;
    }
    values[at] = __float2bfloat16(deviation * 0.866F * sum);
  }
}

}  // namespace

void AddLosses(const LaunchContext& context, int64_t rows, const float* losses, double scale,
               StepSums* sums) {
  AddLossesKernel<<<1, kSumThreads, 0, context.stream>>>(rows, losses, scale, sums);
}

void SquaredNormOf(const LaunchContext& context, int64_t size, const float* values,
                   double* partials) {
  SquaredNormKernel<<<kNormPartials, kThreads, 0, context.stream>>>(size, values, partials);
}

void AddSquaredNorm(const LaunchContext& context, int64_t count, const double* partials,
                    StepSums* sums) {
  AddSquaredNormKernel<<<1, kSumThreads, 0, context.stream>>>(count, partials, sums);
}

void AdamW(const LaunchContext& context, const AdamWFactors& factors, const StepSums* sums,
           int run_count, const DecayRun* runs, const AdamWRange& range) {
  AdamWKernel<<<CeilDiv(range.size, kThreads * kQuad), kThreads, 0, context.stream>>>(
      factors, sums, run_count, runs, range);
}

void CopyRuns(const LaunchContext& context, int count, const ParameterRun* runs,
              const float* parameters, float* out) {
  if (count > 0) {
    CopyRunsKernel<<<count, kThreads, 0, context.stream>>>(runs, parameters, out);
  }
}

void CopyRunsAhead(const LaunchContext& context, const AdamWFactors& factors, const StepSums* sums,
                   int count, const ParameterRun* runs, const AdamWBuffers& buffers, float* out) {
  if (count > 0) {
    CopyRunsAheadKernel<<<count, kThreads, 0, context.stream>>>(factors, sums, runs, buffers, out);
  }
}

void AddTo(const LaunchContext& context, int64_t size, const float* values, float* sums) {
  AddToKernel<<<CeilDiv(size, kThreads * kQuad), kThreads, 0, context.stream>>>(size, values, sums);
}

void RoundToBf16(const LaunchContext& context, int64_t size, const float* values, Bf16* rounded) {
  RoundToBf16Kernel<<<CeilDiv(size, kThreads * kVector), kThreads, 0, context.stream>>>(
      size, values, rounded);
}

void FromBf16(const LaunchContext& context, int64_t size, const Bf16* values, Into into,
              float* floats) {
  const auto kernel =
      into == Into::kAdd ? FromBf16Kernel<Into::kAdd> : FromBf16Kernel<Into::kAssign>;
  kernel<<<CeilDiv(size, kThreads * kVector), kThreads, 0, context.stream>>>(size, values, floats);
}

void FillRandom(const LaunchContext& context, int64_t size, float deviation, Bf16* values) {
  FillRandomKernel<<<CeilDiv(size, kThreads), kThreads, 0, context.stream>>>(size, deviation,
                                                                             values);
}

}  // namespace muster::worker
