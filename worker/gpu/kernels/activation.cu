#include <algorithm>

#include "worker/gpu/kernels/activation.h"
#include "worker/gpu/kernels/column_sums.h"
#include "worker/gpu/kernels/column_tiles.cuh"
#include "worker/gpu/kernels/largest.cuh"

namespace muster::worker {
namespace {

constexpr int kThreads = 256;
constexpr float kGeluScale = 0.7978845608028654F;  // sqrt(2 / pi)
constexpr float kGeluCube = 0.044715F;

// GELU's inner tanh, from one exponential; it saturates where that overflows.
__device__ float GeluTanh(float x) {
  const float inner = kGeluScale * (x + kGeluCube * x * x * x);
  return 1 - __fdividef(2, __expf(2 * inner) + 1);
}

__device__ float Sigmoid(float x) { return __fdividef(1, 1 + __expf(-x)); }

__global__ void GeluForwardKernel(int64_t size, const Bf16* x, Bf16* y) {
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  if (at < size) {
    float values[kVector];
    Load(x + at, values);
#pragma unroll
    for (float& value : values) {
      value = 0.5F * value * (1 + GeluTanh(value));
    }
    Store(values, y + at);
  }
}

template <bool kStoresOutput>
__global__ void GeluBackwardKernel(int64_t rows, int64_t inner, const Bf16* x, const Bf16* dy,
                                   Bf16* dx, Bf16* y, float* partials) {
  const int64_t column = int64_t{blockIdx.x} * kTileColumns + threadIdx.x * kVector;
  float sums[kVector] = {};
  if (column < inner) {
    const int64_t stride = int64_t{gridDim.y} * kTileWarps;
#pragma unroll 2
    for (int64_t row = blockIdx.y * kTileWarps + threadIdx.y; row < rows; row += stride) {
      const int64_t at = row * inner + column;
      float input[kVector];
      float gradient[kVector];
      Load(x + at, input);
      Load(dy + at, gradient);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float tanh = GeluTanh(input[i]);
        const float slope =
            kGeluScale * (1 + 3 * kGeluCube * input[i] * input[i]) * (1 - tanh * tanh);
        gradient[i] *= 0.5F * (1 + tanh) + 0.5F * input[i] * slope;
        sums[i] += gradient[i];
        input[i] *= 0.5F * (1 + tanh);
      }
      Store(gradient, dx + at);
      if constexpr (kStoresOutput) {
        Store(input, y + at);
      }
    }
  }
  StoreTileSums(sums, inner, partials);
}

// The largest that `value` will be once it is stored.
__device__ unsigned StoredMagnitudeBits(float value) {
  return MagnitudeBits(__bfloat162float(__float2bfloat16(value)));
}

template <bool kNotes>
__global__ void SwigluForwardKernel(int64_t size, int64_t inner, const Bf16* x, Bf16* y,
                                    Fp8Scale* scale) {
  unsigned largest = 0;
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  if (at < size) {
    const int64_t gate_at = at / inner * 2 * inner + at % inner;
    float gate[kVector];
    float up[kVector];
    Load(x + gate_at, gate);
    Load(x + gate_at + inner, up);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      up[i] *= gate[i] * Sigmoid(gate[i]);
      if constexpr (kNotes) {
        largest = max(largest, StoredMagnitudeBits(up[i]));
      }
    }
    Store(up, y + at);
  }
  if constexpr (kNotes) {
    NoteLargest<kThreads>(largest, scale);
  }
}

template <bool kStoresOutput, bool kNotes>
__global__ void SwigluBackwardKernel(int64_t size, int64_t inner, const Bf16* x, const Bf16* dy,
                                     Bf16* dx, Bf16* y, Fp8Scale* scale) {
  unsigned largest = 0;
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  if (at < size) {
    const int64_t gate_at = at / inner * 2 * inner + at % inner;
    float gate[kVector];
    float up[kVector];
    float gradient[kVector];
    Load(x + gate_at, gate);
    Load(x + gate_at + inner, up);
    Load(dy + at, gradient);
    float output[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float sigmoid = Sigmoid(gate[i]);
      const float silu = gate[i] * sigmoid;
      output[i] = silu * up[i];
      gate[i] = gradient[i] * up[i] * sigmoid * (1 + gate[i] * (1 - sigmoid));
      up[i] = gradient[i] * silu;
      if constexpr (kNotes) {
        largest = max(largest, max(StoredMagnitudeBits(gate[i]), StoredMagnitudeBits(up[i])));
      }
    }
    Store(gate, dx + gate_at);
    Store(up, dx + gate_at + inner);
    if constexpr (kStoresOutput) {
      Store(output, y + at);
    }
  }
  if constexpr (kNotes) {
    NoteLargest<kThreads>(largest, scale);
  }
}

}  // namespace

void GeluForward(const LaunchContext& context, int64_t rows, int64_t inner, const Bf16* x,
                 Bf16* y) {
  GeluForwardKernel<<<CeilDiv(rows * inner, kThreads * kVector), kThreads, 0, context.stream>>>(
      rows * inner, x, y);
}

void GeluBackward(const LaunchContext& context, int64_t rows, int64_t inner, const Bf16* x,
                  const Bf16* dy, Bf16* dx, Bf16* y, Into into, float* dbias) {
  const ColumnTiles tiles = TileColumns(context, rows, inner);
  const auto kernel = y == nullptr ? GeluBackwardKernel<false> : GeluBackwardKernel<true>;
  kernel<<<tiles.grid, tiles.block, 0, context.stream>>>(rows, inner, x, dy, dx, y,
                                                         context.partials);
  AddPartials(context, tiles.grid.y, 1, inner, into, {.rows = {dbias}});
}

void SwigluForward(const LaunchContext& context, int64_t rows, int64_t inner, const Bf16* x,
                   Bf16* y, Fp8Scale* scale) {
  const auto kernel = scale == nullptr ? SwigluForwardKernel<false> : SwigluForwardKernel<true>;
  kernel<<<CeilDiv(rows * inner, kThreads * kVector), kThreads, 0, context.stream>>>(
      rows * inner, inner, x, y, scale);
}

void SwigluBackward(const LaunchContext& context, int64_t rows, int64_t inner, const Bf16* x,
                    const Bf16* dy, Bf16* dx, Bf16* y, Fp8Scale* scale) {
  const auto plain =
      y == nullptr ? SwigluBackwardKernel<false, false> : SwigluBackwardKernel<true, false>;
  const auto noting =
      y == nullptr ? SwigluBackwardKernel<false, true> : SwigluBackwardKernel<true, true>;
  const auto kernel = scale == nullptr ? plain : noting;
  kernel<<<CeilDiv(rows * inner, kThreads * kVector), kThreads, 0, context.stream>>>(
      rows * inner, inner, x, dy, dx, y, scale);
}

}  // namespace muster::worker
