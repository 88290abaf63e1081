// One step of training must be the same however the state is spread.
#include "worker/training/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "worker/training/cpu_engine.h"
#include "worker/training/on_ranks.h"

namespace muster::worker {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int kSequences = 4;  // of a step, of all ranks
constexpr int kSequence = 8;
constexpr int kSteps = 5;
// Ranks add up in another order.
constexpr double kTolerance = 2e-4;

enum class Kind { kGpt2, kLlama, kLlama32 };  // the last one is tied and stretched

std::string KindName(Kind kind) {
  return kind == Kind::kGpt2 ? "Gpt2" : kind == Kind::kLlama ? "Llama" : "Llama32";
}

ModelConfig Small(Kind kind) {
  const bool gpt2 = kind == Kind::kGpt2;
  const bool newest = kind == Kind::kLlama32;
  return {.family = gpt2 ? Family::kGpt2 : Family::kLlama,
          .layers = 2,
          .width = 12,
          .heads = 2,
          .key_value_heads = gpt2 ? 2 : 1,
          .feed_forward = 20,
          .vocabulary = 17,
          .padded_vocabulary = 19,
          .context = 8,
          .tied_head = gpt2 || newest,
          .rope_theta = 100,
          .rope_scaling = {.factor = newest ? 4.0F : 1.0F, .original_context = 16}};
}

CpuEngine::Options EngineOptions(Kind kind, Sharding sharding) {
  return {.model = Small(kind),
          .optimizer = {.learning_rate = 1e-3,
                        .min_learning_rate = 1e-4,
                        .total_steps = kSteps,
                        // Gradients that are zero but for rounding, such as that of GPT-2's bias of
                        // keys, must not become steps.
                        .epsilon = 1e-6},
          .sharding = sharding,
          .sequences = 1,
          .sequence = kSequence,
          .timeout = absl::Seconds(60)};
}

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<float> parameters, first_moment, second_moment;
};

// A rank's share of the step's sequences, one to a micro-batch.
struct Share {
  Share(int step, int rank, int world_size) {
    const int own = kSequences / world_size;
    tokens.resize(own * kSequence);
    targets.resize(own * kSequence);
    for (int i = 0; i < own * kSequence; ++i) {
      const int place = rank * own * kSequence + i;
      tokens[i] = (place * 5 + step * 3) % 17;
      targets[i] = (tokens[i] * 2 + 1) % 17;
    }
    for (int i = 0; i < own; ++i) {
      batches.push_back({.tokens = std::span(tokens).subspan(i * kSequence, kSequence),
                         .targets = std::span(targets).subspan(i * kSequence, kSequence)});
    }
  }
  std::vector<int32_t> tokens, targets;
  std::vector<Batch> batches;
};

Outcome Train(Kind kind, Sharding sharding, int world_size) {
  const ParameterLayout layout(Small(kind));
  Outcome outcome;
  for (auto* values : {&outcome.parameters, &outcome.first_moment, &outcome.second_moment}) {
    values->assign(layout.size(), std::numeric_limits<float>::quiet_NaN());
  }
  const auto statuses = OnRanks(world_size, [&](Communicator& communicator) -> absl::Status {
    const auto engine = *CpuEngine::Create(EngineOptions(kind, sharding), communicator);
    absl::Status status = engine->Load(InitialState(engine->layout(), 4));
    for (int step = 0; status.ok() && step < kSteps; ++step) {
      const Share share(step, communicator.rank(), world_size);
      const absl::StatusOr<StepResult> result = engine->Step(step, share.batches);
      status = result.status();
      if (status.ok() && communicator.rank() == 0) {
        outcome.losses.push_back(result->loss);
        outcome.norms.push_back(result->gradient_norm);
      }
    }
    // No two ranks own the same place.
    for (const StateRange& range : engine->OwnedState()) {
      std::copy(range.parameters.begin(), range.parameters.end(),
                outcome.parameters.begin() + range.offset);
      std::copy(range.first_moment.begin(), range.first_moment.end(),
                outcome.first_moment.begin() + range.offset);
      std::copy(range.second_moment.begin(), range.second_moment.end(),
                outcome.second_moment.begin() + range.offset);
    }
    return status;
  });
  EXPECT_THAT(statuses, Each(absl::OkStatus()));
  return outcome;
}

