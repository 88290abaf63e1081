// The largest absolute value that a kernel's blocks have seen.
#pragma once

#include "worker/gpu/kernels/quantize.h"
#include "worker/gpu/kernels/vector.cuh"

namespace muster::worker {

// Every thread of the block calls it with what it has seen, as the bits of a float that isn't
// negative: those have the floats' order, with no-number above all.
template <int kBlock>
__device__ inline void NoteLargest(unsigned bits, Fp8Scale* scale) {
  __shared__ unsigned warps[kBlock / kWarp];
  bits = __reduce_max_sync(0xFFFFFFFF, bits);
  if (threadIdx.x % kWarp == 0) {
    warps[threadIdx.x / kWarp] = bits;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (const unsigned other : warps) {
      bits = max(bits, other);
    }
    auto* largest = reinterpret_cast<unsigned*>(&scale->largest);
    // Most blocks have nothing to add; a look costs less than their turn.
    if (bits > *static_cast<volatile unsigned*>(largest)) {
      atomicMax(largest, bits);
    }
  }
}

__device__ inline unsigned MagnitudeBits(float value) {
  return __float_as_uint(value) & 0x7FFFFFFF;
}

}  // namespace muster::worker
