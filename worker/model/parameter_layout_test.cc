#include "worker/model/parameter_layout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "worker/model/optimizer.h"

namespace muster::worker {
namespace {

int64_t CountInFiles(const ModelConfig& config) {
  const ParameterLayout layout(config);
  int64_t count = 0;
  for (const Parameter& parameter : layout.parameters()) {
    count += parameter.file_rows * parameter.columns;
  }
  return count;
}

TEST(ParameterLayout, NamedModelsHaveAsManyParametersAsPublished) {
  EXPECT_EQ(CountInFiles(*NamedModel("gpt2")), 124'439'808);
  EXPECT_EQ(CountInFiles(*NamedModel("gpt2-xl")), 1'557'611'200);
  EXPECT_EQ(CountInFiles(*NamedModel("llama-2-7b")), 6'738'415'616);
  EXPECT_EQ(CountInFiles(*NamedModel("llama-3-8b")), 8'030'261'248);
  EXPECT_EQ(CountInFiles(*NamedModel("llama-3.1-8b")), 8'030'261'248);
  EXPECT_EQ(CountInFiles(*NamedModel("llama-3.2-1b")), 1'235'814'400);
  EXPECT_EQ(CountInFiles(*NamedModel("llama-3.2-3b")), 3'212'749'824);
}

TEST(ParameterLayout, UnitsAndParametersFollowOneAnotherWithoutGaps) {
  for (const char* name : {"gpt2-tiny", "llama-3-tiny", "llama-3.2-tiny"}) {
    const ModelConfig config = *NamedModel(name);
    const ParameterLayout layout(config);
    ASSERT_EQ(static_cast<int>(layout.units().size()), config.layers + 2);
    int64_t offset = 0;
    for (size_t unit = 0; unit < layout.units().size(); ++unit) {
      EXPECT_EQ(layout.units()[unit].offset, offset);
      for (const Parameter& parameter : layout.UnitParameters(static_cast<int>(unit))) {
        EXPECT_EQ(parameter.offset, offset) << parameter.name;
        offset += parameter.size();
      }
      EXPECT_EQ(layout.units()[unit].offset + layout.units()[unit].size, offset);
    }
    EXPECT_EQ(layout.size(), offset);
  }
}

TEST(ParameterLayout, InitialValuesOfAShardAreThoseOfTheWhole) {
  const ParameterLayout layout(*NamedModel("gpt2-tiny"));
  std::vector<float> whole(layout.size());
  layout.Initialize(5, 0, std::span(whole));
  std::vector<float> shard(10'000, -1);
  const int64_t offset = layout.parameters()[2].offset - 3000;
  layout.Initialize(5, offset, std::span(shard));
  EXPECT_EQ(shard, std::vector<float>(whole.begin() + offset, whole.begin() + offset + 10'000));
}

TEST(ParameterLayout, InitialValuesHaveGpt2sDeviationsAndPaddingIsZero) {
  const ParameterLayout layout(*NamedModel("gpt2-tiny"));
  std::vector<float> values(layout.size());
  layout.Initialize(5, 0, std::span(values));
  const auto deviation = [&](int i) {
    const Parameter& parameter = layout.parameters()[i];
    const std::span<const float> range =
        std::span(values).subspan(parameter.offset, parameter.size());
    return std::sqrt(SquaredNorm(range) / static_cast<double>(parameter.size()));
  };
  ASSERT_EQ(layout.parameters()[6].name, "transformer.h.0.attn.c_proj.weight");
  EXPECT_NEAR(deviation(4), 0.02, 4e-4);
  EXPECT_NEAR(deviation(6), 0.01, 4e-4);
  for (int64_t i = int64_t{500} * 64; i < int64_t{512} * 64; ++i) {
    ASSERT_EQ(values[i], 0);
  }
}

TEST(ModelConfig, UnknownNamesAndSizesThatDoNotFitAreNamed) {
  EXPECT_EQ(NamedModel("gpt3").status().message(),
            "model \"gpt3\" is not known; known are: gpt2, gpt2-medium, gpt2-large, gpt2-xl, "
            "llama-2-7b, llama-3-8b, llama-3.1-8b, llama-3.2-1b, llama-3.2-3b, gpt2-tiny, "
            "llama-3-tiny, llama-3.2-tiny");
  ModelConfig config = *NamedModel("llama-3-tiny");
  config.key_value_heads = 3;
  EXPECT_EQ(Validate(config).message(), "heads 4 is not a multiple of key_value_heads 3");
  config = *NamedModel("gpt2");
  config.heads = 7;
  EXPECT_EQ(Validate(config).message(), "width 768 can't be divided among 7 heads");
  config.heads = 0;
  EXPECT_EQ(Validate(config).message(), "heads is 0; it must be from 1 to 1048576");
}

TEST(FlopsPerToken, IsSixForEachWeightOfAProductAndAttention) {
  // 123.5 M weights in products of GPT-2 124M without its positions.
  EXPECT_NEAR(FlopsPerToken(*NamedModel("gpt2"), 1024), 6 * 123.53e6 + 12 * 768.0 * 12 * 1024, 1e6);
}

}  // namespace
}  // namespace muster::worker
