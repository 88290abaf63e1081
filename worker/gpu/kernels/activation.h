// The MLP's activations.
#pragma once

#include "worker/gpu/kernels/launch.h"
#include "worker/gpu/kernels/quantize.h"

namespace muster::worker {

// y[N][F] = GELU(x[N][F]), by its tanh approximation.
void GeluForward(const LaunchContext& context, int64_t rows, int64_t inner, const Bf16* x, Bf16* y);
// dx[N][F] from dy[N][F], which it may overlap; dbias[F] = or += its sum over rows. `y`, unless it
// is null, becomes GELU(x) again.
void GeluBackward(const LaunchContext& context, int64_t rows, int64_t inner, const Bf16* x,
                  const Bf16* dy, Bf16* dx, Bf16* y, Into into, float* dbias);

// x[N][2F] holds gate, then up: y[N][F] = silu(gate) * up. `scale`, unless it is null, notes the
// largest of y as FindLargest does.
void SwigluForward(const LaunchContext& context, int64_t rows, int64_t inner, const Bf16* x,
                   Bf16* y, Fp8Scale* scale = nullptr);
// dx[N][2F] from dy[N][F]. `y`, unless it is null, becomes the forward's again; it may be dy.
// `scale`, unless it is null, notes the largest of dx.
void SwigluBackward(const LaunchContext& context, int64_t rows, int64_t inner, const Bf16* x,
                    const Bf16* dy, Bf16* dx, Bf16* y, Fp8Scale* scale = nullptr);

}  // namespace muster::worker
