#include "worker/model/model_config.h"

#include <array>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"

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
          .padded_vocabulary =
              (vocabulary + kVocabularyMultiple - 1) / kVocabularyMultiple * kVocabularyMultiple,
          .context = context};
}

ModelConfig Llama3Tiny() {
  return {.family = Family::kLlama3,
          .layers = 2,
          .width = 64,
          .heads = 4,
          .key_value_heads = 2,
          .feed_forward = 176,
          .vocabulary = 500,
          .padded_vocabulary = 512,
          .context = 64};
}

ModelConfig Llama3Of8B() {
  return {.family = Family::kLlama3,
          .layers = 32,
          .width = 4096,
          .heads = 32,
          .key_value_heads = 8,
          .feed_forward = 14'336,
          .vocabulary = 128'256,
          .padded_vocabulary = 128'256,
          .context = 8192};
}

const std::array<std::pair<std::string_view, ModelConfig>, 7>& NamedModels() {
  static const std::array<std::pair<std::string_view, ModelConfig>, 7> kModels = {{
      {"gpt2", Gpt2(12, 768, 12, 50'257, 1024)},
      {"gpt2-medium", Gpt2(24, 1024, 16, 50'257, 1024)},
      {"gpt2-large", Gpt2(36, 1280, 20, 50'257, 1024)},
      {"gpt2-xl", Gpt2(48, 1600, 25, 50'257, 1024)},
      {"gpt2-tiny", Gpt2(2, 64, 4, 500, 64)},
      {"llama-3-8b", Llama3Of8B()},
      {"llama-3-tiny", Llama3Tiny()},
  }};
  return kModels;
}

}  // namespace

absl::Status Validate(const ModelConfig& config) {
  const std::array<std::pair<std::string_view, int>, 8> sizes = {{
      {"layers", config.layers},
      {"width", config.width},
      {"heads", config.heads},
      {"key_value_heads", config.key_value_heads},
      {"feed_forward", config.feed_forward},
      {"vocabulary", config.vocabulary},
      {"padded_vocabulary", config.padded_vocabulary},
      {"context", config.context},
  }};
  for (const auto& [name, size] : sizes) {
    if (size <= 0) {
      return absl::InvalidArgumentError(fmt::format("{} is {}; it must be positive", name, size));
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
  if (config.family == Family::kLlama3 && config.head_size() % 2 != 0) {
    return absl::InvalidArgumentError(fmt::format(
        "a head has {} channels; rotary positions need an even number", config.head_size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelConfig> NamedModel(std::string_view name) {
  std::array<std::string_view, 7> names;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto& [known, config] = NamedModels()[i];
    if (known == name) {
      return config;
    }
    names[i] = known;
  }
  return absl::NotFoundError(
      fmt::format("model \"{}\" is not known; known are: {}", name, fmt::join(names, ", ")));
}

std::string_view FamilyName(Family family) { return family == Family::kGpt2 ? "gpt2" : "llama3"; }

double FlopsPerToken(const ModelConfig& config, int sequence) {
  const double width = config.width;
  const double key_value_width = 1.0 * config.key_value_heads * config.head_size();
  const double attention = width * (2 * width + 2 * key_value_width);
  const double mlp = (config.family == Family::kGpt2 ? 2.0 : 3.0) * width * config.feed_forward;
  const double weights = config.layers * (attention + mlp) + width * config.vocabulary;
  return 6 * weights + 12 * width * config.layers * sequence;
}

}  // namespace muster::worker
