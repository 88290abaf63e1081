// Causal attention on the GPU, over packed queries, keys and values.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/gpu/kernels/launch.h"
#include "worker/model/layers.h"

namespace muster::worker {

// For one shape. Used by one thread.
class Attention {
 public:
  Attention() = default;
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;
  virtual ~Attention() = default;

  // What forward and backward may use, and must not share with what runs at the same time.
  virtual int64_t workspace_bytes() const = 0;

  // y[B*T][H * S] from qkv[B*T][(H + 2K) * S]; statistics[B][H][T] (the logarithm of each row's
  // sum of exponentials) are kept for the backward.
  virtual absl::Status Forward(cudaStream_t stream, const Bf16* qkv, Bf16* y, float* statistics,
                               void* workspace) = 0;
  virtual absl::Status Backward(cudaStream_t stream, const Bf16* qkv, const Bf16* y,
                                const float* statistics, const Bf16* dy, Bf16* dqkv,
                                void* workspace) = 0;
};

enum class AttentionKind : uint8_t { kCudnn, kPlain };

// cuDNN's fused attention. NotFound if the library isn't there, Unimplemented with its reason if it
// has nothing for this shape and GPU. `deterministic` costs its backward some speed.
absl::StatusOr<std::unique_ptr<Attention>> MakeCudnnAttention(const AttentionShape& shape,
                                                              bool deterministic);

// Our own, on any GPU: plain arithmetic in single precision, without tensor cores, for heads of 16,
// 32, 64 or 128 channels; InvalidArgument for others.
absl::StatusOr<std::unique_ptr<Attention>> MakePlainAttention(const AttentionShape& shape);

}  // namespace muster::worker
