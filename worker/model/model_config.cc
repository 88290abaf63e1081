#include "worker/model/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "fmt/format.h"

namespace muster::worker {
namespace {

constexpr int kVocabularyMultiple = 128;

ModelConfig Gpt2(int layers, int width, int heads, int vocabulary, int context) {
  return {.family = Family::kGpt2,
          .layers = layers,
          .width = width,
          .heads = heads,
          .key_value_heads = heads,
          .feed_forward = 4 * width,
          .vocabulary = vocabulary,
          .padded_vocabulary = PaddedVocabulary(vocabulary),
          .context = context,
          .tied_head = true};
}

ModelConfig Llama3Tiny() {
  return {.family = Family::kLlama,
          .layers = 2,
          .width = 64,
          .heads = 4,
          .key_value_heads = 2,
          .feed_forward = 176,
          .vocabulary = 500,
          .padded_vocabulary = 512,
          .context = 64};
}

ModelConfig Llama2Of7B() {
  return {.family = Family::kLlama,
          .layers = 32,
          .width = 4096,
          .heads = 32,
          .key_value_heads = 32,
          .feed_forward = 11'008,
          .vocabulary = 32'000,
          .padded_vocabulary = 32'000,
          .context = 4096,
          .rope_theta = 10'000.0F};
}

ModelConfig Llama3Of8B() {
  return {.family = Family::kLlama,
          .layers = 32,
          .width = 4096,
          .heads = 32,
          .key_value_heads = 8,
          .feed_forward = 14'336,
          .vocabulary = 128'256,
          .padded_vocabulary = 128'256,
          .context = 8192};
}

constexpr int kLongContext = 131'072;  // of Llama 3.1 and 3.2

ModelConfig Llama31Of8B() {
  ModelConfig config = Llama3Of8B();
  config.context = kLongContext;
  config.rope_scaling.factor = 8;
  return config;
}

ModelConfig Llama32(int layers, int width, int heads, int feed_forward) {
  ModelConfig config = Llama3Of8B();
  config.layers = layers;
  config.width = width;
  config.heads = heads;
  config.feed_forward = feed_forward;
  config.context = kLongContext;
  config.tied_head = true;
  config.rope_scaling.factor = 32;
  return config;
}

ModelConfig Llama32Tiny() {
  ModelConfig config = Llama3Tiny();
  config.tied_head = true;
  config.rope_scaling = {.factor = 4, .original_context = 16};
  return config;
}

constexpr size_t kNamed = 12;
const std::array<std::pair<std::string_view, ModelConfig>, kNamed>& NamedModels() {
  static const std::array<std::pair<std::string_view, ModelConfig>, kNamed> kModels = {{
      {"gpt2", Gpt2(12, 768, 12, 50'257, 1024)},
      {"gpt2-medium", Gpt2(24, 1024, 16, 50'257, 1024)},
      {"gpt2-large", Gpt2(36, 1280, 20, 50'257, 1024)},
      {"gpt2-xl", Gpt2(48, 1600, 25, 50'257, 1024)},
      {"llama-2-7b", Llama2Of7B()},
      {"llama-3-8b", Llama3Of8B()},
      {"llama-3.1-8b", Llama31Of8B()},
      {"llama-3.2-1b", Llama32(16, 2048, 32, 8192)},
      {"llama-3.2-3b", Llama32(28, 3072, 24, 8192)},
      {"gpt2-tiny", Gpt2(2, 64, 4, 500, 64)},
      {"llama-3-tiny", Llama3Tiny()},
      {"llama-3.2-tiny", Llama32Tiny()},
  }};
  return kModels;
}

absl::Status ValidateRope(const ModelConfig& config) {
  if (config.head_size() % 2 != 0) {
    return absl::InvalidArgumentError(fmt::format(
        "a head has {} channels; rotary positions need an even number", config.head_size()));
  }
  const RopeScaling& scaling = config.rope_scaling;
  if (!(config.rope_theta > 0) || !std::isfinite(config.rope_theta) || !(scaling.factor >= 1) ||
      !std::isfinite(scaling.factor)) {
    return absl::InvalidArgumentError(
        fmt::format("rope_theta is {} and rope_scaling's factor {}; they must be above 0 and at "
                    "least 1",
                    config.rope_theta, scaling.factor));
  }
  if (scaling.factor > 1 &&
      (!(scaling.low_frequency_factor > 0) ||
       !(scaling.high_frequency_factor > scaling.low_frequency_factor) ||
       !std::isfinite(scaling.high_frequency_factor) || scaling.original_context < 1)) {
    return absl::InvalidArgumentError(fmt::format(
        "rope_scaling's low_freq_factor is {}, high_freq_factor {} and "
        "original_max_position_embeddings {}; they must be positive, and the second above the "
        "first",
        scaling.low_frequency_factor, scaling.high_frequency_factor, scaling.original_context));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const ModelConfig& config) {
  struct Size {
    std::string_view name;
    int size;
    int most;
  };
  const std::array<Size, 8> sizes = {{
      {"layers", config.layers, kMostLayers},
      {"width", config.width, kMostWidth},
      {"heads", config.heads, kMostWidth},
      {"key_value_heads", config.key_value_heads, kMostWidth},
      {"feed_forward", config.feed_forward, kMostRows},
      {"vocabulary", config.vocabulary, kMostRows},
      {"padded_vocabulary", config.padded_vocabulary, kMostRows},
      {"context", config.context, kMostRows},
  }};
  for (const auto& [name, size, most] : sizes) {
    if (size < 1 || size > most) {
      return absl::InvalidArgumentError(
          fmt::format("{} is {}; it must be from 1 to {}", name, size, most));
    }
  }
  if (config.width % config.heads != 0) {
    return absl::InvalidArgumentError(
        fmt::format("width {} can't be divided among {} heads", config.width, config.heads));
  }
  if (config.heads % config.key_value_heads != 0) {
    return absl::InvalidArgumentError(fmt::format(
        "heads {} is not a multiple of key_value_heads {}", config.heads, config.key_value_heads));
  }
  if (config.padded_vocabulary < config.vocabulary) {
    return absl::InvalidArgumentError(fmt::format("padded_vocabulary {} is below vocabulary {}",
                                                  config.padded_vocabulary, config.vocabulary));
  }
  if (config.family == Family::kGpt2 && config.key_value_heads != config.heads) {
    return absl::InvalidArgumentError(
        fmt::format("key_value_heads is {}; GPT-2 has as many as heads, {}", config.key_value_heads,
                    config.heads));
  }
  if (config.family == Family::kGpt2 && !config.tied_head) {
    return absl::InvalidArgumentError("GPT-2's head is its token embedding");
  }
  if (!(config.norm_epsilon > 0) || !std::isfinite(config.norm_epsilon)) {
    return absl::InvalidArgumentError(
        fmt::format("the norms' epsilon is {}; it must be positive", config.norm_epsilon));
  }
  return config.family == Family::kLlama ? ValidateRope(config) : absl::OkStatus();
}

absl::StatusOr<ModelConfig> NamedModel(std::string_view name) {
  for (const auto& [known, config] : NamedModels()) {
    if (known == name) {
      return config;
    }
  }
  return absl::NotFoundError(
      fmt::format("model \"{}\" is not known; known are: {}", name, ModelNames()));
}

std::string ModelNames() {
  std::string names;
  for (const auto& [name, config] : NamedModels()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  return names;
}

int PaddedVocabulary(int vocabulary) {
  return (vocabulary + kVocabularyMultiple - 1) / kVocabularyMultiple * kVocabularyMultiple;
}

std::string_view FamilyName(Family family) { return family == Family::kGpt2 ? "gpt2" : "llama"; }

std::vector<float> RotaryFrequencies(const ModelConfig& config) {
  constexpr double kTurn = 2 * std::numbers::pi;
  const RopeScaling& scaling = config.rope_scaling;
  std::vector<float> frequencies(config.head_size() / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double frequency =
        std::pow(config.rope_theta, -2.0 * static_cast<double>(i) / config.head_size());
    // How often the pair turns round within the original context, from the low factor on.
    const double turns = scaling.original_context * frequency / kTurn;
    const double kept =
        std::clamp((turns - scaling.low_frequency_factor) /
                       (scaling.high_frequency_factor - scaling.low_frequency_factor),
                   0.0, 1.0);
    frequencies[i] =
        static_cast<float>(frequency * (kept + (1 - kept) / static_cast<double>(scaling.factor)));
  }
  return frequencies;
}

double FlopsPerToken(const ModelConfig& config, int sequence) {
  const double width = config.width;
  const double key_value_width = 1.0 * config.key_value_heads * config.head_size();
  const double attention = width * (2 * width + 2 * key_value_width);
  const double mlp = (config.family == Family::kGpt2 ? 2.0 : 3.0) * width * config.feed_forward;
  const double weights = config.layers * (attention + mlp) + width * config.vocabulary;
  return 6 * weights + 12 * width * config.layers * sequence;
}

}  // namespace muster::worker
