#include "worker/model/parameter_layout.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "fmt/format.h"

namespace muster::worker {
namespace {

constexpr float kDeviation = 0.02F;

float ResidualDeviation(const ModelConfig& config) {
  return kDeviation / std::sqrt(2.0F * static_cast<float>(config.layers));
}

}  // namespace

ParameterLayout::ParameterLayout(const ModelConfig& config) {
  if (config.family == Family::kGpt2) {
    AddGpt2(config);
  } else {
    AddLlama(config);
  }
}

std::span<const Parameter> ParameterLayout::UnitParameters(int unit) const {
  return std::span(parameters_).subspan(units_[unit].first_parameter, units_[unit].parameters);
}

void ParameterLayout::BeginUnit() {
  units_.push_back({.offset = size_, .first_parameter = static_cast<int>(parameters_.size())});
}

void ParameterLayout::Add(Parameter parameter) {
  parameter.offset = size_;
  size_ += parameter.size();
  units_.back().size += parameter.size();
  ++units_.back().parameters;
  parameters_.push_back(std::move(parameter));
}

void ParameterLayout::AddMatrix(std::string name, int64_t rows, int64_t columns, float deviation,
                                bool transposed_in_file) {
  Add({.name = std::move(name),
       .rows = rows,
       .columns = columns,
       .file_rows = rows,
       .decays = true,
       .transposed_in_file = transposed_in_file,
       .deviation = deviation});
}

void ParameterLayout::AddEmbedding(std::string name, int64_t rows, int64_t file_rows,
                                   int64_t columns) {
  AddMatrix(std::move(name), rows, columns, kDeviation);
  parameters_.back().file_rows = file_rows;
}

void ParameterLayout::AddVector(std::string name, int64_t size, Parameter::Initial initial) {
  Add({.name = std::move(name), .rows = size, .columns = 1, .file_rows = size, .initial = initial});
}

void ParameterLayout::AddGpt2(const ModelConfig& config) {
  const auto add_norm = [&](const std::string& name) {
    AddVector(name + ".weight", config.width, Parameter::Initial::kOne);
    AddVector(name + ".bias", config.width, Parameter::Initial::kZero);
  };
  const auto add_linear = [&](const std::string& name, int64_t outputs, int64_t inputs,
                              float deviation) {
    AddMatrix(name + ".weight", outputs, inputs, deviation, /*transposed_in_file=*/true);
    AddVector(name + ".bias", outputs, Parameter::Initial::kZero);
  };
  BeginUnit();
  AddEmbedding("transformer.wte.weight", config.padded_vocabulary, config.vocabulary, config.width);
  AddEmbedding("transformer.wpe.weight", config.context, config.context, config.width);
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string block = fmt::format("transformer.h.{}.", layer);
    BeginUnit();
    add_norm(block + "ln_1");
    add_linear(block + "attn.c_attn", int64_t{3} * config.width, config.width, kDeviation);
    add_linear(block + "attn.c_proj", config.width, config.width, ResidualDeviation(config));
    add_norm(block + "ln_2");
    add_linear(block + "mlp.c_fc", config.feed_forward, config.width, kDeviation);
    add_linear(block + "mlp.c_proj", config.width, config.feed_forward, ResidualDeviation(config));
  }
  BeginUnit();
  add_norm("transformer.ln_f");
}

void ParameterLayout::AddLlama(const ModelConfig& config) {
  const auto add_norm = [&](const std::string& name) {
    AddVector(name + ".weight", config.width, Parameter::Initial::kOne);
  };
  const int64_t key_value_width = int64_t{1} * config.key_value_heads * config.head_size();
  BeginUnit();
  AddEmbedding("model.embed_tokens.weight", config.padded_vocabulary, config.vocabulary,
               config.width);
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string block = fmt::format("model.layers.{}.", layer);
    BeginUnit();
    add_norm(block + "input_layernorm");
    // Neighbours, so that each group is one matrix to the products.
    AddMatrix(block + "self_attn.q_proj.weight", config.width, config.width, kDeviation);
    AddMatrix(block + "self_attn.k_proj.weight", key_value_width, config.width, kDeviation);
    AddMatrix(block + "self_attn.v_proj.weight", key_value_width, config.width, kDeviation);
    AddMatrix(block + "self_attn.o_proj.weight", config.width, config.width,
              ResidualDeviation(config));
    add_norm(block + "post_attention_layernorm");
    AddMatrix(block + "mlp.gate_proj.weight", config.feed_forward, config.width, kDeviation);
    AddMatrix(block + "mlp.up_proj.weight", config.feed_forward, config.width, kDeviation);
    AddMatrix(block + "mlp.down_proj.weight", config.width, config.feed_forward,
              ResidualDeviation(config));
  }
  BeginUnit();
  add_norm("model.norm");
  if (!config.tied_head) {
    AddEmbedding("lm_head.weight", config.padded_vocabulary, config.vocabulary, config.width);
  }
}

void ParameterLayout::Initialize(uint64_t seed, int64_t offset, std::span<float> values) const {
  const int64_t end = offset + static_cast<int64_t>(values.size());
  for (const Parameter& parameter : parameters_) {
    const int64_t begin = std::max(offset, parameter.offset);
    const int64_t stop = std::min(end, parameter.offset + parameter.size());
    const int64_t padding = parameter.offset + parameter.file_rows * parameter.columns;
    const float range = parameter.deviation * std::sqrt(3.0F);
    for (int64_t i = begin; i < stop; ++i) {
      float value = 0;
      if (parameter.initial == Parameter::Initial::kOne) {
        value = 1;
      } else if (parameter.initial == Parameter::Initial::kRandom && i < padding) {
        value = range * HashedUniform(seed, static_cast<uint64_t>(i));
      }
      values[i - offset] = value;
    }
  }
}

float HashedUniform(uint64_t seed, uint64_t index) {
  uint64_t mixed = (seed * 0xD1B54A32D192ED03ULL) + (index + 1) * 0x9E3779B97F4A7C15ULL;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
  mixed ^= mixed >> 31;
  return static_cast<float>(static_cast<int64_t>(mixed >> 40) - (1 << 23)) / (1 << 23);
}

}  // namespace muster::worker
