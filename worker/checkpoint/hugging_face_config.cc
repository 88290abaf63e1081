#include "worker/checkpoint/hugging_face_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/file.h"

namespace muster::worker {
namespace {

using nlohmann::json;

constexpr uint64_t kMostConfig = 1 << 20;

// Of no effect on what is computed, for either family: about text, files, generation, or layouts
// that give the same numbers. Names that begin with '_' are transformers' own notes.
constexpr auto kWithoutEffect = std::to_array<std::string_view>({"bad_words_ids",
                                                                 "begin_suppress_tokens",
                                                                 "bos_token_id",
                                                                 "chunk_size_feed_forward",
                                                                 "cross_attention_hidden_size",
                                                                 "decoder_start_token_id",
                                                                 "diversity_penalty",
                                                                 "do_sample",
                                                                 "dtype",
                                                                 "early_stopping",
                                                                 "encoder_no_repeat_ngram_size",
                                                                 "eos_token_id",
                                                                 "exponential_decay_length_penalty",
                                                                 "finetuning_task",
                                                                 "forced_bos_token_id",
                                                                 "forced_eos_token_id",
                                                                 "gradient_checkpointing",
                                                                 "id2label",
                                                                 "initializer_range",
                                                                 "keys_to_ignore_at_inference",
                                                                 "label2id",
                                                                 "length_penalty",
                                                                 "max_length",
                                                                 "min_length",
                                                                 "n_ctx",
                                                                 "no_repeat_ngram_size",
                                                                 "num_beam_groups",
                                                                 "num_beams",
                                                                 "num_labels",
                                                                 "num_return_sequences",
                                                                 "output_attentions",
                                                                 "output_hidden_states",
                                                                 "output_scores",
                                                                 "pad_token_id",
                                                                 "prefix",
                                                                 "pretraining_tp",
                                                                 "problem_type",
                                                                 "remove_invalid_values",
                                                                 "reorder_and_upcast_attn",
                                                                 "repetition_penalty",
                                                                 "return_dict",
                                                                 "return_dict_in_generate",
                                                                 "sep_token_id",
                                                                 "summary_activation",
                                                                 "summary_first_dropout",
                                                                 "summary_proj_to_labels",
                                                                 "summary_type",
                                                                 "summary_use_proj",
                                                                 "suppress_tokens",
                                                                 "task_specific_params",
                                                                 "temperature",
                                                                 "tf_legacy_loss",
                                                                 "tokenizer_class",
                                                                 "top_k",
                                                                 "top_p",
                                                                 "torch_dtype",
                                                                 "torchscript",
                                                                 "transformers_version",
                                                                 "typical_p",
                                                                 "use_bfloat16",
                                                                 "use_cache"});

bool IsWithoutEffect(std::string_view key) {
  return key.starts_with('_') || std::ranges::find(kWithoutEffect, key) != kWithoutEffect.end();
}

// For messages: ASCII, and not longer than a line.
std::string Cut(std::string text) {
  constexpr size_t kLongest = 80;
  return text.size() > kLongest ? text.substr(0, kLongest) + "..." : text;
}
std::string Shown(const json& value) { return Cut(value.dump(-1, ' ', /*ensure_ascii=*/true)); }
std::string ShownName(const std::string& name) {
  const std::string quoted = json(name).dump(-1, ' ', /*ensure_ascii=*/true);
  return Cut(quoted.substr(1, quoted.size() - 2));
}

// Reads an object's keys one by one and knows which it has read. The first thing that is wrong is
// what remains in status().
class Keys {
 public:
  Keys(const json& object, std::string origin) : object_(object), origin_(std::move(origin)) {}

  const absl::Status& status() const { return status_; }
  void Fail(std::string_view what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(fmt::format("{}: {}", origin_, what));
  }

  // What reading a part of the object came to.
  void Adopt(const absl::Status& status) { status_.Update(status); }

  // Null where the key is missing or null.
  const json* Find(const std::string& key) {
    seen_.insert(key);
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  int Size(const std::string& key, int otherwise) {
    const json* value = Find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number_integer() || *value < 1 || *value > kMostRows) {
      Fail(fmt::format("{}={} is no size from 1 to {}", key, Shown(*value), kMostRows));
      return otherwise;
    }
    return value->get<int>();
  }

  float Number(const std::string& key, double otherwise) {
    const json* value = Find(key);
    if (value == nullptr) return static_cast<float>(otherwise);
    if (!value->is_number() || std::abs(value->get<double>()) > std::numeric_limits<float>::max()) {
      Fail(fmt::format("{}={} is no number", key, Shown(*value)));
      return static_cast<float>(otherwise);
    }
    return static_cast<float>(value->get<double>());
  }

