// Rows as vectors of eight bf16 (16 bytes), and sums over warps.
#pragma once

#include "worker/gpu/kernels/launch.h"

namespace muster::worker {

constexpr int kWarp = 32;
constexpr int kVector = 8;  // bf16 values that a thread reads or writes at once

struct alignas(16) Vector {
  __nv_bfloat162 pairs[kVector / 2];
};

__device__ inline void Unpack(const Vector& vector, float (&values)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i) {
    const float2 pair = __bfloat1622float2(vector.pairs[i]);
    values[2 * i] = pair.x;
    values[2 * i + 1] = pair.y;
  }
}

__device__ inline Vector Pack(const float (&values)[kVector]) {
  Vector vector;
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i) {
    vector.pairs[i] = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
  }
  return vector;
}

__device__ inline Vector LoadVector(const Bf16* from) {
  return *reinterpret_cast<const Vector*>(from);
}

__device__ inline void Load(const Bf16* from, float (&values)[kVector]) {
  Unpack(LoadVector(from), values);
}

__device__ inline void Load(const float* from, float (&values)[kVector]) {
  const auto low = *reinterpret_cast<const float4*>(from);
  const auto high = *reinterpret_cast<const float4*>(from + kVector / 2);
  values[0] = low.x;
  values[1] = low.y;
  values[2] = low.z;
  values[3] = low.w;
  values[4] = high.x;
  values[5] = high.y;
  values[6] = high.z;
  values[7] = high.w;
}

__device__ inline void Store(const float (&values)[kVector], Bf16* to) {
  *reinterpret_cast<Vector*>(to) = Pack(values);
}

__device__ inline float WarpSum(float value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFF, value, offset);
  }
  return value;
}

__device__ inline float WarpMax(float value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFF, value, offset));
  }
  return value;
}

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace muster::worker
