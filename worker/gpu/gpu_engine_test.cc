// The GPU engine beside the CPU's: both train the same small models on the same tokens.
#include "worker/gpu/gpu_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/communicator/local_communicator.h"
#include "worker/gpu/device_array.h"
#include "worker/gpu/made_up_text.h"
#include "worker/training/cpu_engine.h"

namespace muster::worker {
namespace {

using testing::HasSubstr;

constexpr int kSequences = 4;
constexpr int kSequence = 64;
constexpr int kMicroBatches = 2;
constexpr int kSteps = 100;

struct Text : MadeUpText {
  Text(int seed, int vocabulary) : MadeUpText(seed, kSequences, kSequence, vocabulary) {}
};

struct Variant {
  std::string name;
  std::string model;
  Recompute recompute = {};
  AttentionKind attention = AttentionKind::kCudnn;
  bool deterministic = true;
  Precision precision = Precision::kBf16;
  // How far losses may be from the CPU's, at worst and in the mean; and a parameter's first moment.
  double worst = 0.02, mean = 0.005, moment = 0.05;
};

// The mantissas of E4M3 and E5M2 have 3 and 2 bits.
Variant InFp8(Variant variant) {
  variant.precision = Precision::kFp8;
  variant.worst = 0.1;
  variant.mean = 0.02;
  variant.moment = 0.25;
  return variant;
}

class GpuEngineOf : public testing::TestWithParam<Variant> {
 protected:
  const ModelConfig model = *NamedModel(GetParam().model);
  const OptimizerConfig optimizer = {
      .learning_rate = 1e-3, .min_learning_rate = 1e-4, .warmup_steps = 5, .total_steps = 100};
  std::vector<std::unique_ptr<Communicator>> group = MakeLocalCommunicators(1);
  std::unique_ptr<GpuEngine> gpu;

  void SetUp() override {
    auto made = GpuEngine::Create({.model = model,
                                   .optimizer = optimizer,
                                   .sequences = kSequences,
                                   .sequence = kSequence,
                                   .recompute = GetParam().recompute,
                                   .precision = GetParam().precision,
                                   .attention = GetParam().attention,
                                   .deterministic = GetParam().deterministic},
                                  *group[0]);
    ASSERT_TRUE(made.ok()) << made.status();
    gpu = *std::move(made);
    ASSERT_TRUE(gpu->Load(InitialState(gpu->layout(), 1)).ok());
  }

  absl::StatusOr<StepResult> Step(Engine& engine, int step) const {
    std::vector<Text> texts;
    for (int i = 0; i < kMicroBatches; ++i) {
      texts.emplace_back(step * kMicroBatches + i, model.vocabulary);
    }
    std::vector<Batch> batches;
    for (const Text& text : texts) {
      batches.push_back({.tokens = text.tokens, .targets = text.targets});
    }
    return engine.Step(step, batches);
  }

  // Of the one range that a single GPU has.
  struct State {
    explicit State(GpuEngine& engine) : copy(*engine.CopyState()), range(copy->Ranges()->front()) {}
    const std::unique_ptr<StateCopy> copy;
    const StateRange range;
  };

