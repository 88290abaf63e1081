#include "worker/model/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace muster::worker {
namespace {

const OptimizerConfig kConfig = {.learning_rate = 1e-3,
                                 .min_learning_rate = 1e-4,
                                 .warmup_steps = 10,
                                 .total_steps = 110,
                                 .weight_decay = 0.5};

TEST(LearningRate, RisesThenFallsAlongACosineThenStays) {
  EXPECT_DOUBLE_EQ(LearningRate(kConfig, 0), 1e-4);
  EXPECT_DOUBLE_EQ(LearningRate(kConfig, 9), 1e-3);
  EXPECT_DOUBLE_EQ(LearningRate(kConfig, 10), 1e-3);
  EXPECT_DOUBLE_EQ(LearningRate(kConfig, 60), 5.5e-4);
  EXPECT_DOUBLE_EQ(LearningRate(kConfig, 110), 1e-4);
  EXPECT_DOUBLE_EQ(LearningRate(kConfig, 100'000), 1e-4);
}

TEST(LearningRate, WithoutWarmUpStartsAtTheTop) {
  OptimizerConfig config = kConfig;
  config.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(LearningRate(config, 0), 1e-3);
}

TEST(ClipFactor, ScalesDownOnlyWhatIsTooLong) {
  EXPECT_EQ(ClipFactor(kConfig, 0.5), 1);
  EXPECT_NEAR(ClipFactor(kConfig, 4), 0.25, 1e-6);
  OptimizerConfig without = kConfig;
  without.clip_norm = 0;
  EXPECT_EQ(ClipFactor(without, 4), 1);
}

TEST(OptimizerConfig, NonsenseIsNamed) {
  OptimizerConfig config = kConfig;
  EXPECT_TRUE(Validate(config).ok());
  config.learning_rate = std::nan("");
  EXPECT_EQ(Validate(config).message(), "learning_rate is nan; it must be a number not below 0");
  config = kConfig;
  config.beta2 = 1;
  EXPECT_EQ(Validate(config).message(), "beta2 is 1; it must be at least 0 and below 1");
}

// State of one model, all of it or a part.
struct Shard {
  Shard(int64_t begin, int64_t size)
      : offset(begin), parameters(size), gradients(size), first(size), second(size) {
    for (int64_t i = 0; i < size; ++i) {
      parameters[i] = HashedUniform(1, offset + i);
      gradients[i] = HashedUniform(2, offset + i);
    }
  }
  void Step(const ParameterLayout& layout, int64_t step) {
    UpdateAdamW(kConfig, layout, step, 0.5,
                {.offset = offset,
                 .parameters = std::span(parameters),
                 .gradients = gradients,
                 .first_moment = std::span(first),
                 .second_moment = std::span(second)});
  }
  int64_t offset;
  std::vector<float> parameters, gradients, first, second;
};

TEST(AdamW, TheFirstStepGoesByTheLearningRateAgainstTheSignOfTheGradient) {
  const ParameterLayout layout(*NamedModel("llama-3-tiny"));
  Shard all(0, layout.size());
  const std::vector<float> before = all.parameters;
  all.Step(layout, 0);
  for (const Parameter& parameter : layout.parameters()) {
    const int64_t i = parameter.offset;
    // Matrices decay towards zero, gains of norms don't.
    const double kept = parameter.decays ? before[i] * (1 - 1e-4 * 0.5) : before[i];
    EXPECT_NEAR(all.parameters[i], kept - std::copysign(1e-4, all.gradients[i]), 1e-7)
        << parameter.name;
  }
}

TEST(AdamW, ShardsAreUpdatedBitForBitAsTheWhole) {
  const ParameterLayout layout(*NamedModel("gpt2-tiny"));
  Shard all(0, layout.size());
  // Cut within a parameter.
  const int64_t cut = layout.parameters()[5].offset + 7;
  Shard low(0, cut);
  Shard high(cut, layout.size() - cut);
  for (int64_t step = 0; step < 3; ++step) {
    for (Shard* shard : {&all, &low, &high}) {
      shard->Step(layout, step);
    }
  }
  low.parameters.insert(low.parameters.end(), high.parameters.begin(), high.parameters.end());
  EXPECT_EQ(low.parameters, all.parameters);
}

}  // namespace
}  // namespace muster::worker
