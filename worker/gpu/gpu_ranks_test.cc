// Several GPUs: what they do together, and that training doesn't depend on how it is spread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "worker/gpu/device_array.h"
#include "worker/gpu/device_state.h"
#include "worker/gpu/gpu_engine.h"
#include "worker/gpu/made_up_text.h"
#include "worker/gpu/nccl_all_reducer.h"
#include "worker/gpu/nccl_communicator.h"
#include "worker/training/on_ranks.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;

int Gpus() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

class SeveralGpus : public testing::Test {
 protected:
  static constexpr int kRanks = 2;

  void SetUp() override {
    ASSERT_GE(Gpus(), kRanks) << "these tests need several GPUs; leave them out by "
                                 "--gtest_filter=-*Gpus*:ShardedGpuEngine*:Nccl*";
  }

  // `body` of each rank on its GPU.
  template <typename Body>
  static void OnGpus(absl::Duration timeout, Body body) {
    for (const absl::Status& status : OnRanks(kRanks, [&](Communicator& ranks) {
           cudaSetDevice(ranks.rank());
           auto nccl = NcclCommunicator::Create(ranks, {.timeout = timeout});
           if (!nccl.ok()) return nccl.status();
           body(ranks, **nccl);
           return absl::OkStatus();
         })) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
};

using NcclCommunicatorTest = SeveralGpus;

TEST_F(NcclCommunicatorTest, SumsScattersAndGathersInTheOrderOfRanks) {
  OnGpus(absl::Seconds(60), [](Communicator& ranks, NcclCommunicator& nccl) {
    const auto rank = static_cast<float>(ranks.rank());
    const DeviceArray<float> sums(std::vector<float>{rank, 10, 20 + rank, 30});
    const DeviceArray<float> all(std::vector<float>{-1, -1, -1, -1});
    ASSERT_TRUE(nccl.AllReduce(sums.data(), 4).ok());
    ASSERT_TRUE(nccl.ReduceScatter(sums.data(), sums.data() + 2 * ranks.rank(), 2).ok());
    ASSERT_TRUE(nccl.AllGather(sums.data() + 2 * ranks.rank(), all.data(), 8).ok());
    ASSERT_TRUE(nccl.Finish("a test").ok());
    EXPECT_THAT(all.Read(), ElementsAre(2, 40, 82, 120));
  });
}

TEST_F(NcclCommunicatorTest, TheRankThatDoesNotComeIsNamed) {
  absl::Notification done;
  OnGpus(absl::Seconds(1), [&](Communicator& ranks, NcclCommunicator& nccl) {
    if (ranks.rank() == 1) {
      done.WaitForNotification();
      return;
    }
    const DeviceArray<float> values(std::vector<float>(8));
    absl::Status status = nccl.AllReduce(values.data(), 8);
    status.Update(nccl.Finish("a test"));
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(RanksAtFault(status), ElementsAre(1)) << status;
    EXPECT_EQ(nccl.AllReduce(values.data(), 8), status);
    done.Notify();
  });
}

TEST_F(NcclCommunicatorTest, ARankThatIsLostEndsTheWaitForIt) {
  absl::Notification done;
  OnGpus(absl::Minutes(5), [&](Communicator& ranks, NcclCommunicator& nccl) {
    if (ranks.rank() == 1) {
      done.WaitForNotification();
      return;
    }
    const absl::Status lost = WithRanksAtFault(absl::UnavailableError("rank 1 was killed"), {1});
    std::jthread heartbeat([&] {
      absl::SleepFor(absl::Milliseconds(200));
      ranks.Abort(lost);
    });
    const absl::Time begin = absl::Now();
    const DeviceArray<float> values(std::vector<float>(8));
    absl::Status status = nccl.AllReduce(values.data(), 8);
    status.Update(nccl.Finish("a test"));
    EXPECT_EQ(status, lost);
    EXPECT_LT(absl::Now() - begin, absl::Seconds(2));
    done.Notify();
  });
}

// Weights of all units and norms as the model would read them.
std::vector<float> Weights(const ParameterLayout& layout, DeviceState& state) {
  std::vector<float> weights;
  for (size_t i = 0; i < layout.units().size(); ++i) {
    const Bf16* unit = *state.Acquire(static_cast<int>(i));
    std::vector<Bf16> values(layout.units()[i].size);
    Check(cudaDeviceSynchronize());
    Check(cudaMemcpy(values.data(), unit, values.size() * sizeof(Bf16), cudaMemcpyDeviceToHost));
    state.Release(static_cast<int>(i));
    for (const Bf16 value : values) weights.push_back(__bfloat162float(value));
  }
  return weights;
}

TEST_F(SeveralGpus, WhatIsLoadedIsTheStateThoughTheLastStepsWeightsAreStillOnTheirWay) {
  const ModelConfig model = *NamedModel("gpt2-tiny");
  const ParameterLayout layout(model);
  constexpr uint64_t kSeed = 2;
  std::vector<float> expected(layout.size());
  layout.Initialize(kSeed, 0, expected);
  for (float& value : expected) value = __bfloat162float(__float2bfloat16(value));
  for (const Sharding sharding : {Sharding::kZero1, Sharding::kZero3}) {
    OnGpus(absl::Seconds(60), [&](Communicator& ranks, NcclCommunicator& nccl) {
      DeviceState state(layout, {.sharding = sharding, .tied = true}, ranks.rank(), kRanks);
      MemoryCutter plan;
      state.TakeMemory(plan);
      const DeviceMemory memory = *AllocateDevice(plan);
      MemoryCutter cutter(memory.get());
      state.TakeMemory(cutter);
      const DeviceArray<double> sums(std::vector<double>{0, 0});  // a StepSums
      ASSERT_TRUE(state.Start({}, &nccl).ok());
      ASSERT_TRUE(state.Load(InitialState(layout, 1)).ok());
      ASSERT_TRUE(state.Begin().ok());
      // The last step's communication, late.
      Check(cudaLaunchHostFunc(
          nccl.stream(), [](void*) { absl::SleepFor(absl::Milliseconds(300)); }, nullptr));
      AdamWFactors factors = {};  // which leave parameters as they are
      factors.correction = factors.epsilon = factors.keep = 1;
      ASSERT_TRUE(state.Update(factors, reinterpret_cast<StepSums*>(sums.data())).ok());
      ASSERT_TRUE(state.Load(InitialState(layout, kSeed)).ok());
      ASSERT_TRUE(state.Begin().ok());
      const NormWeights* norms = *state.AcquireNorms();
      EXPECT_EQ(Weights(layout, state), expected);
      std::vector<float> norm(model.width);
      for (int i = 0; i < 2 * model.layers + 1; ++i) {
        Check(cudaMemcpy(norm.data(), norms[i].weight, norm.size() * sizeof(float),
                         cudaMemcpyDeviceToHost));
        EXPECT_THAT(norm, testing::Each(1)) << "norm " << i;
      }
    });
  }
}

class AllReducesBetweenGpus : public SeveralGpus {
 protected:
  // Of ranks whose nodes these are.
  static std::vector<AllReduceFound> Try(const std::vector<int>& nodes) {
    std::vector<AllReduceFound> all(kRanks);
    for (const absl::Status& status : OnRanks(kRanks, [&](Communicator& ranks) {
           const std::vector<int> node = RanksOfNode(nodes, ranks.rank());
           const auto reducer = MakeNcclAllReducer(
               ranks, node, {.device = ranks.rank(), .timeout = absl::Seconds(60)});
           if (!reducer.ok()) return reducer.status();
           const auto found =
               TryAllReduces(ranks, nodes, **reducer, absl::Seconds(2), absl::Seconds(60));
           if (found.ok()) all[ranks.rank()] = *found;
           return found.status();
         })) {
      EXPECT_TRUE(status.ok()) << status;
    }
    return all;
  }
};

TEST_F(AllReducesBetweenGpus, AreExactAndTimedInsideANode) {
  for (const AllReduceFound& found : Try({0, 0})) {
    EXPECT_FALSE(found.wrong.has_value());
    EXPECT_GT(found.node, 1);
    EXPECT_EQ(found.across, 0);
  }
}

TEST_F(AllReducesBetweenGpus, AreExactAndTimedAcrossNodes) {
  for (const AllReduceFound& found : Try({0, 1})) {
    EXPECT_FALSE(found.wrong.has_value());
    EXPECT_EQ(found.node, 0);
    EXPECT_GT(found.across, 1);
  }
}

struct Spread {
  std::string name;
  std::string model;
  Sharding sharding;
  Precision precision = Precision::kBf16;
  GradientReduction reduction = GradientReduction::kFp32;
};

class ShardedGpuEngine : public SeveralGpus, public testing::WithParamInterface<Spread> {
 protected:
  static constexpr int kSequences = 2;
  static constexpr int kSequence = 64;
  static constexpr int kMicroBatches = 2;
  static constexpr int kSteps = 100;

