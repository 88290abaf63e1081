#include <algorithm>
#include <array>

#include "fmt/format.h"
#include "worker/gpu/attention.h"
#include "worker/gpu/cuda_status.h"
#include "worker/gpu/kernels/attention.h"

namespace muster::worker {
namespace {

class PlainAttention : public Attention {
 public:
  explicit PlainAttention(const AttentionShape& shape) : shape_(shape) {}

  int64_t workspace_bytes() const override {
    return shape_.sequences * shape_.heads * shape_.sequence * static_cast<int64_t>(sizeof(float));
  }

  absl::Status Forward(cudaStream_t stream, const Bf16* qkv, Bf16* y, float* statistics,
                       void* /*workspace*/) override {
    AttentionForward({.stream = stream}, shape_, qkv, y, statistics);
    return LaunchStatus("attention");
  }

  absl::Status Backward(cudaStream_t stream, const Bf16* qkv, const Bf16* y,
                        const float* statistics, const Bf16* dy, Bf16* dqkv,
                        void* workspace) override {
    AttentionBackward({.stream = stream}, shape_, qkv, y, statistics, dy, dqkv,
                      static_cast<float*>(workspace));
    return LaunchStatus("attention's backward");
  }

 private:
  AttentionShape shape_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Attention>> MakePlainAttention(const AttentionShape& shape) {
  constexpr std::array<int64_t, 4> kSizes = {16, 32, 64, 128};
  if (std::find(kSizes.begin(), kSizes.end(), shape.head_size) == kSizes.end()) {
    return absl::InvalidArgumentError(fmt::format(
        "heads have {} channels; without cuDNN they must have 16, 32, 64 or 128", shape.head_size));
  }
  return std::make_unique<PlainAttention>(shape);
}

}  // namespace muster::worker
