#include "worker/checkpoint/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "worker/checkpoint/test_directory.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<float> RandomParameters(const ParameterLayout& layout) {
  std::vector<float> values(layout.size());
  layout.Initialize(3, 0, values);
  return values;
}

ParameterSource From(const std::vector<float>& parameters) {
  return [&parameters](int64_t offset, std::span<float> values) {
    std::copy_n(parameters.begin() + offset, values.size(), values.begin());
    return absl::OkStatus();
  };
}

// The model's random parameters, which are returned, as `directory`.
std::vector<float> WriteRandom(const ModelConfig& model, const std::string& directory,
                               const ExportOptions& options = {}) {
  std::vector<float> parameters = RandomParameters(ParameterLayout(model));
  const absl::Status status = WriteHuggingFace(model, From(parameters), directory, options);
  EXPECT_TRUE(status.ok()) << status;
  return parameters;
}

TEST(HuggingFace, WhatIsWrittenIsReadBackWhateverTheRange) {
  for (const ModelConfig& model :
       {*NamedModel("gpt2-tiny"), *NamedModel("llama-3-tiny"), *NamedModel("llama-3.2-tiny")}) {
    const TestDirectory directory;
    const std::string name(FamilyName(model.family));
    const ParameterLayout layout(model);
    const std::vector<float> written = WriteRandom(model, directory / "w");
    const absl::StatusOr<HuggingFaceWeights> weights =
        HuggingFaceWeights::Open(layout, directory / "w");
    ASSERT_TRUE(weights.ok()) << weights.status();
    std::vector<float> read(layout.size(), -1);
    const int64_t cut = layout.size() / 3;
    ASSERT_TRUE(weights->Read(0, std::span(read).first(cut)).ok());
    ASSERT_TRUE(weights->Read(cut, std::span(read).subspan(cut)).ok());
    EXPECT_EQ(read, written) << name;
  }
}

