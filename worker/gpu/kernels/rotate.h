// Rotary positions.
#pragma once

#include "worker/gpu/kernels/launch.h"
#include "worker/model/layers.h"

namespace muster::worker {

// Fills angles[T][S/2] with the cosine and sine of position * frequencies[i], which are on the
// device.
void RotationAngles(const LaunchContext& context, int64_t sequence, int64_t head_size,
                    const float* frequencies, float2* angles);

// Turns, in place, the first `heads` heads of each of the N rows of x, which lie `stride` apart, as
// Rotate in worker/model/layers.h does. S is a multiple of 16.
void RotateHeads(const LaunchContext& context, int64_t rows, int64_t sequence, int64_t heads,
                 int64_t head_size, int64_t stride, const float2* angles, Turn turn, Bf16* x);

}  // namespace muster::worker