  const ModelConfig model = *NamedModel(GetParam().model);

  absl::StatusOr<std::unique_ptr<GpuEngine>> Make(Communicator& ranks) const {
    return GpuEngine::Create({.model = model,
                              .optimizer = {.learning_rate = 1e-3,
                                            .min_learning_rate = 1e-4,
                                            .warmup_steps = 5,
                                            .total_steps = kSteps},
                              .sequences = kSequences,
                              .sequence = kSequence,
                              .device = ranks.rank(),
                              .sharding = GetParam().sharding,
                              .gradient_reduction = GetParam().reduction,
                              .communication = {.timeout = absl::Seconds(60)},
                              .precision = GetParam().precision,
                              .deterministic = true},
                             ranks);
  }

  // One of the step's micro-batches, the same however many ranks share them.
  MadeUpText Text(int step, int micro_batch) const {
    return {step * kRanks * kMicroBatches + micro_batch, kSequences, kSequence, model.vocabulary};
  }

  absl::StatusOr<StepResult> Step(GpuEngine& engine, int step, const Communicator& ranks) const {
    const int own = kRanks * kMicroBatches / ranks.world_size();
    std::vector<MadeUpText> texts;
    for (int i = 0; i < own; ++i) texts.push_back(Text(step, ranks.rank() * own + i));
    std::vector<Batch> batches;
    for (const MadeUpText& text : texts) batches.push_back(text.batch());
    return engine.Step(step, batches);
  }

