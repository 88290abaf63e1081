#include "worker/training/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/checkpoint/test_directory.h"
#include "worker/training/cpu_engine.h"
#include "worker/training/on_ranks.h"

namespace muster::worker {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Property;

constexpr int kSequenceTokens = 16;

ModelConfig Tiny() {
  return {.family = Family::kLlama,
          .layers = 1,
          .width = 16,
          .heads = 2,
          .key_value_heads = 1,
          .feed_forward = 24,
          .vocabulary = 31,
          .padded_vocabulary = 32,
          .context = kSequenceTokens};
}

// A text in which each token follows from the one before.
std::string WriteTokens(const std::string& path, int shift = 5) {
  TokenFileWriter writer = *TokenFileWriter::Create(path, 31);
  std::vector<int64_t> ids(2000);
  for (size_t i = 1; i < ids.size(); ++i) {
    ids[i] = (ids[i - 1] * 3 + 1 + (i % 50 == 0 ? shift : 0)) % 31;
  }
  EXPECT_TRUE(writer.Append(ids).ok());
  EXPECT_TRUE(writer.Finish().ok());
  return path;
}

// What observers were told.
struct Told {
  std::vector<double> losses, validation;
  std::vector<int64_t> committed, failed;
  int64_t started = -1;
};

class Recorder : public TrainingObserver {
 public:
  explicit Recorder(Told& told) : told_(told) {}
  void OnStep(const StepReport& report) override { told_.losses.push_back(report.loss); }
  void OnValidation(int64_t /*step*/, double loss) override { told_.validation.push_back(loss); }
  void OnCheckpoint(int64_t step, const absl::Status& status) override {
    (status.ok() ? told_.committed : told_.failed).push_back(step);
  }
  void OnStart(int64_t step) override { told_.started = step; }

 private:
  Told& told_;
};

struct RunOptions {
  int world_size = 2;
  int64_t steps = 12;
  Sharding sharding = Sharding::kZero1;
  std::string checkpoints = {};
  int64_t stop_after = -1;  // rank 1 is asked to end after so many steps
  int width_factor = 1;
  uint64_t seed = 1;
  int batch = 8;
  std::string data = "tokens";
  bool resume_anyway = false;
};

struct RunResult {
  std::vector<absl::Status> statuses;
  Told seen;  // by rank 0
  std::vector<float> parameters;
  TrainingEnd end;
};

RunResult RunTraining(const TestDirectory& directory, const RunOptions& options) {
  RunResult result;
  ModelConfig model = Tiny();
  model.width *= options.width_factor;
  result.parameters.resize(ParameterLayout(model).size());
  const Dataset data = *Dataset::Open({directory / options.data}, kSequenceTokens, 31, 8);
  const TrainingConfig config = {.steps = options.steps,
                                 .sequences_per_step = options.batch,
                                 .micro_batch = 1,
                                 .sequence = kSequenceTokens,
                                 .seed = options.seed,
                                 .report_every = 1,
                                 .validate_every = 6,
                                 .validation_sequences = 8,
                                 .checkpoint_directory = options.checkpoints,
                                 .checkpoint_every = 4,
                                 .keep_checkpoints = 2,
                                 .resume_anyway = options.resume_anyway,
                                 .timeout = absl::Seconds(60)};
  result.statuses = OnRanks(options.world_size, [&](Communicator& communicator) -> absl::Status {
    const auto engine = *CpuEngine::Create(
        {.model = model,
         .optimizer = {.learning_rate = 1e-2, .min_learning_rate = 1e-3, .total_steps = 12},
         .sharding = options.sharding,
         .sequences = 1,
         .sequence = kSequenceTokens,
         .timeout = absl::Seconds(60)},
        communicator);
    Told other;
    const bool leads = communicator.rank() == 0;
    Told& told = leads ? result.seen : other;
    Recorder recorder(told);
    Trainer trainer(config, *engine, communicator, data, &data, {&recorder});
    trainer.set_stop_requested([&] {
      return communicator.rank() == 1 &&
             static_cast<int64_t>(told.losses.size()) == options.stop_after;
    });
    const absl::StatusOr<TrainingEnd> end = trainer.Run();
    if (end.ok() && leads) {
      result.end = *end;
    }
    for (const StateRange& range : engine->OwnedState()) {
      std::copy(range.parameters.begin(), range.parameters.end(),
                result.parameters.begin() + range.offset);
    }
    return end.status();
  });
  return result;
}

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() { WriteTokens(directory_ / "tokens"); }
  TestDirectory directory_;
};