  std::vector<float> Parameters() const {
    const State state(*gpu);
    return {state.range.parameters.begin(), state.range.parameters.end()};
  }
};

TEST_P(GpuEngineOf, HundredStepsHaveTheLossesOfTheCpus) {
  auto cpu = *CpuEngine::Create(
      {.model = model, .optimizer = optimizer, .sequences = kSequences, .sequence = kSequence},
      *group[0]);
  ASSERT_TRUE(cpu->Load(InitialState(cpu->layout(), 1)).ok());
  double sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    const absl::StatusOr<StepResult> expected = Step(*cpu, step);
    const absl::StatusOr<StepResult> got = Step(*gpu, step);
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_NEAR(got->loss, expected->loss, GetParam().worst) << "step " << step;
    sum += std::abs(got->loss - expected->loss);
    if (step == 0) {
      EXPECT_NEAR(got->gradient_norm, expected->gradient_norm,
                  GetParam().worst / 2 * expected->gradient_norm);
    }
  }
  EXPECT_LT(sum / kSteps, GetParam().mean);
}

TEST_P(GpuEngineOf, AFirstStepMovesEachParameterAsTheCpus) {
  auto cpu = *CpuEngine::Create(
      {.model = model, .optimizer = optimizer, .sequences = kSequences, .sequence = kSequence},
      *group[0]);
  ASSERT_TRUE(cpu->Load(InitialState(cpu->layout(), 1)).ok());
  ASSERT_TRUE(Step(*cpu, 0).ok());
  ASSERT_TRUE(Step(*gpu, 0).ok());
  const std::span<const float> expected = cpu->OwnedState().front().first_moment;
  const State state(*gpu);
  const std::span<const float> got = state.range.first_moment;
  for (const Parameter& parameter : gpu->layout().parameters()) {
    EXPECT_LT(RelativeError(got.subspan(parameter.offset, parameter.size()),
                            expected.subspan(parameter.offset, parameter.size())),
              GetParam().moment)
        << parameter.name;
  }
}

TEST_P(GpuEngineOf, StateThatIsSavedAndLoadedGoesOnAsIfItHadStayed) {
  ASSERT_TRUE(Step(*gpu, 0).ok());
  std::optional<State> state(std::in_place, *gpu);
  const StateRange& owned = state->range;
  const std::vector<float> parameters(owned.parameters.begin(), owned.parameters.end()),
      first(owned.first_moment.begin(), owned.first_moment.end()),
      second(owned.second_moment.begin(), owned.second_moment.end());
  state.reset();
  ASSERT_TRUE(Step(*gpu, 1).ok());
  const std::vector<float> expected = Parameters();
  ASSERT_TRUE(gpu->Load([&](StateKind kind, int64_t offset, std::span<float> values) {
                   const std::vector<float>& from = kind == StateKind::kParameters    ? parameters
                                                    : kind == StateKind::kFirstMoment ? first
                                                                                      : second;
                   std::copy_n(from.begin() + offset, values.size(), values.begin());
                   return absl::OkStatus();
                 })
                  .ok());
  ASSERT_TRUE(Step(*gpu, 1).ok());
  if (GetParam().deterministic) {
    EXPECT_EQ(Parameters(), expected);
  } else {
    EXPECT_LT(RelativeError(Parameters(), expected), 1e-4);
  }
}

TEST_P(GpuEngineOf, ACopyOfTheStateIsOfTheStepBeforeThoughTheNextOneRuns) {
  ASSERT_TRUE(Step(*gpu, 0).ok());
  const std::vector<float> before = Parameters();
  const std::unique_ptr<StateCopy> copy = *gpu->CopyState();
  for (int step = 1; step < 4; ++step) ASSERT_TRUE(Step(*gpu, step).ok());
  const std::span<const float> copied = copy->Ranges()->front().parameters;
  EXPECT_TRUE(std::ranges::equal(copied, before));
}

TEST_P(GpuEngineOf, LossIsTheOneThatAStepStartsFrom) {
  const Text text(0, model.vocabulary);
  const std::vector<Batch> batches = {{.tokens = text.tokens, .targets = text.targets}};
  const absl::StatusOr<double> loss = gpu->Loss(batches);
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_NEAR(*loss, gpu->Step(0, batches)->loss, 1e-6);
  EXPECT_LT(*gpu->Loss(batches), *loss);
}

TEST_P(GpuEngineOf, AnUnusableBatchIsRefusedAndALossThatIsNoNumberStops) {
  Text text(0, model.vocabulary);
  text.tokens.back() = model.vocabulary;
  std::vector<Batch> batches = {{.tokens = text.tokens, .targets = text.targets}};
  EXPECT_THAT(std::string(gpu->Step(0, batches).status().message()), HasSubstr("tokenizer"));

  std::vector<float> broken(gpu->layout().size(), std::numeric_limits<float>::quiet_NaN());
  ASSERT_TRUE(gpu->Load([&](StateKind /*kind*/, int64_t offset, std::span<float> values) {
                   std::copy_n(broken.begin() + offset, values.size(), values.begin());
                   return absl::OkStatus();
                 })
                  .ok());
  text.tokens.back() = 0;
  EXPECT_TRUE(gpu->Step(0, batches)->skipped);
}

INSTANTIATE_TEST_SUITE_P(
    , GpuEngineOf,
    testing::Values(
        Variant{"Gpt2", "gpt2-tiny"}, Variant{"Llama3", "llama-3-tiny"},
        Variant{"Llama32", "llama-3.2-tiny"},
        Variant{"Gpt2NotDeterministic", "gpt2-tiny", {}, AttentionKind::kCudnn, false},
        Variant{"Gpt2Recomputed", "gpt2-tiny", {.norms = true, .activations = true}},
        Variant{"Llama3Recomputed", "llama-3-tiny", {.norms = true, .activations = true}},
        InFp8({"Gpt2Fp8", "gpt2-tiny"}), InFp8({"Llama3Fp8", "llama-3-tiny"}),
        InFp8({"Llama32Fp8", "llama-3.2-tiny"}),
        InFp8({"Gpt2Fp8Recomputed", "gpt2-tiny", {.norms = true, .activations = true}}),
        InFp8({"Llama3Fp8Recomputed", "llama-3-tiny", {.norms = true, .activations = true}}),
        Variant{"Gpt2PlainAttention", "gpt2-tiny", {}, AttentionKind::kPlain},
        Variant{"Llama3PlainAttention", "llama-3-tiny", {}, AttentionKind::kPlain},
        Variant{"Llama32PlainAttention", "llama-3.2-tiny", {}, AttentionKind::kPlain}),
    [](const auto& info) { return info.param.name; });

TEST(GpuEngine, AModelThatDoesNotFitIsRefusedWithItsPlan) {
  const auto group = MakeLocalCommunicators(1);
  const auto made = GpuEngine::Create({.model = *NamedModel("llama-3-8b"),
                                       .optimizer = {},
                                       .sequences = 64,
                                       .sequence = 8192,
                                       .attention = AttentionKind::kPlain},
                                      *group[0]);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("activations"));
}