  // Losses of each step, and what is left in the end.
  struct Outcome {
    std::vector<double> losses, norms;
    double validation = 0;
    std::vector<float> parameters, first_moment, second_moment;
  };

  Outcome Train(int world_size) const {
    Outcome outcome;
    const ParameterLayout layout(model);
    for (auto* state : {&outcome.parameters, &outcome.first_moment, &outcome.second_moment}) {
      state->assign(layout.size(), std::numeric_limits<float>::quiet_NaN());
    }
    for (const absl::Status& status : OnRanks(world_size, [&](Communicator& ranks) {
           const auto engine = Make(ranks);
           if (!engine.ok()) return engine.status();
           absl::Status status = (*engine)->Load(InitialState(layout, 1));
           for (int step = 0; step < kSteps && status.ok(); ++step) {
             const absl::StatusOr<StepResult> result = Step(**engine, step, ranks);
             status = result.status();
             if (status.ok() && ranks.rank() == 0) {
               outcome.losses.push_back(result->loss);
               outcome.norms.push_back(result->gradient_norm);
             }
           }
           const MadeUpText text = Text(kSteps, 0);
           const std::vector<Batch> batches = {text.batch()};
           const absl::StatusOr<double> validation =
               status.ok() ? (*engine)->Loss(batches) : status;
           if (!validation.ok()) return validation.status();
           if (ranks.rank() == 0) outcome.validation = *validation;
           const std::unique_ptr<StateCopy> copy = *(*engine)->CopyState();
           const std::vector<StateRange> ranges = *copy->Ranges();
           for (const StateRange& range : ranges) {
             std::ranges::copy(range.parameters, outcome.parameters.begin() + range.offset);
             std::ranges::copy(range.first_moment, outcome.first_moment.begin() + range.offset);
             std::ranges::copy(range.second_moment, outcome.second_moment.begin() + range.offset);
           }
           return absl::OkStatus();
         })) {
      EXPECT_TRUE(status.ok()) << status;
    }
    return outcome;
  }
};

TEST_P(ShardedGpuEngine, TrainsAsOneGpuDoesOnTheSameSequences) {
  const Outcome one = Train(1);
  const Outcome several = Train(kRanks);
  ASSERT_EQ(several.losses.size(), one.losses.size());
  double sum = 0;
  // In FP8 a difference of rounding soon is one of a sixteenth.
  const double worst = GetParam().precision == Precision::kFp8 ? 0.1 : 0.02;
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(several.losses[step], one.losses[step], worst) << "step " << step;
    sum += std::abs(several.losses[step] - one.losses[step]);
  }
  EXPECT_LT(sum / kSteps, worst / 4);
  EXPECT_NEAR(several.norms[0], one.norms[0], 1e-3 * one.norms[0]);
  EXPECT_NEAR(several.validation, one.validation, 0.02);
  // All of the state is there, once; a chunk that was missed would be no number.
  EXPECT_LT(RelativeError(several.parameters, one.parameters), 0.02);
  EXPECT_LT(RelativeError(several.first_moment, one.first_moment), 0.2);
  EXPECT_LT(RelativeError(several.second_moment, one.second_moment), 0.2);
}

