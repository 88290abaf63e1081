// Gradients against finite differences: for a random direction d, the slope of the loss along d
// must be the sum of gradient * d, for each parameter by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "worker/model/transformer.h"

namespace muster::worker {
namespace {

constexpr int kSequences = 2;
constexpr int kSequence = 5;

enum class Kind { kGpt2, kLlama, kLlama32 };  // the last one is tied and stretched

std::string KindName(Kind kind) {
  return kind == Kind::kGpt2 ? "Gpt2" : kind == Kind::kLlama ? "Llama" : "Llama32";
}

ModelConfig Small(Kind kind) {
  const bool gpt2 = kind == Kind::kGpt2;
  const bool newest = kind == Kind::kLlama32;
  return {.family = gpt2 ? Family::kGpt2 : Family::kLlama,
          .layers = 2,
          .width = 16,
          .heads = 4,
          .key_value_heads = gpt2 ? 4 : 2,
          .feed_forward = 24,
          .vocabulary = 11,
          .padded_vocabulary = 16,
          .context = 8,
          .tied_head = gpt2 || newest,
          .rope_theta = 100,
          .rope_scaling = {.factor = newest ? 4.0F : 1.0F, .original_context = 16}};
}

struct Problem {
  explicit Problem(Kind kind)
      : model(*Transformer::Create(Small(kind), kSequences, kSequence)), units(model.layout()) {
    // Larger than training starts with, so that no gradient is lost in rounding.
    for (size_t i = 0; i < units.parameters().size(); ++i) {
      units.parameters()[i] = 0.4F * HashedUniform(1, i);
    }
    for (const Parameter& parameter : model.layout().parameters()) {
      for (int64_t i = 0; parameter.columns == 1 && i < parameter.size(); ++i) {
        units.parameters()[parameter.offset + i] += 1;
      }
    }
    for (int i = 0; i < kSequences * kSequence; ++i) {
      tokens.push_back((7 * i + 3) % model.config().vocabulary);
      targets.push_back((5 * i + 1) % model.config().vocabulary);
    }
  }
  Batch batch() const { return {.tokens = tokens, .targets = targets}; }
  double Loss() { return *model.Loss(batch(), units); }

  Transformer model;
  ResidentUnits units;
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
};

class Gradient : public testing::TestWithParam<Kind> {};

TEST_P(Gradient, IsTheSlopeOfTheLossForEachParameter) {
  Problem problem(GetParam());
  ASSERT_TRUE(problem.model.LossAndGradient(problem.batch(), 1, problem.units).ok());
  for (const Parameter& parameter : problem.model.layout().parameters()) {
    const auto values = problem.units.parameters().subspan(parameter.offset, parameter.size());
    const auto gradient = problem.units.gradients().subspan(parameter.offset, parameter.size());
    double norm = 0;
    for (const float g : gradient) {
      norm += double{g} * g;
    }
    norm = std::sqrt(norm);
    // Half along the gradient itself, so that the slope is large, half anywhere.
    std::vector<float> direction(values.size());
    double expected = 0;
    for (size_t i = 0; i < direction.size(); ++i) {
      direction[i] = static_cast<float>(gradient[i] / (norm + 1e-3)) +
                     HashedUniform(2, i) / std::sqrt(static_cast<float>(direction.size()));
      expected += double{gradient[i]} * direction[i];
    }
    const std::vector<float> before(values.begin(), values.end());
    constexpr float kStep = 4e-3F;
    double slope = 0;
    for (const float sign : {1.0F, -1.0F}) {
      for (size_t i = 0; i < direction.size(); ++i) {
        values[i] = before[i] + sign * kStep * direction[i];
      }
      slope += sign * problem.Loss() / (2 * kStep);
    }
    std::copy(before.begin(), before.end(), values.begin());
    EXPECT_NEAR(slope, expected, 3e-3 * (std::abs(expected) + 1)) << parameter.name;
  }
}

TEST_P(Gradient, IsScaledAndAddsUpOverMicroBatches) {
  Problem once(GetParam());
  Problem twice(GetParam());
  ASSERT_TRUE(once.model.LossAndGradient(once.batch(), 1, once.units).ok());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(twice.model.LossAndGradient(twice.batch(), 0.5F, twice.units).ok());
  }
  for (size_t i = 0; i < once.units.gradients().size(); ++i) {
    ASSERT_NEAR(once.units.gradients()[i], twice.units.gradients()[i], 1e-5);
  }
}

TEST_P(Gradient, PaddingOfTheVocabularyChangesNeitherTheLossNorGetsAGradient) {
  Problem problem(GetParam());
  const double loss = *problem.model.LossAndGradient(problem.batch(), 1, problem.units);
  for (const Parameter& parameter : problem.model.layout().parameters()) {
    for (int64_t i = parameter.file_rows * parameter.columns; i < parameter.size(); ++i) {
      EXPECT_EQ(problem.units.gradients()[parameter.offset + i], 0);
      problem.units.parameters()[parameter.offset + i] = 1e6F;
    }
  }
  EXPECT_EQ(problem.Loss(), loss);
}

TEST_P(Gradient, ABatchThatDoesNotFitIsRefusedWithTheNumbers) {
  Problem problem(GetParam());
  problem.tokens[3] = 11;
  EXPECT_EQ(problem.model.Loss(problem.batch(), problem.units).status().message(),
            "token 11 is not in the model's vocabulary of 11; was the data made by another "
            "tokenizer?");
  problem.tokens.pop_back();
  EXPECT_EQ(problem.model.Loss(problem.batch(), problem.units).status().message(),
            "9 tokens and 10 targets; a micro-batch has 10");
  EXPECT_EQ(Transformer::Create(Small(GetParam()), 1, 9).status().message(),
            "1 sequences of 9 tokens; there must be at least one, of 1 to 8 tokens");
}

INSTANTIATE_TEST_SUITE_P(, Gradient, testing::Values(Kind::kGpt2, Kind::kLlama, Kind::kLlama32),
                         [](const auto& info) { return KindName(info.param); });

}  // namespace
}  // namespace muster::worker