  bool Flag(const std::string& key, bool otherwise) {
    const json* value = Find(key);
    if (value != nullptr && !value->is_boolean()) {
      Fail(fmt::format("{}={} is neither true nor false", key, Shown(*value)));
    }
    return value != nullptr && value->is_boolean() ? value->get<bool>() : otherwise;
  }

  // The value must be one of those, or missing.
  void Only(const std::string& key, const std::vector<json>& supported) {
    const json* value = Find(key);
    if (value == nullptr || std::ranges::find(supported, *value) != supported.end()) return;
    std::vector<std::string> texts;
    for (const json& each : supported) texts.push_back(each.dump());
    Fail(fmt::format("{}={} isn't supported; supported: {}", key, Shown(*value),
                     fmt::join(texts, ", ")));
  }

  void Dropout(const std::string& key, std::vector<std::string>& notes) {
    if (Number(key, 0) == 0) return;
    notes.push_back(
        fmt::format("{}: {}={}: training has no dropout", origin_, key, Shown(*Find(key))));
  }

  // Refuses what hasn't been asked for.
  void RefuseOthers(const std::function<bool(std::string_view)>& harmless) {
    for (const auto& [key, value] : object_.items()) {
      // What is switched off does nothing, whatever it is.
      if (seen_.contains(key) || harmless(key) || value.is_null() || value == false ||
          (value.is_structured() && value.empty())) {
        continue;
      }
      Fail(fmt::format("{}={} isn't supported; take it out if the weights don't depend on it",
                       ShownName(key), Shown(value)));
    }
  }

