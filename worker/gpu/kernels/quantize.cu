#include <cuda_fp8.h>

#include <algorithm>

#include "worker/gpu/kernels/largest.cuh"
#include "worker/gpu/kernels/quantize.h"

namespace muster::worker {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 128;    // rows and columns of a block's part
constexpr int kQuadRows = 4;  // rows that a thread takes at once: a word of a column
constexpr int kTileWords = kTile / kQuadRows;  // of a column
constexpr int kRun = 16;                       // bytes that a thread writes of a column

constexpr float kLargestE4M3 = 448;
constexpr float kLargestE5M2 = 57344;

__global__ void FindLargestKernel(int64_t size, const Bf16* x, Fp8Scale* scale) {
  unsigned pair = 0;  // two halves, each the bits of a bf16
  const int64_t stride = int64_t{gridDim.x} * kThreads * kVector;
#pragma unroll 4
  for (int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVector; at < size;
       at += stride) {
    const uint4 words = *reinterpret_cast<const uint4*>(x + at);
    for (const unsigned word : {words.x, words.y, words.z, words.w}) {
      pair = __vmaxu2(pair, word & 0x7FFF7FFF);
    }
  }
  NoteLargest<kThreads>(max(pair >> 16, pair & 0xFFFF) << 16, scale);
}

template <__nv_fp8_interpretation_t kFormat>
__device__ uint32_t Four(float a, float b, float c, float d) {
  const uint32_t low = __nv_cvt_float2_to_fp8x2({a, b}, __NV_SATFINITE, kFormat);
  const uint32_t high = __nv_cvt_float2_to_fp8x2({c, d}, __NV_SATFINITE, kFormat);
  return low | high << 16;
}

// Columns of four words become rows: byte i of word k is byte k of out[i].
__device__ void Turn(const uint32_t (&in)[4], uint32_t (&out)[4]) {
  const uint32_t low01 = __byte_perm(in[0], in[1], 0x5140);
  const uint32_t low23 = __byte_perm(in[2], in[3], 0x5140);
  const uint32_t high01 = __byte_perm(in[0], in[1], 0x7362);
  const uint32_t high23 = __byte_perm(in[2], in[3], 0x7362);
  out[0] = __byte_perm(low01, low23, 0x5410);
  out[1] = __byte_perm(low01, low23, 0x7632);
  out[2] = __byte_perm(high01, high23, 0x5410);
  out[3] = __byte_perm(high01, high23, 0x7632);
}

// Where in a tile's column its words are, so that neither writing nor reading meets a bank twice.
__device__ int Swizzle(int column) { return (column / kVector) * 2 % kTileWords; }

template <__nv_fp8_interpretation_t kFormat>
__global__ void __launch_bounds__(kThreads)
    QuantizeKernel(int64_t rows, int64_t columns, const Bf16* x, Fp8Scale* scale, Fp8* y,
                   Fp8* transposed) {
  __shared__ __align__(16) uint32_t tile[kTile][kTileWords];
  constexpr float kLargest = kFormat == __NV_E4M3 ? kLargestE4M3 : kLargestE5M2;
  const float largest = scale->largest;
  // Zeros have any scale; the smallest values' reciprocal must stay finite.
  const float unit = largest == 0 ? 1 : fmaxf(largest / kLargest, 1e-30F) + 0 * largest;
  const float factor = 1 / unit;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    scale->unit = unit;
  }
  const int64_t first_column = int64_t{blockIdx.x} * kTile;
  const int64_t first_row = int64_t{blockIdx.y} * kTile;
  constexpr int kAcross = kTile / kVector;
#pragma unroll
  for (int turn = 0; turn < kAcross * kTileWords / kThreads; ++turn) {
    const int item = turn * kThreads + static_cast<int>(threadIdx.x);
    const int column = item % kAcross * kVector;
    const int word = item / kAcross;
    const int64_t row = first_row + word * kQuadRows;
    if (row < rows && first_column + column < columns) {
      uint32_t quads[2][kQuadRows];  // of four columns each, a row a word
#pragma unroll
      for (int i = 0; i < kQuadRows; ++i) {
        float values[kVector];
        Load(x + (row + i) * columns + first_column + column, values);
#pragma unroll
        for (float& value : values) {
          value *= factor;
        }
        quads[0][i] = Four<kFormat>(values[0], values[1], values[2], values[3]);
        quads[1][i] = Four<kFormat>(values[4], values[5], values[6], values[7]);
        if (y != nullptr) {
          *reinterpret_cast<uint2*>(y + (row + i) * columns + first_column + column) =
              make_uint2(quads[0][i], quads[1][i]);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t turned[4];
        Turn(quads[half], turned);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          tile[column + half * 4 + i][word ^ Swizzle(column)] = turned[i];
        }
      }
    }
  }
  if (transposed == nullptr) {
    return;
  }
  __syncthreads();
  constexpr int kRuns = kTile / kRun;
#pragma unroll
  for (int turn = 0; turn < kTile * kRuns / kThreads; ++turn) {
    const int item = turn * kThreads + static_cast<int>(threadIdx.x);
    const int column = item / kRuns;
    const int run = item % kRuns;
    if (first_column + column < columns && first_row + run * kRun < rows) {
      const int swizzle = Swizzle(column);
      uint4 words = *reinterpret_cast<const uint4*>(&tile[column][(run * 4) ^ (swizzle & ~3)]);
      if ((swizzle & 2) != 0) {
        words = make_uint4(words.z, words.w, words.x, words.y);
      }
      *reinterpret_cast<uint4*>(transposed + (first_column + column) * rows + first_row +
                                run * kRun) = words;
    }
  }
}

}  // namespace

void FindLargest(const LaunchContext& context, int64_t size, const Bf16* x, Fp8Scale* scale) {
  constexpr int kBlocksEach = 8;
  const int64_t blocks =
      std::min(CeilDiv(size, kThreads * kVector), int64_t{kBlocksEach} * context.multiprocessors);
  FindLargestKernel<<<blocks, kThreads, 0, context.stream>>>(size, x, scale);
}

void Quantize(const LaunchContext& context, int64_t rows, int64_t columns, const Bf16* x,
              Fp8Format format, Fp8Scale* scale, Fp8* y, Fp8* transposed) {
  const auto kernel =
      format == Fp8Format::kE4M3 ? QuantizeKernel<__NV_E4M3> : QuantizeKernel<__NV_E5M2>;
  const dim3 grid(CeilDiv(columns, kTile), CeilDiv(rows, kTile));
  kernel<<<grid, kThreads, 0, context.stream>>>(rows, columns, x, scale, y, transposed);
}

}  // namespace muster::worker
