#include "worker/model/gemm.h"

#include <gtest/gtest.h>

#include <vector>

#include "worker/model/parameter_layout.h"

namespace muster::worker {
namespace {

std::vector<float> Values(uint64_t seed, int64_t size) {
  std::vector<float> values(size);
  for (int64_t i = 0; i < size; ++i) {
    values[i] = HashedUniform(seed, i);
  }
  return values;
}

struct GemmCase {
  int64_t rows, columns, depth;
};

class GemmOfSize : public testing::TestWithParam<GemmCase> {};

TEST_P(GemmOfSize, EqualsTheSumsOfProductsForEveryTransposition) {
  const auto [rows, columns, depth] = GetParam();
  const std::vector<float> a = Values(1, rows * depth);
  const std::vector<float> b = Values(2, depth * columns);
  const std::vector<float> before = Values(3, rows * (columns + 3));
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      for (const Output output : {Output::kAssign, Output::kAdd}) {
        std::vector<float> c = before;
        Gemm(rows, columns, depth,
             {.data = a.data(), .stride = a_transposed ? rows : depth, .transposed = a_transposed},
             {.data = b.data(),
              .stride = b_transposed ? depth : columns,
              .transposed = b_transposed},
             c.data(), columns + 3, output);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t j = 0; j < columns + 3; ++j) {
            const int64_t at = r * (columns + 3) + j;
            double expected = before[at];
            if (j < columns) {
              expected = output == Output::kAdd ? before[at] : 0;
              for (int64_t k = 0; k < depth; ++k) {
                expected += double{a[a_transposed ? k * rows + r : r * depth + k]} *
                            b[b_transposed ? j * depth + k : k * columns + j];
              }
            }
            ASSERT_NEAR(c[at], expected, 1e-4) << "row " << r << ", column " << j;
          }
        }
      }
    }
  }
}

// Below, at and across the edges of tiles (6 x 16) and blocks (512 columns, 256 deep).
INSTANTIATE_TEST_SUITE_P(, GemmOfSize,
                         testing::Values(GemmCase{1, 1, 1}, GemmCase{6, 16, 8}, GemmCase{7, 17, 3},
                                         GemmCase{13, 530, 2}, GemmCase{5, 9, 300},
                                         GemmCase{12, 33, 256}));

}  // namespace
}  // namespace muster::worker