 private:
  const json& object_;
  const std::string origin_;
  std::set<std::string, std::less<>> seen_;
  absl::Status status_;
};

void ReadGpt2(Keys& keys, HuggingFaceConfig& config) {
  ModelConfig& model = config.model;
  model.family = Family::kGpt2;
  model.tied_head = true;
  model.vocabulary = keys.Size("vocab_size", 50'257);
  model.context = keys.Size("n_positions", 1024);
  model.width = keys.Size("n_embd", 768);
  model.layers = keys.Size("n_layer", 12);
  model.heads = keys.Size("n_head", 12);
  model.key_value_heads = model.heads;
  model.feed_forward = keys.Size("n_inner", 4 * model.width);
  model.norm_epsilon = keys.Number("layer_norm_epsilon", 1e-5);
  for (const char* dropout : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    keys.Dropout(dropout, config.notes);
  }
  keys.Only("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  keys.Only("scale_attn_weights", {true});
  keys.Only("scale_attn_by_inverse_layer_idx", {false});
  keys.Only("tie_word_embeddings", {true});
}

void ReadRopeScaling(const json& value, const std::string& key, std::string_view origin, Keys& keys,
                     ModelConfig& model) {
  if (!value.is_object()) return keys.Fail(fmt::format("{}={} is no object", key, Shown(value)));
  Keys scaling(value, fmt::format("{}: {}", origin, key));
  const json* type = scaling.Find("rope_type");
  const json* old_type = scaling.Find("type");  // until transformers 4.43
  const json named = type != nullptr ? *type : old_type != nullptr ? *old_type : json("default");
  model.rope_theta = scaling.Number("rope_theta", model.rope_theta);
  if (named == "llama3") {
    RopeScaling& scale = model.rope_scaling;
    for (const char* needed :
         {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
      if (scaling.Find(needed) == nullptr) {
        scaling.Fail(fmt::format("rope_type=\"llama3\" lacks {}", needed));
      }
    }
    scale.factor = scaling.Number("factor", scale.factor);
    scale.low_frequency_factor = scaling.Number("low_freq_factor", scale.low_frequency_factor);
    scale.high_frequency_factor = scaling.Number("high_freq_factor", scale.high_frequency_factor);
    scale.original_context =
        scaling.Size("original_max_position_embeddings", scale.original_context);
    if (scale.factor == 1) scale = {};
  } else if (named != "default") {
    scaling.Fail(fmt::format("rope_type={} isn't supported; supported: \"default\", \"llama3\"",
                             Shown(named)));
  }
  scaling.RefuseOthers([](std::string_view) { return false; });
  keys.Adopt(scaling.status());
}

void ReadLlama(std::string_view origin, Keys& keys, HuggingFaceConfig& config) {
  ModelConfig& model = config.model;
  model.family = Family::kLlama;
  model.vocabulary = keys.Size("vocab_size", 32'000);
  model.context = keys.Size("max_position_embeddings", 2048);
  model.width = keys.Size("hidden_size", 4096);
  model.layers = keys.Size("num_hidden_layers", 32);
  model.heads = keys.Size("num_attention_heads", 32);
  model.key_value_heads = keys.Size("num_key_value_heads", model.heads);
  model.feed_forward = keys.Size("intermediate_size", 11'008);
  model.norm_epsilon = keys.Number("rms_norm_eps", 1e-6);
  model.tied_head = keys.Flag("tie_word_embeddings", false);
  model.rope_theta = keys.Number("rope_theta", 10'000);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (const json* value = keys.Find(key)) ReadRopeScaling(*value, key, origin, keys, model);
  }
  if (model.width % model.heads == 0) keys.Only("head_dim", {model.width / model.heads});
  keys.Only("hidden_act", {"silu", "swish"});
  keys.Only("attention_bias", {false});
  keys.Only("mlp_bias", {false});
  keys.Dropout("attention_dropout", config.notes);
}

std::string ConfigPath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::is_directory(path, error)
                                           ? std::filesystem::path(path)
                                           : std::filesystem::path(path).parent_path();
  return folder / "config.json";
}

// The shortest decimal number that is this float, so that 1e-05F doesn't become 9.99e-06.
double AsWritten(float value) { return std::stod(fmt::format("{}", value)); }

}  // namespace

absl::StatusOr<HuggingFaceConfig> ParseHuggingFaceConfig(std::string_view text,
                                                         std::string_view origin) {
  const json object = json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError(fmt::format("{}: is no JSON object", origin));
  }
  Keys keys(object, std::string(origin));
  HuggingFaceConfig config;
  const json* type = keys.Find("model_type");
  if (type == nullptr) {
    keys.Fail("lacks model_type");
  } else if (*type == "gpt2") {
    keys.Only("architectures", {json::array({"GPT2LMHeadModel"}), json::array({"GPT2Model"})});
    ReadGpt2(keys, config);
  } else if (*type == "llama") {
    keys.Only("architectures", {json::array({"LlamaForCausalLM"})});
    ReadLlama(origin, keys, config);
  } else {
    keys.Only("model_type", {"gpt2", "llama"});
  }
  if (keys.status().ok()) keys.RefuseOthers(IsWithoutEffect);
  if (!keys.status().ok()) return keys.status();
  config.model.padded_vocabulary = PaddedVocabulary(config.model.vocabulary);
  if (const absl::Status status = Validate(config.model); !status.ok()) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", origin, std::string(status.message())));
  }
  return config;
}

absl::StatusOr<HuggingFaceConfig> ReadHuggingFaceConfig(const std::string& path) {
  const std::string file = ConfigPath(path);
  const absl::StatusOr<std::string> text = ReadFile(file, kMostConfig);
  if (!text.ok()) return text.status();
  return ParseHuggingFaceConfig(*text, file);
}

std::string HuggingFaceConfigText(const ModelConfig& model, std::string_view type) {
  json object;
  if (model.family == Family::kGpt2) {
    object = {{"model_type", "gpt2"},
              {"architectures", {"GPT2LMHeadModel"}},
              {"activation_function", "gelu_new"},
              {"n_positions", model.context},
              {"n_embd", model.width},
              {"n_layer", model.layers},
              {"n_head", model.heads},
              {"n_inner", model.feed_forward},
              {"layer_norm_epsilon", AsWritten(model.norm_epsilon)},
              {"resid_pdrop", 0.0},
              {"embd_pdrop", 0.0},
              {"attn_pdrop", 0.0}};
  } else {
    object = {{"model_type", "llama"},
              {"architectures", {"LlamaForCausalLM"}},
              {"hidden_act", "silu"},
              {"max_position_embeddings", model.context},
              {"hidden_size", model.width},
              {"intermediate_size", model.feed_forward},
              {"num_hidden_layers", model.layers},
              {"num_attention_heads", model.heads},
              {"num_key_value_heads", model.key_value_heads},
              {"rms_norm_eps", AsWritten(model.norm_epsilon)},
              {"rope_theta", AsWritten(model.rope_theta)},
              {"rope_scaling", nullptr},
              {"attention_bias", false},
              {"mlp_bias", false},
              {"attention_dropout", 0.0}};
    const RopeScaling& scaling = model.rope_scaling;
    if (scaling.factor > 1) {
      object["rope_scaling"] = {{"rope_type", "llama3"},
                                {"factor", AsWritten(scaling.factor)},
                                {"low_freq_factor", AsWritten(scaling.low_frequency_factor)},
                                {"high_freq_factor", AsWritten(scaling.high_frequency_factor)},
                                {"original_max_position_embeddings", scaling.original_context}};
    }
  }
  object["tie_word_embeddings"] = model.tied_head;
  object["vocab_size"] = model.vocabulary;
  object["torch_dtype"] = type;
  return object.dump(2) + "\n";
}

}  // namespace muster::worker