TEST_P(ShardedGpuEngine, StateThatIsSavedAndLoadedGoesOnWithTheSameBits) {
  const ParameterLayout layout(model);
  std::vector<std::vector<double>> losses(kRanks);
  for (const absl::Status& status : OnRanks(kRanks, [&](Communicator& ranks) {
         const auto engine = Make(ranks);
         if (!engine.ok()) return engine.status();
         absl::Status status = (*engine)->Load(InitialState(layout, 1));
         status.Update(Step(**engine, 0, ranks).status());
         if (!status.ok()) return status;
         std::vector<float> saved[3];
         for (auto& kind : saved) kind.assign(layout.size(), 0);
         std::unique_ptr<StateCopy> copy = *(*engine)->CopyState();
         const std::vector<StateRange> ranges = *copy->Ranges();
         for (const StateRange& range : ranges) {
           std::ranges::copy(range.parameters, saved[0].begin() + range.offset);
           std::ranges::copy(range.first_moment, saved[1].begin() + range.offset);
           std::ranges::copy(range.second_moment, saved[2].begin() + range.offset);
         }
         copy.reset();
         for (auto& kind : saved) {
           status.Update(ranks.AllReduce(kind, Reduction::kSum, absl::Seconds(60)));
         }
         for (int again = 0; again < 2 && status.ok(); ++again) {
           for (int step = 1; step < 4; ++step) {
             const absl::StatusOr<StepResult> result = Step(**engine, step, ranks);
             if (!result.ok()) return result.status();
             losses[ranks.rank()].push_back(result->loss);
           }
           status = (*engine)->Load([&](StateKind kind, int64_t offset, std::span<float> values) {
             std::copy_n(saved[static_cast<int>(kind)].begin() + offset, values.size(),
                         values.begin());
             return absl::OkStatus();
           });
         }
         return status;
       })) {
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(losses[0], losses[1]);
  ASSERT_EQ(losses[0].size(), 6);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(losses[0][i], losses[0][3 + i]) << "step " << 1 + i;
}

INSTANTIATE_TEST_SUITE_P(
    , ShardedGpuEngine,
    testing::Values(Spread{"Gpt2DataParallel", "gpt2-tiny", Sharding::kDataParallel},
                    Spread{"Gpt2Zero1", "gpt2-tiny", Sharding::kZero1},
                    Spread{"Gpt2Zero3", "gpt2-tiny", Sharding::kZero3},
                    Spread{"Llama3DataParallel", "llama-3-tiny", Sharding::kDataParallel},
                    Spread{"Llama3Zero1", "llama-3-tiny", Sharding::kZero1},
                    Spread{"Llama3Zero3", "llama-3-tiny", Sharding::kZero3},
                    Spread{"Llama32Zero1", "llama-3.2-tiny", Sharding::kZero1},
                    Spread{"Llama32Zero3", "llama-3.2-tiny", Sharding::kZero3},
                    Spread{"Gpt2Zero1Fp8", "gpt2-tiny", Sharding::kZero1, Precision::kFp8},
                    Spread{"Llama3Zero3Fp8", "llama-3-tiny", Sharding::kZero3, Precision::kFp8},
                    Spread{"Gpt2DataParallelBf16Gradients", "gpt2-tiny", Sharding::kDataParallel,
                           Precision::kBf16, GradientReduction::kBf16},
                    Spread{"Gpt2Zero1Bf16Gradients", "gpt2-tiny", Sharding::kZero1,
                           Precision::kBf16, GradientReduction::kBf16},
                    Spread{"Llama3Zero3Bf16Gradients", "llama-3-tiny", Sharding::kZero3,
                           Precision::kBf16, GradientReduction::kBf16}),
    [](const auto& info) { return info.param.name; });

TEST_F(SeveralGpus, OneRankWithoutRoomIsTheEndOfAllWithThePlan) {
  const ModelConfig model = *NamedModel("gpt2");
  size_t free = 0;
  size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  // Each layer keeps its input at the least, in bf16.
  const int64_t sequence_bytes = int64_t{2} * model.layers * model.width * model.context;
  const int too_many = static_cast<int>(static_cast<int64_t>(total) / sequence_bytes) + 1;
  const auto statuses = OnRanks(kRanks, [&](Communicator& ranks) {
    return GpuEngine::Create({.model = model,
                              .optimizer = {},
                              .sequences = ranks.rank() == 1 ? too_many : 1,
                              .sequence = model.context,
                              .device = ranks.rank(),
                              .sharding = Sharding::kZero3,
                              // cuDNN may have none for so many.
                              .attention = AttentionKind::kPlain},
                             ranks)
        .status();
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("rank 1"));
  }
}

}  // namespace
}  // namespace muster::worker
