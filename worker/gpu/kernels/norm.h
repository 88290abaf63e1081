// LayerNorm and RMSNorm over rows of the residual stream.
#pragma once

#include "worker/gpu/kernels/launch.h"

namespace muster::worker {

enum class NormKind { kLayerNorm, kRmsNorm };

// The widest row that a group of warps can hold.
constexpr int64_t kMaxNormChannels = 6144;

struct NormShape {
  NormKind kind = NormKind::kLayerNorm;
  int64_t rows = 0;      // N
  int64_t channels = 0;  // C
  float epsilon = 0;
};

// Each row's mean (LayerNorm only) and 1 / deviation, [N] each.
struct NormStatistics {
  float* mean = nullptr;
  float* inverse = nullptr;
};

// What a norm multiplies by and adds, [C] each, in single precision: beside a weight of one bf16
// can't hold what AdamW adds in many a step. `bias` is LayerNorm's only.
struct NormWeights {
  const float* weight = nullptr;
  const float* bias = nullptr;
};

// y[N][C].
void NormForward(const LaunchContext& context, const NormShape& shape, const Bf16* x,
                 NormWeights weights, Bf16* y, NormStatistics statistics);

struct NormGradients {
  float* weight = nullptr;
  float* bias = nullptr;    // LayerNorm only
  float* stream = nullptr;  // the sum over rows of dx_out, or null
};

// dx_out[N][C] = dx_in (zero if null; may be dx_out) plus what reaches x through the norm from
// dy[N][C]. `y`, unless it is null, becomes the forward's again.
void NormBackward(const LaunchContext& context, const NormShape& shape, const Bf16* x,
                  NormWeights weights, NormStatistics statistics, const Bf16* dy, const Bf16* dx_in,
                  Bf16* dx_out, Bf16* y, Into into, const NormGradients& gradients);

}  // namespace muster::worker
