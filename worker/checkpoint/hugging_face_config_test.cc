#include "worker/checkpoint/hugging_face_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "worker/checkpoint/file.h"
#include "worker/checkpoint/test_directory.h"

namespace muster::worker {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// As the models are published.
json Gpt2() {
  return json::parse(R"({
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
    "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null,
    "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
    "summary_use_proj": true,
    "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
    "vocab_size": 50257})");
}

json Llama2() {
  return json::parse(R"({
    "_name_or_path": "llama", "architectures": ["LlamaForCausalLM"], "bos_token_id": 1,
    "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "tie_word_embeddings": false,
    "torch_dtype": "float16", "transformers_version": "4.31.0.dev0", "use_cache": true,
    "vocab_size": 32000})");
}

json Llama32() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu",
    "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
    "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256})");
}

absl::StatusOr<HuggingFaceConfig> Parse(const json& object) {
  return ParseHuggingFaceConfig(object.dump(), "config.json");
}

TEST(HuggingFaceConfig, ThePublishedModelsAreThoseOfTheirNames) {
  EXPECT_EQ(Parse(Gpt2())->model, *NamedModel("gpt2"));
  EXPECT_EQ(Parse(Llama2())->model, *NamedModel("llama-2-7b"));
  EXPECT_EQ(Parse(Llama32())->model, *NamedModel("llama-3.2-1b"));
}

TEST(HuggingFaceConfig, WhatIsLeftOutHasTheLibrarysDefault) {
  EXPECT_EQ(Parse({{"model_type", "gpt2"}})->model, *NamedModel("gpt2"));
  ModelConfig llama = *NamedModel("llama-2-7b");
  llama.context = 2048;
  llama.norm_epsilon = 1e-6F;
  EXPECT_EQ(Parse({{"model_type", "llama"}})->model, llama);
}

TEST(HuggingFaceConfig, TheNewerFormOfRotaryPositionsIsReadToo) {
  json config = Llama32();
  config["rope_parameters"] = config["rope_scaling"];
  config["rope_parameters"]["rope_theta"] = config["rope_theta"];
  config.erase("rope_scaling");
  config.erase("rope_theta");
  EXPECT_EQ(Parse(config)->model, *NamedModel("llama-3.2-1b"));
}

TEST(HuggingFaceConfig, DropoutIsToldAndLeftOut) {
  EXPECT_THAT(Parse(Llama32())->notes, IsEmpty());
  EXPECT_THAT(Parse(Gpt2())->notes,
              ElementsAre("config.json: resid_pdrop=0.1: training has no dropout",
                          "config.json: embd_pdrop=0.1: training has no dropout",
                          "config.json: attn_pdrop=0.1: training has no dropout"));
}

TEST(HuggingFaceConfig, WhatIsWrittenIsReadBack) {
  ModelConfig odd = *NamedModel("llama-3.1-8b");
  odd.norm_epsilon = 1e-6F;
  odd.rope_theta = 12'345.6F;
  odd.rope_scaling = {.factor = 2.5F,
                      .low_frequency_factor = 1.5F,
                      .high_frequency_factor = 3,
                      .original_context = 4096};
  for (const ModelConfig& model :
       {*NamedModel("gpt2-xl"), *NamedModel("llama-3-tiny"), *NamedModel("llama-3.2-3b"), odd}) {
    const auto read = ParseHuggingFaceConfig(HuggingFaceConfigText(model, "bfloat16"), "c");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->model, model);
    EXPECT_THAT(read->notes, IsEmpty());
  }
}

TEST(HuggingFaceConfig, StandsBesideTheWeights) {
  const TestDirectory directory;
  EXPECT_TRUE(absl::IsNotFound(ReadHuggingFaceConfig(directory.path()).status()));
  ASSERT_TRUE(WriteFileWhole(directory / "config.json", Llama2().dump()).ok());
  ASSERT_TRUE(WriteFileWhole(directory / "model.safetensors", "").ok());
  EXPECT_TRUE(ReadHuggingFaceConfig(directory.path()).ok());
  EXPECT_TRUE(ReadHuggingFaceConfig(directory / "model.safetensors").ok());
}

struct Refusal {
  std::string name;
  json config;
  std::string said;
};

json With(json config, const json& patch) {
  config.merge_patch(patch);
  return config;
}

class Refused : public testing::TestWithParam<Refusal> {};

