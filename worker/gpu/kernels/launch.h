// What every kernel's launch needs. Launch functions only put work on the stream; what goes wrong
// with it shows at the stream's next synchronisation, or at once in cudaGetLastError().
//
// Shapes are named as in worker/model/layers.h: N rows (tokens), C channels, and so on; every C, F
// and S is a multiple of 8, every pointer 16-byte aligned. All arithmetic is in single precision
// and every sum runs in a fixed order, so equal inputs give equal bits on one kind of GPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace muster::worker {

using Bf16 = __nv_bfloat16;

struct LaunchContext {
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;
  // PartialFloats() floats for sums over rows, which blocks leave there for a second kernel to add
  // up. Kernels of one stream may share them.
  float* partials = nullptr;
};

// `width` is the widest row that is summed.
int64_t PartialFloats(int multiprocessors, int64_t width);

// Whether a gradient replaces what was there, as the first micro-batch's does, or adds to it.
enum class Into { kAssign, kAdd };

}  // namespace muster::worker
