// Single-precision matrix product for the CPU: one packed, register-blocked kernel for every
// combination of transposed inputs, on one thread.
#pragma once

#include <cstdint>

namespace muster::worker {

// A row-major matrix, or the transpose of one: element (r, c) lies at data[r * stride + c], and at
// data[c * stride + r] if transposed.
struct MatrixView {
  const float* data = nullptr;
  int64_t stride = 0;
  bool transposed = false;
};

enum class Output { kAssign, kAdd };

// c (rows x columns, row-major with `c_stride`) = or += a (rows x depth) * b (depth x columns).
// The output must not overlap the inputs. Sums run over depth in a fixed order, so equal inputs
// give equal bits on one machine; machines with fused multiply-add round differently from others.
void Gemm(int64_t rows, int64_t columns, int64_t depth, MatrixView a, MatrixView b, float* c,
          int64_t c_stride, Output output);

}  // namespace muster::worker
