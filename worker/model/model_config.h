// The two families of decoder-only transformers that the worker trains, and their sizes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::worker {

enum class Family {
  kGpt2,   // learned positions, LayerNorm, GELU (tanh), biases
  kLlama,  // rotary positions, RMSNorm, SwiGLU, grouped-query attention, no biases: Llama 2 to 3.2
};

// How Llama 3.1 and later stretch rotary positions beyond the context that they were trained on
// ("llama3" in transformers' modeling_rope_utils.py): frequencies whose wavelength is above
// original_context / low_frequency_factor are divided by `factor`, those below original_context /
// high_frequency_factor stay, and those between go from one to the other.
struct RopeScaling {
  float factor = 1;  // 1: nothing is stretched, and the others don't matter
  float low_frequency_factor = 1;
  float high_frequency_factor = 4;
  int original_context = 8192;
  bool operator==(const RopeScaling&) const = default;
};

struct ModelConfig {
  Family family = Family::kGpt2;
  int layers = 0;
  int width = 0;            // of the residual stream
  int heads = 0;            // of queries; the width is divided among them
  int key_value_heads = 0;  // each serves heads / key_value_heads of the queries'; GPT-2: heads
  int feed_forward = 0;     // inner width of the MLP
  int vocabulary = 0;
  // Rows of the embedding and the head; those from `vocabulary` on are zero, get no gradient and
  // take no part in the softmax.
  int padded_vocabulary = 0;
  int context = 0;  // the longest sequence
  float norm_epsilon = 1e-5F;
  bool tied_head = false;         // the head is the token embedding; GPT-2: always
  float rope_theta = 500'000.0F;  // Llama only, as the next
  RopeScaling rope_scaling = {};

  int head_size() const { return width / heads; }
  bool operator==(const ModelConfig&) const = default;
};

// They keep the number of parameters, times their bytes, within 64 bits.
inline constexpr int kMostLayers = 10'000;
inline constexpr int kMostWidth = 1 << 20;  // of the residual stream; and heads
inline constexpr int kMostRows = 1 << 22;   // of anything else

// InvalidArgument, naming the field, if a size is out of range or they don't belong together.
absl::Status Validate(const ModelConfig& config);

// gpt2 and its sizes, llama-2-7b, llama-3-8b, llama-3.1-8b, llama-3.2-1b, llama-3.2-3b, and for
// tests and laptops gpt2-tiny, llama-3-tiny and llama-3.2-tiny (2 layers, width 64, 512 tokens).
// NotFound lists the names.
absl::StatusOr<ModelConfig> NamedModel(std::string_view name);
// "gpt2, gpt2-medium, ...".
std::string ModelNames();

// Rows of the embedding for that many tokens: a multiple of 128.
int PaddedVocabulary(int vocabulary);

// "gpt2" or "llama".
std::string_view FamilyName(Family family);

// By how many radians each pair of a head's channels turns from one position to the next: one for
// each half of head_size(). Llama only.
std::vector<float> RotaryFrequencies(const ModelConfig& config);

// FLOPs of forward and backward for each token of a sequence of that length: 6 for each weight of
// a matrix product, and attention over the whole square, as is usual in figures of MFU.
double FlopsPerToken(const ModelConfig& config, int sequence);

}  // namespace muster::worker
