// 100 steps of both tiny models beside PyTorch's, which worker/tests/golden.py wrote down.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "worker/model/optimizer.h"
#include "worker/model/transformer.h"

namespace muster::worker {
namespace {

constexpr int kMicroBatches = 2;
constexpr int kGoldenSequences = 2;
constexpr int kGoldenTokens = 64;
#ifdef MUSTER_SANITIZED
constexpr int kSteps = 5;
#else
constexpr int kSteps = 100;
#endif
// Both sides round in single precision, in another order, at every step.
constexpr double kLossTolerance = 2e-4;  // of losses from 6.2 down to 4
constexpr double kNormTolerance = 2e-3;  // relative

const OptimizerConfig kOptimizer = {
    .learning_rate = 1e-3, .min_learning_rate = 1e-4, .warmup_steps = 10, .total_steps = 100};

struct GoldenTokens {
  GoldenTokens(int step, int micro_batch, int vocabulary) {
    for (int sequence = 0; sequence < kGoldenSequences; ++sequence) {
      const int index = (step * kMicroBatches + micro_batch) * kGoldenSequences + sequence;
      auto token = static_cast<int32_t>((double{HashedUniform(2, index)} + 1) / 2 * vocabulary);
      for (int t = 0; t < kGoldenTokens; ++t) {
        tokens.push_back(token);
        token = (token * 3 + 7) % vocabulary;
        targets.push_back(token);
      }
    }
  }
  Batch batch() const { return {.tokens = tokens, .targets = targets}; }

  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
};

double NormOf(std::span<const float> flat, const Parameter& parameter) {
  return std::sqrt(SquaredNorm(flat.subspan(parameter.offset, parameter.size())));
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, AHundredStepsEqualPyTorchs) {
  std::ifstream file("worker/model/golden.json");
  const nlohmann::json golden = nlohmann::json::parse(file).at(GetParam());
  const ModelConfig config = *NamedModel(GetParam());
  Transformer model = *Transformer::Create(config, kGoldenSequences, kGoldenTokens);
  const ParameterLayout& layout = model.layout();
  ResidentUnits units(layout);
  layout.Initialize(/*seed=*/1, 0, units.parameters());
  std::vector<float> first_moment(layout.size());
  std::vector<float> second_moment(layout.size());
  const float scale = 1.0F / static_cast<float>(kMicroBatches * model.tokens());

  for (int step = 0; step < kSteps; ++step) {
    double loss = 0;
    std::fill(units.gradients().begin(), units.gradients().end(), 0.0F);
    for (int i = 0; i < kMicroBatches; ++i) {
      const GoldenTokens tokens(step, i, config.vocabulary);
      loss += scale * *model.LossAndGradient(tokens.batch(), scale, units);
    }
    const double norm = std::sqrt(SquaredNorm(units.gradients()));
    ASSERT_NEAR(loss, golden["losses"][step].get<double>(), kLossTolerance) << "step " << step;
    const double golden_norm = golden["gradient_norms"][step];
    ASSERT_NEAR(norm, golden_norm, kNormTolerance * golden_norm) << "step " << step;
    for (const Parameter& parameter : layout.parameters()) {
      if (step == 0) {
        const double expected = golden["first_gradients"][parameter.name];
        EXPECT_NEAR(NormOf(units.gradients(), parameter), expected, 1e-4 * expected + 1e-7)
            << parameter.name;
      }
    }
    UpdateAdamW(kOptimizer, layout, step, ClipFactor(kOptimizer, norm),
                {.offset = 0,
                 .parameters = units.parameters(),
                 .gradients = units.gradients(),
                 .first_moment = std::span(first_moment),
                 .second_moment = std::span(second_moment)});
  }
  for (const Parameter& parameter : layout.parameters()) {
    if (kSteps == 100) {
      const double expected = golden["last_parameters"][parameter.name];
      EXPECT_NEAR(NormOf(units.parameters(), parameter), expected, 1e-3 * expected)
          << parameter.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Golden, testing::Values("gpt2-tiny", "llama-3-tiny"),
                         [](const auto& info) {
                           return std::string(FamilyName(NamedModel(info.param)->family));
                         });

}  // namespace
}  // namespace muster::worker
