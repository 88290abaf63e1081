// Causal attention in plain single-precision arithmetic: the fallback, made to be right.
#pragma once

#include "worker/gpu/kernels/launch.h"
#include "worker/model/layers.h"

namespace muster::worker {

// As Attention (worker/gpu/attention.h); heads of 16, 32, 64 or 128 channels.
void AttentionForward(const LaunchContext& context, const AttentionShape& shape, const Bf16* qkv,
                      Bf16* y, float* statistics);
// `deltas` holds B * H * T floats.
void AttentionBackward(const LaunchContext& context, const AttentionShape& shape, const Bf16* qkv,
                       const Bf16* y, const float* statistics, const Bf16* dy, Bf16* dqkv,
                       float* deltas);

}  // namespace muster::worker
