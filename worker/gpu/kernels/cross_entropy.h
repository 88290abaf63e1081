// The loss from logits, and its gradient.
#pragma once

#include "worker/gpu/kernels/launch.h"

namespace muster::worker {

// losses[N] = -log softmax(logits[N][stride], the first V of each row)[target]. With `scale` > 0
// the logits are replaced by the gradient of scale times their sum, zero beyond V.
void CrossEntropy(const LaunchContext& context, int64_t rows, int64_t vocabulary, int64_t stride,
                  const int32_t* targets, float scale, Bf16* logits, float* losses);

}  // namespace muster::worker
