// GPT-2 and Llama on the CPU in single precision: loss, and gradients by hand. It is the
// reference for faster engines, so it deliberately has no mixed precision, no recomputation, no
// fused attention, no dropout and no threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/model/layers.h"
#include "worker/model/model_config.h"
#include "worker/model/parameter_layout.h"
#include "worker/model/parameter_units.h"

namespace muster::worker {

// One micro-batch: B sequences of T tokens, one after another, and the token that follows each.
struct Batch {
  std::span<const int32_t> tokens;
  std::span<const int32_t> targets;
};

// Activations of one micro-batch and the code that runs over them; parameters are elsewhere. Used
// by one thread.
class Transformer {
 public:
  // InvalidArgument if the config isn't valid or `sequence` is longer than its context.
  static absl::StatusOr<Transformer> Create(const ModelConfig& config, int sequences, int sequence);

  const ParameterLayout& layout() const { return layout_; }
  const ModelConfig& config() const { return config_; }
  int64_t tokens() const { return rows_; }  // of a micro-batch

  // The sum of the loss, in nats, over all tokens. InvalidArgument if the batch has another size
  // than `tokens()` or holds a token that is not in the vocabulary.
  absl::StatusOr<double> Loss(const Batch& batch, ParameterUnits& units);

  // The same, and adds the gradient of `scale` times that sum.
  absl::StatusOr<double> LossAndGradient(const Batch& batch, float scale, ParameterUnits& units);

 private:
  // What the forward of one block leaves for its backward; names as in layers.h.
  struct BlockActivations {
    std::vector<float> input, norm1, norm1_mean, norm1_inverse, qkv, probabilities, attention;
    std::vector<float> middle, norm2, norm2_mean, norm2_inverse, up, inner;
  };

  Transformer(const ModelConfig& config, int sequences, int sequence);

  absl::Status Check(const Batch& batch) const;
  absl::StatusOr<double> Run(const Batch& batch, float scale, ParameterUnits& units);
  absl::Status Embed(const Batch& batch, ParameterUnits& units);
  absl::Status BlockForward(int layer, ParameterUnits& units);
  // Final norm, head and loss; with `scale` != 0 also their backward, which leaves in gradient_
  // the gradient of the last block's output.
  absl::StatusOr<double> Finish(const Batch& batch, float scale, ParameterUnits& units);
  double FinishWith(const Batch& batch, float scale, const float* final_unit, const float* head,
                    float* final_gradient, float* head_gradient);
  // Turns gradient_ from that of the block's output into that of its input.
  absl::Status BlockBackward(int layer, ParameterUnits& units);
  absl::Status EmbedBackward(const Batch& batch, ParameterUnits& units);

  bool llama() const { return config_.family == Family::kLlama; }
  int up_width() const { return llama() ? 2 * config_.feed_forward : config_.feed_forward; }
  void NormForward(const float* x, const float* weight, const float* bias, float* y, float* mean,
                   float* inverse) const;
  void NormBackward(const float* x, const float* weight, const float* mean, const float* inverse,
                    const float* dy, float* dx_add, float* dweight_add, float* dbias_add) const;
  void RotateHeads(Turn turn, float* qkv) const;

  ModelConfig config_;
  ParameterLayout layout_;
  AttentionShape attention_;
  std::vector<float> frequencies_;  // of rotary positions
  int64_t rows_;                    // N = B * T

  std::vector<BlockActivations> blocks_;
  std::vector<float> stream_;  // the residual stream, [N][C]
  std::vector<float> final_norm_, final_mean_, final_inverse_, logits_;
  // For the backward.
  std::vector<float> gradient_, wide_gradient_, narrow_gradient_, inner_gradient_, scores_;
};

}  // namespace muster::worker