TEST_P(Refused, IsNamed) {
  const auto read = Parse(GetParam().config);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("config.json: " + GetParam().said));
}

INSTANTIATE_TEST_SUITE_P(
    HuggingFaceConfig, Refused,
    testing::Values(
        Refusal{"AnotherFamily", With(Llama2(), {{"model_type", "mistral"}}),
                R"(model_type="mistral" isn't supported; supported: "gpt2", "llama")"},
        Refusal{"NoFamily", json::object(), "lacks model_type"},
        Refusal{"NoObject", json::array(), "is no JSON object"},
        Refusal{"AnotherHead",
                With(Llama2(), {{"architectures", {"LlamaForSequenceClassification"}}}),
                R"(architectures=["LlamaForSequenceClassification"] isn't supported)"},
        Refusal{"AnotherActivation", With(Llama2(), {{"hidden_act", "gelu"}}),
                R"(hidden_act="gelu" isn't supported; supported: "silu", "swish")"},
        Refusal{"BiasInAttention", With(Llama2(), {{"attention_bias", true}}),
                "attention_bias=true isn't supported"},
        Refusal{"BiasInTheMlp", With(Llama2(), {{"mlp_bias", true}}),
                "mlp_bias=true isn't supported"},
        Refusal{"HeadsOfAnotherSize", With(Llama2(), {{"head_dim", 64}}),
                "head_dim=64 isn't supported; supported: 128"},
        Refusal{"LinearScaling",
                With(Llama2(), {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}),
                R"(rope_scaling: rope_type="linear" isn't supported)"},
        Refusal{
            "Yarn", With(Llama2(), {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}}}),
            R"(rope_scaling: rope_type="yarn" isn't supported; supported: "default", "llama3")"},
        Refusal{"ScalingThatLacksANumber",
                With(Llama32(), {{"rope_scaling", {{"low_freq_factor", nullptr}}}}),
                R"(rope_scaling: rope_type="llama3" lacks low_freq_factor)"},
        Refusal{"ScalingThatMakesNoSense",
                With(Llama32(), {{"rope_scaling", {{"high_freq_factor", 0.5}}}}),
                "rope_scaling's low_freq_factor is 1"},
        Refusal{"PartOfAHeadRotated", With(Llama2(), {{"partial_rotary_factor", 0.5}}),
                "partial_rotary_factor=0.5 isn't supported"},
        Refusal{"Quantised",
                With(Llama2(), {{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}}}),
                R"(quantization_config={"bits":4,"quant_method":"gptq"} isn't supported)"},
        Refusal{"SlidingWindow", With(Llama2(), {{"sliding_window", 4096}}),
                "sliding_window=4096 isn't supported"},
        Refusal{"AnotherActivationOfGpt2", With(Gpt2(), {{"activation_function", "relu"}}),
                R"(activation_function="relu" isn't supported; supported: "gelu_new")"},
        Refusal{"AttentionWithoutScale", With(Gpt2(), {{"scale_attn_weights", false}}),
                "scale_attn_weights=false isn't supported"},
        Refusal{"AttentionScaledByLayer", With(Gpt2(), {{"scale_attn_by_inverse_layer_idx", true}}),
                "scale_attn_by_inverse_layer_idx=true isn't supported"},
        Refusal{"CrossAttention", With(Gpt2(), {{"add_cross_attention", true}}),
                "add_cross_attention=true isn't supported"},
        Refusal{"Gpt2WithAHeadOfItsOwn", With(Gpt2(), {{"tie_word_embeddings", false}}),
                "tie_word_embeddings=false isn't supported; supported: true"},
        Refusal{"ASizeThatIsNone", With(Gpt2(), {{"n_layer", -1}}),
                "n_layer=-1 is no size from 1 to 4194304"},
        Refusal{"MoreLayersThanAnyModelHas", With(Gpt2(), {{"n_layer", 1'000'000}}),
                "layers is 1000000; it must be from 1 to 10000"},
        Refusal{"AnEpsilonThatIsNone", With(Gpt2(), {{"layer_norm_epsilon", 1e300}}),
                "layer_norm_epsilon=1e+300 is no number"},
        Refusal{"SizesThatDontGoTogether", With(Gpt2(), {{"n_head", 7}}),
                "width 768 can't be divided among 7 heads"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace muster::worker
