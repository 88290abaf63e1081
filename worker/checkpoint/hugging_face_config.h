// A model's config.json, as transformers 4 and 5 write it for GPT2LMHeadModel and LlamaForCausalLM
// (configuration_gpt2.py, configuration_llama.py, modeling_rope_utils.py).
//
// What a file says is either what the worker computes, or of no effect on it, or refused by name:
// weights that are trained as another model than they were made for give no error, only worse text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/model_config.h"

namespace muster::worker {

struct HuggingFaceConfig {
  ModelConfig model;
  std::vector<std::string> notes = {};  // what is left out of training, a sentence each: dropout
};

// InvalidArgument names the key, its value and, where there are others, the values that are
// supported; a key that nobody here knows is refused too. What is left out has transformers'
// default. `origin` is for messages.
absl::StatusOr<HuggingFaceConfig> ParseHuggingFaceConfig(std::string_view text,
                                                         std::string_view origin);

// That of the weights at `path`, a file or a directory: config.json in the same folder. NotFound if
// there is none.
absl::StatusOr<HuggingFaceConfig> ReadHuggingFaceConfig(const std::string& path);

// What transformers reads as that model. `type` is of the weights beside it: "float32",
// "bfloat16".
std::string HuggingFaceConfigText(const ModelConfig& model, std::string_view type);

}  // namespace muster::worker