TEST_F(TrainerTest, LearnsReportsAndValidates) {
  const RunResult run = RunTraining(directory_, {});
  EXPECT_THAT(run.statuses, Each(absl::OkStatus()));
  EXPECT_EQ(run.seen.started, 0);
  ASSERT_EQ(run.seen.losses.size(), 12U);
  EXPECT_NEAR(run.seen.losses.front(), 3.43, 0.05);  // log 31
  EXPECT_LT(run.seen.losses.back(), 3.1);
  ASSERT_EQ(run.seen.validation.size(), 2U);
  EXPECT_LT(run.seen.validation[1], run.seen.validation[0]);
  EXPECT_TRUE(run.seen.committed.empty());
  EXPECT_EQ(run.end.step, 12);
  EXPECT_FALSE(run.end.stopped);
}

TEST_F(TrainerTest, StopsAtAStepAllRanksAgreeOnAndGoesOnBitForBit) {
  for (const Sharding sharding : {Sharding::kDataParallel, Sharding::kZero1, Sharding::kZero3}) {
    const TestDirectory checkpoints;
    const RunResult whole = RunTraining(directory_, {.sharding = sharding});
    const RunOptions options = {
        .sharding = sharding, .checkpoints = checkpoints.path(), .stop_after = 7};
    const RunResult stopped = RunTraining(directory_, options);
    ASSERT_THAT(stopped.statuses, Each(absl::OkStatus()));
    EXPECT_TRUE(stopped.end.stopped);
    EXPECT_EQ(stopped.end.step, 7);
    EXPECT_THAT(*CommittedSteps(checkpoints.path()), ElementsAre(4, 7));
    const RunResult resumed =
        RunTraining(directory_, {.sharding = sharding, .checkpoints = checkpoints.path()});
    ASSERT_THAT(resumed.statuses, Each(absl::OkStatus()));
    EXPECT_EQ(resumed.seen.started, 7);
    EXPECT_EQ(resumed.parameters, whole.parameters);
    EXPECT_EQ(resumed.seen.losses.back(), whole.seen.losses.back());
    EXPECT_THAT(*CommittedSteps(checkpoints.path()), ElementsAre(8, 12));
  }
}

TEST_F(TrainerTest, GoesOnAtHalfAndDoubleTheWorldSizeAndWithAnotherSharding) {
  const RunResult whole = RunTraining(directory_, {});
  for (const int world_size : {1, 4}) {
    const TestDirectory checkpoints;
    RunTraining(directory_, {.checkpoints = checkpoints.path(), .stop_after = 6});
    const RunResult resumed = RunTraining(directory_, {.world_size = world_size,
                                                       .sharding = Sharding::kZero3,
                                                       .checkpoints = checkpoints.path()});
    ASSERT_THAT(resumed.statuses, Each(absl::OkStatus()));
    EXPECT_EQ(resumed.seen.started, 6);
    EXPECT_NEAR(resumed.seen.losses.back(), whole.seen.losses.back(), 1e-3);
    for (size_t i = 0; i < whole.parameters.size(); ++i) {
      ASSERT_NEAR(resumed.parameters[i], whole.parameters[i], 1e-3) << i;
    }
  }
}

TEST_F(TrainerTest, FallsBackToTheCheckpointBeforeADamagedOne) {
  const TestDirectory checkpoints;
  RunTraining(directory_, {.checkpoints = checkpoints.path(), .stop_after = 7});
  // A shard that only rank 1 reads.
  std::fstream shard(CheckpointPath(checkpoints.path(), 7) + "/shard-00001-of-00002.safetensors",
                     std::ios::in | std::ios::out | std::ios::binary);
  shard.seekp(-20, std::ios::end);
  shard.put('\x11');
  shard.close();
  const RunResult resumed = RunTraining(directory_, {.checkpoints = checkpoints.path()});
  ASSERT_THAT(resumed.statuses, Each(absl::OkStatus()));
  EXPECT_EQ(resumed.seen.started, 4);
  EXPECT_THAT(resumed.seen.failed, ElementsAre(7));
  EXPECT_THAT(resumed.seen.committed, ElementsAre(8, 12));
  EXPECT_EQ(resumed.parameters, RunTraining(directory_, {}).parameters);
}

