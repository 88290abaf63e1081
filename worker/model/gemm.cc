#include "worker/model/gemm.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace muster::worker {
namespace {

// One tile of the output stays in registers: 6 rows of two vectors of 8 floats fill AVX's 16.
constexpr int64_t kTileRows = 6;
constexpr int64_t kTileColumns = 16;
// A packed block of b stays in the second-level cache.
constexpr int64_t kDepthBlock = 256;
constexpr int64_t kColumnBlock = 512;

using Vector = float __attribute__((vector_size(32)));

#if defined(__x86_64__) && !defined(MUSTER_SANITIZED)
// Sanitizers run before the resolver of a cloned function may.
#define MUSTER_CLONES __attribute__((target_clones("fma", "default")))
#else
#define MUSTER_CLONES
#endif

// tile (kTileRows x kTileColumns) = a (depth x kTileRows) transposed * b (depth x kTileColumns).
MUSTER_CLONES void MultiplyTile(int64_t depth, const float* a, const float* b, float* tile) {
  Vector sums[kTileRows][2] = {};
  for (int64_t k = 0; k < depth; ++k) {
    Vector left;
    Vector right;
    std::memcpy(&left, b + k * kTileColumns, sizeof(left));
    std::memcpy(&right, b + k * kTileColumns + 8, sizeof(right));
    for (int64_t r = 0; r < kTileRows; ++r) {
      const float factor = a[k * kTileRows + r];
      sums[r][0] += factor * left;
      sums[r][1] += factor * right;
    }
  }
  std::memcpy(tile, sums, sizeof(sums));
}

// packed[k][i] = line i's element k, where lines lie `stride` floats apart; zero past the last of
// `count` lines.
template <int64_t Width>
void PackLines(const float* lines, int64_t stride, int64_t count, int64_t depth, float* packed) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t k = 0; k < depth; ++k) {
      packed[k * Width + i] = lines[i * stride + k];
    }
  }
  for (int64_t i = count; i < Width; ++i) {
    for (int64_t k = 0; k < depth; ++k) {
      packed[k * Width + i] = 0;
    }
  }
}

// The same, of a matrix in which element k of all lines lie side by side, `stride` after the ones
// before.
template <int64_t Width>
void PackSideBySide(const float* elements, int64_t stride, int64_t count, int64_t depth,
                    float* packed) {
  for (int64_t k = 0; k < depth; ++k, elements += stride, packed += Width) {
    if (count == Width) {
      std::memcpy(packed, elements, Width * sizeof(float));
      continue;
    }
    for (int64_t i = 0; i < Width; ++i) {
      packed[i] = i < count ? elements[i] : 0.0F;
    }
  }
}

void PackRows(const MatrixView& a, int64_t row, int64_t rows, int64_t k, int64_t depth,
              float* packed) {
  if (a.transposed) {
    PackSideBySide<kTileRows>(a.data + k * a.stride + row, a.stride, rows, depth, packed);
  } else {
    PackLines<kTileRows>(a.data + row * a.stride + k, a.stride, rows, depth, packed);
  }
}

void PackColumns(const MatrixView& b, int64_t column, int64_t columns, int64_t k, int64_t depth,
                 float* packed) {
  if (b.transposed) {
    PackLines<kTileColumns>(b.data + column * b.stride + k, b.stride, columns, depth, packed);
  } else {
    PackSideBySide<kTileColumns>(b.data + k * b.stride + column, b.stride, columns, depth, packed);
  }
}

void StoreTile(const float* tile, int64_t rows, int64_t columns, float* c, int64_t c_stride,
               bool add) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < columns; ++j) {
      float& out = c[r * c_stride + j];
      out = add ? out + tile[r * kTileColumns + j] : tile[r * kTileColumns + j];
    }
  }
}

}  // namespace

void Gemm(int64_t rows, int64_t columns, int64_t depth, MatrixView a, MatrixView b, float* c,
          int64_t c_stride, Output output) {
  const int64_t packed_columns =
      (std::min(kColumnBlock, columns) + kTileColumns - 1) / kTileColumns * kTileColumns;
  std::vector<float> packed_b(std::min(kDepthBlock, depth) * packed_columns);
  std::vector<float> packed_a(std::min(kDepthBlock, depth) * kTileRows);
  float tile[kTileRows * kTileColumns];
  for (int64_t column = 0; column < columns; column += kColumnBlock) {
    const int64_t block_columns = std::min(kColumnBlock, columns - column);
    for (int64_t k = 0; k < depth; k += kDepthBlock) {
      const int64_t block_depth = std::min(kDepthBlock, depth - k);
      const bool add = output == Output::kAdd || k > 0;
      for (int64_t j = 0; j < block_columns; j += kTileColumns) {
        PackColumns(b, column + j, std::min(kTileColumns, block_columns - j), k, block_depth,
                    packed_b.data() + j * block_depth);
      }
      for (int64_t row = 0; row < rows; row += kTileRows) {
        const int64_t tile_rows = std::min(kTileRows, rows - row);
        PackRows(a, row, tile_rows, k, block_depth, packed_a.data());
        for (int64_t j = 0; j < block_columns; j += kTileColumns) {
          MultiplyTile(block_depth, packed_a.data(), packed_b.data() + j * block_depth, tile);
          StoreTile(tile, tile_rows, std::min(kTileColumns, block_columns - j),
                    c + row * c_stride + column + j, c_stride, add);
        }
      }
    }
  }
}

}  // namespace muster::worker
