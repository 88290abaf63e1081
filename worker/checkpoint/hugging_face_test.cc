#include "worker/checkpoint/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

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

TEST(HuggingFace, WhatIsWrittenIsReadBackWhateverTheRange) {
  for (const char* name : {"gpt2-tiny", "llama-3-tiny"}) {
    const TestDirectory directory;
    const ParameterLayout layout(*NamedModel(name));
    const std::vector<float> written = RandomParameters(layout);
    ASSERT_TRUE(WriteHuggingFace(layout, written, directory / "model.safetensors").ok());
    // By the directory as well as by the file.
    const absl::StatusOr<HuggingFaceWeights> weights =
        HuggingFaceWeights::Open(layout, directory.path());
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
  const std::vector<float> written = RandomParameters(layout);
  ASSERT_TRUE(WriteHuggingFace(layout, written, directory / "m").ok());
  const SafetensorsFile file = *SafetensorsFile::Open(directory / "m");
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
  const ParameterLayout gpt2(*NamedModel("gpt2-tiny"));
  ASSERT_TRUE(WriteHuggingFace(gpt2, RandomParameters(gpt2), directory / "m").ok());
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

TEST(HuggingFace, AnIndexLeadsToItsFilesAndNowhereElse) {
  const TestDirectory directory;
  const ParameterLayout layout(*NamedModel("llama-3-tiny"));
  ASSERT_TRUE(WriteHuggingFace(layout, RandomParameters(layout), directory / "part").ok());
  const std::string index = directory / "model.safetensors.index.json";
  std::ofstream(index) << R"({"weight_map":{"lm_head.weight":"part"}})";
  EXPECT_TRUE(HuggingFaceWeights::Open(layout, directory.path()).ok());
  std::ofstream(index) << R"({"weight_map":{"lm_head.weight":"../part"}})";
  EXPECT_THAT(std::string(HuggingFaceWeights::Open(layout, directory.path()).status().message()),
              HasSubstr("no file beside it"));
}

}  // namespace
}  // namespace muster::worker