TEST_F(TrainerTest, CheckpointsThatCannotBeLoadedAreNotTakenForAFreshStart) {
  const TestDirectory checkpoints;
  std::filesystem::create_directories(CheckpointPath(checkpoints.path(), 4));
  EXPECT_THAT(RunTraining(directory_, {.checkpoints = checkpoints.path()}).statuses,
              Each(Property(&absl::Status::code, absl::StatusCode::kDataLoss)));
}

TEST_F(TrainerTest, CheckpointsOfAnotherModelAreNamed) {
  const TestDirectory checkpoints;
  RunTraining(directory_, {.steps = 2, .checkpoints = checkpoints.path()});
  const RunResult other =
      RunTraining(directory_, {.checkpoints = checkpoints.path(), .width_factor = 2});
  for (const absl::Status& status : other.statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("another model (llama3 layers=1 width=16"));
  }
}

TEST_F(TrainerTest, ADirectoryThatCannotBeWrittenIsSaidBeforeTheFirstStep) {
  std::ofstream(directory_ / "file") << "x";
  const RunResult run = RunTraining(directory_, {.checkpoints = directory_ / "file"});
  EXPECT_THAT(run.statuses, Each(Property(&absl::Status::ok, false)));
  EXPECT_TRUE(run.seen.losses.empty());
}

TEST_F(TrainerTest, ARunOfAnotherSeedBatchOrDataIsNotGoneOnWithUnlessThatIsAskedFor) {
  WriteTokens(directory_ / "others", 6);
  std::filesystem::copy(directory_ / "tokens", directory_ / "copy");
  const TestDirectory checkpoints;
  RunTraining(directory_, {.steps = 4, .checkpoints = checkpoints.path()});
  for (const RunOptions& other :
       {RunOptions{.seed = 2}, RunOptions{.batch = 16}, RunOptions{.data = "others"}}) {
    RunOptions options = other;
    options.steps = 5;
    options.checkpoints = checkpoints.path();
    for (const absl::Status& status : RunTraining(directory_, options).statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(std::string(status.message()), HasSubstr("of another run (seed=1 batch=8 "));
      EXPECT_THAT(std::string(status.message()), HasSubstr("resume-anyway"));
    }
    EXPECT_THAT(*CommittedSteps(checkpoints.path()), ElementsAre(4));
  }
  // The same tokens in another place are the same data.
  RunResult run =
      RunTraining(directory_, {.steps = 5, .checkpoints = checkpoints.path(), .data = "copy"});
  EXPECT_THAT(run.statuses, Each(absl::OkStatus()));
  EXPECT_EQ(run.seen.started, 4);
  run = RunTraining(
      directory_,
      {.steps = 6, .checkpoints = checkpoints.path(), .seed = 2, .resume_anyway = true});
  EXPECT_THAT(run.statuses, Each(absl::OkStatus()));
  EXPECT_EQ(run.seen.started, 5);
}

// Another engine, but for what a test changes.
class Delegate : public Engine {
 public:
  explicit Delegate(Engine& engine) : engine_(engine) {}

  const ParameterLayout& layout() const override { return engine_.layout(); }
  const ModelConfig& model() const override { return engine_.model(); }
  std::string Description() const override { return engine_.Description(); }
  absl::StatusOr<StepResult> Step(int64_t step, std::span<const Batch> batches) override {
    return engine_.Step(step, batches);
  }
  int64_t memory_bytes() const override { return engine_.memory_bytes(); }
  absl::StatusOr<double> Loss(std::span<const Batch> batches) override {
    return engine_.Loss(batches);
  }
  absl::Status Load(const StateSource& source) override { return engine_.Load(source); }
  absl::StatusOr<std::unique_ptr<StateCopy>> CopyState() override { return engine_.CopyState(); }

 private:
  Engine& engine_;
};