TEST(GpuEngine, WhatCudnnHasNoAttentionForIsRefusedAndNotTrainedSlowly) {
  const auto group = MakeLocalCommunicators(1);
  ModelConfig model = *NamedModel("gpt2-tiny");
  model.heads = model.key_value_heads = 2;
  model.width = model.heads * 512;  // channels of a head; it takes 256 at most
  model.feed_forward = 4 * model.width;
  const auto made = GpuEngine::Create(
      {.model = model, .optimizer = {}, .sequences = 1, .sequence = model.context}, *group[0]);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("set attention to plain"));
}

TEST(GpuEngine, EveryShardingsNeedIsKnownBeforeAnythingIsAllocated) {
  // More ranks need less of each, in the order in which they are tried.
  GpuEngine::Options options = {
      .model = *NamedModel("gpt2"), .optimizer = {}, .sequences = 1, .sequence = 1024};
  for (const int world_size : {1, 2, 64}) {
    const absl::StatusOr<ShardingChoice> choice = GpuEngine::PreviewSharding(options, world_size);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->sharding, Sharding::kDataParallel);
  }
  options.model = *NamedModel("llama-3-8b");
  options.model.context = 16'384;
  EXPECT_EQ(GpuEngine::PreviewSharding(options, 1).status().code(),
            absl::StatusCode::kResourceExhausted);
  Sharding before = Sharding::kZero3;
  for (const int world_size : {64, 1024}) {
    const absl::StatusOr<ShardingChoice> choice = GpuEngine::PreviewSharding(options, world_size);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_NE(choice->sharding, Sharding::kDataParallel);
    EXPECT_LE(choice->sharding, before);
    before = choice->sharding;
  }
}

}  // namespace
}  // namespace muster::worker
