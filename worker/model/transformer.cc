#include "worker/model/transformer.h"

#include <algorithm>

#include "fmt/format.h"
#include "worker/model/block_view.h"

namespace muster::worker {
namespace {

void AddTo(const std::vector<float>& from, std::vector<float>& to) {
  for (size_t i = 0; i < from.size(); ++i) {
    to[i] += from[i];
  }
}

}  // namespace

absl::StatusOr<Transformer> Transformer::Create(const ModelConfig& config, int sequences,
                                                int sequence) {
  if (absl::Status status = Validate(config); !status.ok()) {
    return status;
  }
  if (sequences <= 0 || sequence <= 0 || sequence > config.context) {
    return absl::InvalidArgumentError(
        fmt::format("{} sequences of {} tokens; there must be at least one, of 1 to {} tokens",
                    sequences, sequence, config.context));
  }
  return Transformer(config, sequences, sequence);
}

Transformer::Transformer(const ModelConfig& config, int sequences, int sequence)
    : config_(config),
      layout_(config),
      attention_{.sequences = sequences,
                 .sequence = sequence,
                 .heads = config.heads,
                 .key_value_heads = config.key_value_heads,
                 .head_size = config.head_size()},
      frequencies_(RotaryFrequencies(config)),
      rows_(int64_t{1} * sequences * sequence),
      blocks_(config.layers) {
  const size_t narrow = rows_ * config.width;
  for (BlockActivations& block : blocks_) {
    for (auto* buffer :
         {&block.input, &block.norm1, &block.attention, &block.middle, &block.norm2}) {
      buffer->resize(narrow);
    }
    for (auto* buffer :
         {&block.norm1_mean, &block.norm1_inverse, &block.norm2_mean, &block.norm2_inverse}) {
      buffer->resize(rows_);
    }
    block.qkv.resize(rows_ * attention_.row());
    block.probabilities.resize(attention_.probabilities());
    block.up.resize(rows_ * up_width());
    block.inner.resize(rows_ * config.feed_forward);
  }
  for (auto* buffer : {&stream_, &final_norm_, &gradient_, &narrow_gradient_}) {
    buffer->resize(narrow);
  }
  final_mean_.resize(rows_);
  final_inverse_.resize(rows_);
  logits_.resize(rows_ * config.vocabulary);
  wide_gradient_.resize(rows_ * std::max<int64_t>(attention_.row(), up_width()));
  inner_gradient_.resize(rows_ * std::max(config.feed_forward, config.width));
  scores_.resize(int64_t{1} * sequence * sequence);
}

absl::StatusOr<double> Transformer::Loss(const Batch& batch, ParameterUnits& units) {
  return Run(batch, 0, units);
}

absl::StatusOr<double> Transformer::LossAndGradient(const Batch& batch, float scale,
                                                    ParameterUnits& units) {
  absl::StatusOr<double> loss = Run(batch, scale, units);
  if (!loss.ok()) {
    return loss;
  }
  for (int layer = config_.layers - 1; layer >= 0; --layer) {
    if (absl::Status status = BlockBackward(layer, units); !status.ok()) {
      return status;
    }
  }
  if (absl::Status status = EmbedBackward(batch, units); !status.ok()) {
    return status;
  }
  return loss;
}

absl::Status Transformer::Check(const Batch& batch) const {
  if (static_cast<int64_t>(batch.tokens.size()) != rows_ ||
      static_cast<int64_t>(batch.targets.size()) != rows_) {
    return absl::InvalidArgumentError(fmt::format("{} tokens and {} targets; a micro-batch has {}",
                                                  batch.tokens.size(), batch.targets.size(),
                                                  rows_));
  }
  for (const std::span<const int32_t> tokens : {batch.tokens, batch.targets}) {
    for (const int32_t token : tokens) {
      if (token < 0 || token >= config_.vocabulary) {
        return absl::InvalidArgumentError(
            fmt::format("token {} is not in the model's vocabulary of {}; was the data made by "
                        "another tokenizer?",
                        token, config_.vocabulary));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Transformer::Run(const Batch& batch, float scale, ParameterUnits& units) {
  if (absl::Status status = Check(batch); !status.ok()) {
    return status;
  }
  if (absl::Status status = Embed(batch, units); !status.ok()) {
    return status;
  }
  for (int layer = 0; layer < config_.layers; ++layer) {
    if (absl::Status status = BlockForward(layer, units); !status.ok()) {
      return status;
    }
  }
  return Finish(batch, scale, units);
}

absl::Status Transformer::Embed(const Batch& batch, ParameterUnits& units) {
  const absl::StatusOr<std::span<const float>> unit = units.Acquire(0);
  if (!unit.ok()) {
    return unit.status();
  }
  const int64_t width = config_.width;
  const float* positions = unit->data() + config_.padded_vocabulary * width;
  for (int64_t n = 0; n < rows_; ++n) {
    const float* token = unit->data() + batch.tokens[n] * width;
    float* x = stream_.data() + n * width;
    std::copy(token, token + width, x);
    const float* position = positions + n % attention_.sequence * width;
    for (int64_t c = 0; !llama() && c < width; ++c) {
      x[c] += position[c];
    }
  }
  units.Release(0);
  return absl::OkStatus();
}

absl::Status Transformer::BlockForward(int layer, ParameterUnits& units) {
  const absl::StatusOr<std::span<const float>> unit = units.Acquire(1 + layer);
  if (!unit.ok()) {
    return unit.status();
  }
  const auto weights = ViewBlock(layout_, config_.family, layer, unit->data());
  BlockActivations& a = blocks_[layer];
  const int64_t width = config_.width;
  a.input = stream_;
  NormForward(a.input.data(), weights.norm1, weights.norm1_bias, a.norm1.data(),
              a.norm1_mean.data(), a.norm1_inverse.data());
  LinearForward(rows_, width, attention_.row(), a.norm1.data(), weights.qkv, weights.qkv_bias,
                a.qkv.data());
  RotateHeads(Turn::kForward, a.qkv.data());
  AttentionForward(attention_, a.qkv.data(), a.attention.data(), a.probabilities.data());
  LinearForward(rows_, width, width, a.attention.data(), weights.projection,
                weights.projection_bias, a.middle.data());
  AddTo(a.input, a.middle);

  NormForward(a.middle.data(), weights.norm2, weights.norm2_bias, a.norm2.data(),
              a.norm2_mean.data(), a.norm2_inverse.data());
  LinearForward(rows_, width, up_width(), a.norm2.data(), weights.up, weights.up_bias, a.up.data());
  if (llama()) {
    SwigluForward(rows_, config_.feed_forward, a.up.data(), a.inner.data());
  } else {
    GeluForward(rows_ * config_.feed_forward, a.up.data(), a.inner.data());
  }
  LinearForward(rows_, config_.feed_forward, width, a.inner.data(), weights.down, weights.down_bias,
                stream_.data());
  AddTo(a.middle, stream_);
  units.Release(1 + layer);
  return absl::OkStatus();
}

absl::StatusOr<double> Transformer::Finish(const Batch& batch, float scale, ParameterUnits& units) {
  const int final_unit = config_.layers + 1;
  const absl::StatusOr<std::span<const float>> final_weights = units.Acquire(final_unit);
  if (!final_weights.ok()) {
    return final_weights.status();
  }
  // The head follows the norm in the last unit, unless it is the token embedding.
  const float* head = final_weights->data() + config_.width;
  if (config_.tied_head) {
    const absl::StatusOr<std::span<const float>> embedding = units.Acquire(0);
    if (!embedding.ok()) {
      return embedding.status();
    }
    head = embedding->data();
  }
  float* final_gradient = nullptr;
  float* head_gradient = nullptr;
  if (scale != 0) {
    absl::StatusOr<std::span<float>> gradient = units.AcquireGradient(final_unit);
    if (!gradient.ok()) {
      return gradient.status();
    }
    final_gradient = gradient->data();
    head_gradient = final_gradient + config_.width;
    if (config_.tied_head) {
      gradient = units.AcquireGradient(0);
      if (!gradient.ok()) {
        return gradient.status();
      }
      head_gradient = gradient->data();
    }
  }
  const double loss =
      FinishWith(batch, scale, final_weights->data(), head, final_gradient, head_gradient);
  if (config_.tied_head) {
    units.Release(0);
  }
  units.Release(final_unit);
  if (scale != 0) {
    absl::Status status = units.ReleaseGradient(final_unit);
    if (config_.tied_head) {
      status.Update(units.ReleaseGradient(0));
    }
    if (!status.ok()) {
      return status;
    }
  }
  return loss;
}

double Transformer::FinishWith(const Batch& batch, float scale, const float* final_unit,
                               const float* head, float* final_gradient, float* head_gradient) {
  const int64_t width = config_.width;
  NormForward(stream_.data(), final_unit, final_unit + width, final_norm_.data(),
              final_mean_.data(), final_inverse_.data());
  LinearForward(rows_, width, config_.vocabulary, final_norm_.data(), head, nullptr,
                logits_.data());
  const double loss =
      CrossEntropy(rows_, config_.vocabulary, batch.targets.data(), scale, logits_.data());
  if (scale != 0) {
    LinearBackward(rows_, width, config_.vocabulary, final_norm_.data(), head, logits_.data(),
                   narrow_gradient_.data(), head_gradient, nullptr);
    std::fill(gradient_.begin(), gradient_.end(), 0.0F);
    NormBackward(stream_.data(), final_unit, final_mean_.data(), final_inverse_.data(),
                 narrow_gradient_.data(), gradient_.data(), final_gradient, final_gradient + width);
  }
  return loss;
}

void Transformer::NormForward(const float* x, const float* weight, const float* bias, float* y,
                              float* mean, float* inverse) const {
  if (llama()) {
    RmsNormForward(rows_, config_.width, config_.norm_epsilon, x, weight, y, inverse);
  } else {
    LayerNormForward(rows_, config_.width, config_.norm_epsilon, x, weight, bias, y, mean, inverse);
  }
}

void Transformer::RotateHeads(Turn turn, float* qkv) const {
  if (llama()) {
    // Queries and keys; values are not turned.
    Rotate(rows_, attention_.sequence, attention_.heads + attention_.key_value_heads,
           attention_.head_size, attention_.row(), frequencies_.data(), turn, qkv);
  }
}

}  // namespace muster::worker
