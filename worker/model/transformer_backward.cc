#include "worker/model/block_view.h"
#include "worker/model/transformer.h"

namespace muster::worker {

absl::Status Transformer::BlockBackward(int layer, ParameterUnits& units) {
  const absl::StatusOr<std::span<const float>> unit = units.Acquire(1 + layer);
  if (!unit.ok()) {
    return unit.status();
  }
  const absl::StatusOr<std::span<float>> gradient = units.AcquireGradient(1 + layer);
  if (!gradient.ok()) {
    return gradient.status();
  }
  const auto weights = ViewBlock(layout_, config_.family, layer, unit->data());
  const auto gradients = ViewBlock(layout_, config_.family, layer, gradient->data());
  const BlockActivations& a = blocks_[layer];
  const int64_t width = config_.width;
  float* wide = wide_gradient_.data();
  float* narrow = narrow_gradient_.data();
  float* inner = inner_gradient_.data();

  LinearBackward(rows_, config_.feed_forward, width, a.inner.data(), weights.down, gradient_.data(),
                 inner, gradients.down, gradients.down_bias);
  if (llama()) {
    SwigluBackward(rows_, config_.feed_forward, a.up.data(), inner, wide);
  } else {
    GeluBackward(rows_ * config_.feed_forward, a.up.data(), inner, wide);
  }
  LinearBackward(rows_, width, up_width(), a.norm2.data(), weights.up, wide, narrow, gradients.up,
                 gradients.up_bias);
  NormBackward(a.middle.data(), weights.norm2, a.norm2_mean.data(), a.norm2_inverse.data(), narrow,
               gradient_.data(), gradients.norm2, gradients.norm2_bias);

  LinearBackward(rows_, width, width, a.attention.data(), weights.projection, gradient_.data(),
                 inner, gradients.projection, gradients.projection_bias);
  AttentionBackward(attention_, a.qkv.data(), a.probabilities.data(), inner, wide, scores_.data());
  RotateHeads(Turn::kBackward, wide);
  LinearBackward(rows_, width, attention_.row(), a.norm1.data(), weights.qkv, wide, narrow,
                 gradients.qkv, gradients.qkv_bias);
  NormBackward(a.input.data(), weights.norm1, a.norm1_mean.data(), a.norm1_inverse.data(), narrow,
               gradient_.data(), gradients.norm1, gradients.norm1_bias);
  units.Release(1 + layer);
  return units.ReleaseGradient(1 + layer);
}

absl::Status Transformer::EmbedBackward(const Batch& batch, ParameterUnits& units) {
  const absl::StatusOr<std::span<float>> unit = units.AcquireGradient(0);
  if (!unit.ok()) {
    return unit.status();
  }
  const int64_t width = config_.width;
  float* positions = unit->data() + config_.padded_vocabulary * width;
  for (int64_t n = 0; n < rows_; ++n) {
    const float* dx = gradient_.data() + n * width;
    float* token = unit->data() + batch.tokens[n] * width;
    float* position = positions + n % attention_.sequence * width;
    for (int64_t c = 0; c < width; ++c) {
      token[c] += dx[c];
    }
    for (int64_t c = 0; !llama() && c < width; ++c) {
      position[c] += dx[c];
    }
  }
  return units.ReleaseGradient(0);
}

void Transformer::NormBackward(const float* x, const float* weight, const float* mean,
                               const float* inverse, const float* dy, float* dx_add,
                               float* dweight_add, float* dbias_add) const {
  if (llama()) {
    RmsNormBackward(rows_, config_.width, x, weight, inverse, dy, dx_add, dweight_add);
  } else {
    LayerNormBackward(rows_, config_.width, x, weight, mean, inverse, dy, dx_add, dweight_add,
                      dbias_add);
  }
}

}  // namespace muster::worker
