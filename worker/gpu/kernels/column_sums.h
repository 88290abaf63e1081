// Sums over rows: gradients of biases and of what norms multiply by.
#pragma once

#include "worker/gpu/kernels/launch.h"

namespace muster::worker {

// out[C] = or += the sum of x[N][C] over its rows.
void ColumnSums(const LaunchContext& context, int64_t rows, int64_t channels, const Bf16* x,
                Into into, float* out);

// Up to three rows of sums; those that are null are left out.
struct SumOutputs {
  float* rows[3] = {};
};
// outputs.rows[k][c] = or += the sum over p of partials[p][k][c], k < kinds.
void AddPartials(const LaunchContext& context, int64_t partials, int kinds, int64_t channels,
                 Into into, const SumOutputs& outputs);

}  // namespace muster::worker