// Steps of some numbers have no loss.
class Skips : public Delegate {
 public:
  Skips(Engine& engine, std::set<int64_t> steps, bool broken)
      : Delegate(engine), steps_(std::move(steps)), broken_(broken) {}
  absl::StatusOr<double> Loss(std::span<const Batch> batches) override {
    return broken_ ? std::nan("") : Delegate::Loss(batches);
  }
  absl::StatusOr<StepResult> Step(int64_t step, std::span<const Batch> batches) override {
    if (!steps_.contains(step)) return Delegate::Step(step, batches);
    return StepResult{.loss = std::nan(""), .gradient_norm = 1, .skipped = true};
  }

 private:
  std::set<int64_t> steps_;
  bool broken_;  // other sequences have no loss either
};

struct SkipsTold : TrainingObserver {
  void OnStep(const StepReport& /*report*/) override {}
  void OnValidation(int64_t /*step*/, double /*loss*/) override {}
  void OnCheckpoint(int64_t step, const absl::Status& status) override {
    if (status.ok()) committed.push_back(step);
  }
  void OnStart(int64_t /*step*/) override {}
  void OnSkip(const SkipReport& report) override {
    skips.push_back(absl::StrCat(report.step, ": ", report.in_a_row, "/", report.total));
  }
  std::vector<std::string> skips;
  std::vector<int64_t> committed;
};

absl::Status RunWithSkips(const TestDirectory& directory, const std::string& checkpoints,
                          std::set<int64_t> steps, SkipsTold& told, bool broken = false) {
  const Dataset data = *Dataset::Open({directory / "tokens"}, kSequenceTokens, 31, 8);
  return OnRanks(1, [&](Communicator& communicator) -> absl::Status {
    const auto engine = *CpuEngine::Create(
        {.model = Tiny(), .optimizer = {}, .sequences = 1, .sequence = kSequenceTokens},
        communicator);
    Skips skips(*engine, steps, broken);
    Trainer trainer({.steps = 9,
                     .sequences_per_step = 1,
                     .micro_batch = 1,
                     .sequence = kSequenceTokens,
                     .checkpoint_directory = checkpoints,
                     .checkpoint_every = 3,
                     .most_skipped_steps = 2},
                    skips, communicator, data, nullptr, {&told});
    return trainer.Run().status();
  })[0];
}

TEST_F(TrainerTest, AFewStepsWithoutALossAreSkippedAndCounted) {
  const TestDirectory checkpoints;
  SkipsTold told;
  EXPECT_TRUE(RunWithSkips(directory_, checkpoints.path(), {1, 2, 5, 7}, told).ok());
  EXPECT_THAT(told.skips, ElementsAre("2: 1/1", "3: 2/2", "6: 1/3", "8: 1/4"));
  // Those of steps 3 and 6, which were skipped, might hold what is broken.
  EXPECT_THAT(told.committed, ElementsAre(9));
}

TEST_F(TrainerTest, ParametersThatHaveNoLossAtTheEndAreNoCheckpoint) {
  const TestDirectory checkpoints;
  SkipsTold told;
  EXPECT_TRUE(RunWithSkips(directory_, checkpoints.path(), {8}, told).ok());
  EXPECT_THAT(*CommittedSteps(checkpoints.path()), testing::Contains(9));
  const TestDirectory others;
  const absl::Status status =
      RunWithSkips(directory_, others.path(), {7, 8}, told, /*broken=*/true);
  EXPECT_THAT(std::string(status.message()), HasSubstr("step 8: the loss is nan"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("other sequences have no loss either"));
  EXPECT_THAT(*CommittedSteps(others.path()), testing::Not(testing::Contains(9)));
}

TEST_F(TrainerTest, TooManyInARowEndTheRunAndLeaveTheCheckpointBeforeThem) {
  const TestDirectory checkpoints;
  SkipsTold told;
  const absl::Status status =
      RunWithSkips(directory_, checkpoints.path(), {1, 3, 4, 5, 6, 7, 8}, told);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("step 5: the loss is nan and the gradient's norm 1; the parameters were "
                        "not updated, nor in the 2 steps before (2 may be skipped in a row)"));
  EXPECT_THAT(told.skips, ElementsAre("2: 1/1", "4: 1/2", "5: 2/3", "6: 3/4"));
  EXPECT_THAT(*CommittedSteps(checkpoints.path()), ElementsAre(3));
}