class AnySharding : public testing::TestWithParam<std::tuple<Kind, Sharding>> {};

TEST_P(AnySharding, OnAnyNumberOfRanksEqualsOneRank) {
  const auto [kind, sharding] = GetParam();
  const Outcome alone = Train(kind, Sharding::kDataParallel, 1);
  ASSERT_EQ(alone.losses.size(), size_t{kSteps});
  ASSERT_LT(alone.losses.back(), alone.losses.front());
  for (const int world_size : {1, 2, 4}) {
    const Outcome spread = Train(kind, sharding, world_size);
    ASSERT_EQ(spread.losses.size(), size_t{kSteps});
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(spread.losses[step], alone.losses[step], kTolerance);
      EXPECT_NEAR(spread.norms[step], alone.norms[step], kTolerance * alone.norms[step]);
    }
    for (size_t i = 0; i < alone.parameters.size(); ++i) {
      ASSERT_NEAR(spread.parameters[i], alone.parameters[i], kTolerance) << i;
      ASSERT_NEAR(spread.first_moment[i], alone.first_moment[i], kTolerance) << i;
      ASSERT_NEAR(spread.second_moment[i], alone.second_moment[i], kTolerance) << i;
    }
  }
}

std::string CaseName(const testing::TestParamInfo<AnySharding::ParamType>& info) {
  const auto [kind, sharding] = info.param;
  return KindName(kind) + (sharding == Sharding::kDataParallel ? "Ddp"
                           : sharding == Sharding::kZero1      ? "Zero1"
                                                               : "Zero3");
}

INSTANTIATE_TEST_SUITE_P(
    , AnySharding,
    testing::Combine(testing::Values(Kind::kGpt2, Kind::kLlama, Kind::kLlama32),
                     testing::Values(Sharding::kDataParallel, Sharding::kZero1, Sharding::kZero3)),
    CaseName);

TEST(Sharding, NamesAreThoseOfTheFlag) {
  EXPECT_EQ(*ParseSharding("zero3"), Sharding::kZero3);
  EXPECT_EQ(ParseSharding("fsdp").status().message(),
            "sharding \"fsdp\" is not known; known are: ddp, zero1, zero3");
}

TEST(Sharding, ALossThatIsNoNumberStopsAllRanksAndLeavesTheState) {
  const auto statuses = OnRanks(2, [](Communicator& communicator) -> absl::Status {
    const auto engine =
        *CpuEngine::Create(EngineOptions(Kind::kGpt2, Sharding::kZero3), communicator);
    // Infinite in one place of the last unit, which one rank owns.
    const int64_t bad = engine->layout().size() - 1;
    const StateSource good = InitialState(engine->layout(), 4);
    absl::Status status =
        engine->Load([&](StateKind kind, int64_t offset, std::span<float> values) {
          absl::Status filled = good(kind, offset, values);
          if (kind == StateKind::kParameters && bad >= offset &&
              bad < offset + static_cast<int64_t>(values.size())) {
            values[bad - offset] = std::numeric_limits<float>::infinity();
          }
          return filled;
        });
    if (!status.ok()) {
      return status;
    }
    const Share share(0, communicator.rank(), 2);
    const absl::StatusOr<StepResult> step = engine->Step(3, share.batches);
    EXPECT_TRUE(step.ok() && step->skipped);
    status = step.status();
    for (const StateRange& range : engine->OwnedState()) {
      for (const float moment : range.first_moment) {
        EXPECT_EQ(moment, 0);
      }
    }
    return status;
  });
  for (const absl::Status& status : statuses) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace muster::worker