TEST(HuggingFace, Gpt2sFilesHoldTransposedWeightsAndNoPadding) {
  const TestDirectory directory;
  const ParameterLayout layout(*NamedModel("gpt2-tiny"));
  const std::vector<float> written = WriteRandom(*NamedModel("gpt2-tiny"), directory / "m");
  const SafetensorsFile file = *SafetensorsFile::Open(directory / "m/model.safetensors");
  EXPECT_THAT(file.Find("transformer.wte.weight")->shape, ElementsAre(500, 64));
  const SafetensorsEntry* weight = file.Find("transformer.h.1.attn.c_attn.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_THAT(weight->shape, ElementsAre(64, 192));
  std::vector<float> in_file(weight->elements());
  ASSERT_TRUE(file.Read(*weight, 0, in_file).ok());
  const auto parameter =
      std::find_if(layout.parameters().begin(), layout.parameters().end(),
                   [](const auto& p) { return p.name == "transformer.h.1.attn.c_attn.weight"; });
  // Output 5 of input 2.
  EXPECT_EQ(in_file[2 * 192 + 5], written[parameter->offset + 5 * 64 + 2]);
}

// The published GPT-2 has names without "transformer.", and attention masks beside the weights.
TEST(HuggingFace, PublishedNamesOfGpt2AreRead) {
  const TestDirectory directory;
  const ParameterLayout layout(*NamedModel("gpt2-tiny"));
  const std::vector<float> ones(int64_t{512} * 64, 1);
  std::vector<SafetensorsTensor> tensors;
  for (const Parameter& parameter : layout.parameters()) {
    std::vector<int64_t> shape = {parameter.file_rows};
    if (parameter.decays) {
      shape = parameter.transposed_in_file
                  ? std::vector<int64_t>{parameter.columns, parameter.file_rows}
                  : std::vector<int64_t>{parameter.file_rows, parameter.columns};
    }
    const int64_t size = parameter.file_rows * parameter.columns;
    tensors.push_back({.name = parameter.name.substr(std::string("transformer.").size()),
                       .shape = shape,
                       .produce = [&ones, size] { return std::span(ones).first(size); }});
  }
  tensors.push_back({.name = "h.0.attn.bias", .shape = {1}, .produce = [&ones] {
                       return std::span(ones).first(1);
                     }});
  ASSERT_TRUE(WriteSafetensors(directory / "m", {}, tensors).ok());
  const absl::StatusOr<HuggingFaceWeights> weights =
      HuggingFaceWeights::Open(layout, directory / "m");
  ASSERT_TRUE(weights.ok()) << weights.status();
  std::vector<float> read(int64_t{512} * 64, -1);
  ASSERT_TRUE(weights->Read(0, read).ok());
  EXPECT_EQ(read[499 * 64 + 63], 1);
  EXPECT_EQ(read[500 * 64], 0);
}

TEST(HuggingFace, WeightsOfAnotherModelAreNamed) {
  const TestDirectory directory;
  WriteRandom(*NamedModel("gpt2-tiny"), directory / "m");
  const ParameterLayout llama(*NamedModel("llama-3-tiny"));
  EXPECT_THAT(std::string(HuggingFaceWeights::Open(llama, directory / "m").status().message()),
              HasSubstr("tensor \"model.embed_tokens.weight\" is missing"));
  ModelConfig wider = *NamedModel("gpt2-tiny");
  wider.feed_forward = 128;
  const ParameterLayout other(wider);
  EXPECT_THAT(std::string(HuggingFaceWeights::Open(other, directory / "m").status().message()),
              HasSubstr("\"transformer.h.0.mlp.c_fc.weight\" is [64, 256], the model's is "
                        "[64, 128]"));
}

TEST(HuggingFace, LargeWeightsAreSeveralFilesWithAnIndexThatLeadsToThemAndNowhereElse) {
  const TestDirectory directory;
  const ModelConfig model = *NamedModel("llama-3-tiny");
  const ParameterLayout layout(model);
  const std::vector<float> written =
      WriteRandom(model, directory / "w", {.most_shard_bytes = 100'000});
  EXPECT_FALSE(std::filesystem::exists(directory / "w/model.safetensors"));
  const std::string index = directory / "w/model.safetensors.index.json";
  const auto json = nlohmann::json::parse(std::ifstream(index));
  EXPECT_EQ(json["weight_map"].size(), layout.parameters().size());
  EXPECT_EQ(json["metadata"]["total_size"], (layout.size() - 2 * 12 * 64) * 4) << "no padding";
  for (const nlohmann::json& name : json["weight_map"]) {
    const std::string file = directory / ("w/" + name.get<std::string>());
    // The embedding, of 128,000 bytes, is alone.
    EXPECT_LT(std::filesystem::file_size(file), 130'000);
  }
  const absl::StatusOr<HuggingFaceWeights> weights =
      HuggingFaceWeights::Open(layout, directory / "w");
  ASSERT_TRUE(weights.ok()) << weights.status();
  std::vector<float> read(layout.size(), -1);
  ASSERT_TRUE(weights->Read(0, read).ok());
  EXPECT_EQ(read, written);
  std::ofstream(index) << R"({"weight_map":{"lm_head.weight":"../part"}})";
  EXPECT_THAT(std::string(HuggingFaceWeights::Open(layout, directory / "w").status().message()),
              HasSubstr("no file beside it"));
}

TEST(HuggingFace, Bfloat16IsTheNearestWithHalfwayToTheEven) {
  const TestDirectory directory;
  const ModelConfig model = *NamedModel("llama-3-tiny");
  const ParameterLayout layout(model);
  std::vector<float> parameters(layout.size(), 1.0F);
  // Between 1 and 1 + 2^-7, the next one.
  parameters[0] = 1 + 0.4F / 128;
  parameters[1] = 1 + 0.5F / 128;
  parameters[2] = 1 + 0.6F / 128;
  parameters[3] = 1 + 1.5F / 128;
  parameters[4] = std::numeric_limits<float>::infinity();
  parameters[5] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(
      WriteHuggingFace(model, From(parameters), directory / "w", {.type = SafetensorsType::kBf16})
          .ok());
  EXPECT_LT(std::filesystem::file_size(directory / "w/model.safetensors"), 3 * layout.size());
  const absl::StatusOr<HuggingFaceWeights> weights =
      HuggingFaceWeights::Open(layout, directory / "w");
  ASSERT_TRUE(weights.ok()) << weights.status();
  std::vector<float> read(6);
  ASSERT_TRUE(weights->Read(0, read).ok());
  EXPECT_THAT(std::span(read).first(5), ElementsAre(1, 1, 1 + 1.0F / 128, 1 + 2.0F / 128,
                                                    std::numeric_limits<float>::infinity()));
  EXPECT_TRUE(std::isnan(read[5]));
}

TEST(HuggingFace, ADirectoryHasItsNameOnlyWholeAndReplacesNothing) {
  const TestDirectory directory;
  const ModelConfig model = *NamedModel("llama-3-tiny");
  const std::vector<float> parameters = RandomParameters(ParameterLayout(model));
  int asked = 0;
  const absl::Status failed = WriteHuggingFace(
      model,
      [&](int64_t, std::span<float>) {
        return ++asked < 4 ? absl::OkStatus() : absl::DataLossError("damaged");
      },
      directory / "w");
  EXPECT_EQ(failed.message(), "damaged");
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  std::filesystem::create_directory(directory / "w");
  WriteRandom(model, directory / "w");
  EXPECT_EQ(WriteHuggingFace(model, From(parameters), directory / "w").code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace muster::worker