// A state that never comes, because a rank is lost as soon as it is asked for.
class LosesARank : public Delegate {
 public:
  LosesARank(Engine& engine, Communicator& communicator, std::shared_future<void> released)
      : Delegate(engine), communicator_(communicator), released_(std::move(released)) {}

  absl::StatusOr<std::unique_ptr<StateCopy>> CopyState() override {
    communicator_.Abort(absl::UnavailableError("rank 7 was killed"));
    return std::make_unique<Copy>(released_);
  }

 private:
  class Copy : public StateCopy {
   public:
    explicit Copy(std::shared_future<void> released) : released_(std::move(released)) {}
    absl::StatusOr<std::vector<StateRange>> Ranges() const override {
      released_.wait();
      return std::vector<StateRange>();
    }

   private:
    std::shared_future<void> released_;
  };

  Communicator& communicator_;
  std::shared_future<void> released_;
};

TEST_F(TrainerTest, ALostRankIsNoticedWhileACheckpointIsWritten) {
  const TestDirectory checkpoints;
  const Dataset data = *Dataset::Open({directory_ / "tokens"}, kSequenceTokens, 31, 8);
  const auto statuses = OnRanks(1, [&](Communicator& communicator) -> absl::Status {
    const auto engine = *CpuEngine::Create(
        {.model = Tiny(), .optimizer = {}, .sequences = 1, .sequence = kSequenceTokens},
        communicator);
    std::promise<void> release;
    LosesARank loses(*engine, communicator, release.get_future().share());
    Trainer trainer({.steps = 1,
                     .sequences_per_step = 1,
                     .micro_batch = 1,
                     .sequence = kSequenceTokens,
                     .checkpoint_directory = checkpoints.path()},
                    loses, communicator, data, nullptr, {});
    const absl::Status status = trainer.Run().status();
    release.set_value();
    return status;
  });
  EXPECT_EQ(statuses[0].message(), "rank 7 was killed");
}

TEST(WeightsState, TrainingStartsFromWeightsInHuggingFacesForm) {
  const TestDirectory directory;
  const ParameterLayout layout(Tiny());
  std::vector<float> weights(layout.size());
  layout.Initialize(99, 0, weights);
  ASSERT_TRUE(WriteHuggingFace(
                  Tiny(),
                  [&weights](int64_t offset, std::span<float> values) {
                    std::copy_n(weights.begin() + offset, values.size(), values.begin());
                    return absl::OkStatus();
                  },
                  directory / "w")
                  .ok());
  const auto opened = HuggingFaceWeights::Open(layout, directory / "w");
  ASSERT_TRUE(opened.ok()) << opened.status();
  std::vector<float> loaded(layout.size(), -1);
  const auto statuses = OnRanks(2, [&](Communicator& communicator) -> absl::Status {
    const auto engine = *CpuEngine::Create(
        {.model = Tiny(), .optimizer = {}, .sharding = Sharding::kZero3, .sequence = 4},
        communicator);
    absl::Status status = engine->Load(WeightsState(*opened));
    for (const StateRange& range : engine->OwnedState()) {
      std::copy(range.parameters.begin(), range.parameters.end(), loaded.begin() + range.offset);
      EXPECT_EQ(range.second_moment.back(), 0);
    }
    return status;
  });
  EXPECT_THAT(statuses, Each(absl::OkStatus()));
  EXPECT_EQ(loaded, weights);
}

TEST(TrainingConfig, BatchesThatCannotBeDividedAreSaidWithTheNumbers) {
  TrainingConfig config = {.steps = 1, .sequences_per_step = 12, .micro_batch = 2, .sequence = 4};
  EXPECT_TRUE(Validate(config, 3).ok());
  EXPECT_EQ(Validate(config, 4).message(),
            "a step takes 12 sequences, which can't be divided among 4 ranks in micro-batches of "
            "2; take a multiple of 8");
  config.validate_every = 1;
  EXPECT_THAT(std::string(Validate(config, 3).message()), HasSubstr("validation takes 0"));
}

}  // namespace
}  // namespace muster::worker
