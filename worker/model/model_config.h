// The two families of decoder-only transformers that the worker trains, and their sizes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::worker {

enum class Family {
  kGpt2,    // learned positions, LayerNorm, GELU (tanh), biases, head tied to the token embedding
  kLlama3,  // rotary positions, RMSNorm, SwiGLU, grouped-query attention, no biases, own head
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
  float rope_theta = 500'000.0F;  // Llama only

  int head_size() const { return width / heads; }
  bool operator==(const ModelConfig&) const = default;
};

// InvalidArgument, naming the field, if the sizes don't belong together.
absl::Status Validate(const ModelConfig& config);

// gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-3-8b, and for tests and laptops gpt2-tiny and
// llama-3-tiny (2 layers, width 64, 512 tokens). NotFound lists the names.
absl::StatusOr<ModelConfig> NamedModel(std::string_view name);

// "gpt2" or "llama3".
std::string_view FamilyName(Family family);

// FLOPs of forward and backward for each token of a sequence of that length: 6 for each weight of
// a matrix product, and attention over the whole square, as is usual in figures of MFU.
double FlopsPerToken(const ModelConfig& config, int sequence);

}  // namespace muster::worker
