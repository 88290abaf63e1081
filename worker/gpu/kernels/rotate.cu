#include "worker/gpu/kernels/rotate.h"
#include "worker/gpu/kernels/vector.cuh"

namespace muster::worker {
namespace {

constexpr int kThreads = 256;

__global__ void RotationAnglesKernel(int64_t size, int64_t half, const float* frequencies,
                                     float2* angles) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at < size) {
    const float angle = static_cast<float>(at / half) * frequencies[at % half];
    angles[at] = {cosf(angle), sinf(angle)};
  }
}

// A thread turns eight channels of a head's lower half with those of its upper half.
__global__ void RotateHeadsKernel(int64_t size, int64_t sequence, int64_t heads, int64_t head_size,
                                  int64_t stride, const float2* angles, float direction, Bf16* x) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= size) {
    return;
  }
  const int64_t half = head_size / 2;
  const int64_t vectors = half / kVector;
  const int64_t channel = at % vectors * kVector;
  const int64_t head = at / vectors % heads;
  const int64_t row = at / vectors / heads;
  Bf16* low_at = x + row * stride + head * head_size + channel;
  float low[kVector];
  float high[kVector];
  Load(low_at, low);
  Load(low_at + half, high);
  const float2* angle = angles + row % sequence * half + channel;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float cosine = angle[i].x;
    const float sine = direction * angle[i].y;
    const float turned = low[i] * cosine - high[i] * sine;
    high[i] = high[i] * cosine + low[i] * sine;
    low[i] = turned;
  }
  Store(low, low_at);
  Store(high, low_at + half);
}

}  // namespace

void RotationAngles(const LaunchContext& context, int64_t sequence, int64_t head_size,
                    const float* frequencies, float2* angles) {
  const int64_t half = head_size / 2;
  const int64_t size = sequence * half;
  RotationAnglesKernel<<<CeilDiv(size, kThreads), kThreads, 0, context.stream>>>(
      size, half, frequencies, angles);
}

void RotateHeads(const LaunchContext& context, int64_t rows, int64_t sequence, int64_t heads,
                 int64_t head_size, int64_t stride, const float2* angles, Turn turn, Bf16* x) {
  const int64_t size = rows * heads * (head_size / 2 / kVector);
  RotateHeadsKernel<<<CeilDiv(size, kThreads), kThreads, 0, context.stream>>>(
      size, sequence, heads, head_size, stride, angles, turn == Turn::kForward ? 1.0F : -1.0F, x);
}

}  // namespace muster::worker
