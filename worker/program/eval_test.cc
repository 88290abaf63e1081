// What a run has learned, measured and handed on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/program/test_job.h"

namespace muster::worker {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const Environment kNoGpu = {{"CUDA_VISIBLE_DEVICES", ""}};

class Eval : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    data_ = new JobDirectory();
    const Ran ran = RunWorker(data_->TrainFlags() +
                              Flags{"--checkpoints=" + Checkpoints(), "--checkpoint-every=20"});
    ASSERT_EQ(ran.exit_code, 0) << ran.printed;
  }
  static void TearDownTestSuite() { delete data_; }

  static std::string Checkpoints() { return *data_ / "checkpoints"; }

  static Ran Evaluate(const Flags& flags) {
    return RunWorker(Flags{"eval", "--engine=cpu", "--data=" + data_->tokens()} + flags, kNoGpu);
  }
  static std::string Export(const std::string& name, const Flags& flags = {}) {
    const Ran ran = RunWorker(
        Flags{"convert", "--from=checkpoint", "--output=" + *data_ / name, Checkpoints()} + flags);
    EXPECT_EQ(ran.exit_code, 0) << ran.printed;
    return *data_ / name;
  }
  // "loss 1.234567  perplexity ..."
  static double LossIn(const Ran& ran) {
    const size_t at = ran.printed.find("loss ");
    EXPECT_EQ(ran.exit_code, 0) << ran.printed;
    return at == std::string::npos ? -1 : std::stod(ran.printed.substr(at + 5));
  }

  static JobDirectory* data_;
};
JobDirectory* Eval::data_ = nullptr;

TEST_F(Eval, ACheckpointKnowsItsModelAndHasLearned) {
  const Ran last = Evaluate({"--checkpoints=" + Checkpoints()});
  EXPECT_LT(LossIn(last), 1.5);
  EXPECT_GT(LossIn(Evaluate({"--checkpoints=" + Checkpoints(), "--step=20"})), LossIn(last) + 0.05);
  EXPECT_THAT(Evaluate({"--checkpoints=" + Checkpoints(), "--step=30"}).printed,
              HasSubstr("holds no checkpoint of step 30; the last one is of step 40"));
}

TEST_F(Eval, ExportedWeightsHaveTheCheckpointsLossHoweverTheyAreDivided) {
  const Ran checkpoint = Evaluate({"--checkpoints=" + Checkpoints()});
  const size_t begin = checkpoint.printed.find("loss ");
  ASSERT_NE(begin, std::string::npos) << checkpoint.printed;
  const std::string line =
      checkpoint.printed.substr(begin, checkpoint.printed.find('\n', begin) - begin);
  EXPECT_THAT(Evaluate({"--weights=" + Export("whole")}).printed, HasSubstr(line));
  EXPECT_THAT(Evaluate({"--weights=" + Export("parts", {"--shard-bytes=20000"})}).printed,
              HasSubstr(line));
  EXPECT_NEAR(LossIn(Evaluate({"--weights=" + Export("bf16", {"--type=bf16"})})),
              LossIn(checkpoint), 0.01);
}

TEST_F(Eval, ManyRanksWithShardedStateMeasureTheSame) {
  // 32 is a multiple of what they take at once, so nothing is left over.
  const Flags some = {"--checkpoints=" + Checkpoints(), "--sequences=32", "--micro-batch=2"};
  const Ran one = Evaluate(some);
  const Ran four = Evaluate(some + Flags{"--processes-per-node=4", "--sharding=zero3"});
  EXPECT_NEAR(LossIn(four), LossIn(one), 1e-5);
  EXPECT_THAT(four.printed, HasSubstr("  1024 tokens of "));
}

TEST_F(Eval, WhatContradictsTheWeightsIsRefused) {
  const std::string weights = Export("said");
  const Ran named = Evaluate({"--weights=" + weights, "--model=gpt2"});
  EXPECT_EQ(named.exit_code, 78);
  EXPECT_THAT(named.printed,
              HasSubstr("model=gpt2's layers=12, but the config.json of " + weights + " says 1"));
  EXPECT_THAT(Evaluate({"--checkpoints=" + Checkpoints(), "--heads=4"}).printed,
              HasSubstr("heads=4, but " + Checkpoints() + "/step-0000000040 says 2"));
  EXPECT_EQ(Evaluate({"--weights=" + weights, "--layers=1", "--context=32"}).exit_code, 0);
}

TEST_F(Eval, WeightsThatDontSayWhatTheyAreNeedAModel) {
  const std::string weights = Export("mute");
  std::filesystem::remove(weights + "/config.json");
  const Ran mute = Evaluate({"--weights=" + weights});
  EXPECT_EQ(mute.exit_code, 78);
  EXPECT_THAT(mute.printed, HasSubstr("there is no config.json that says what these weights are"));
}

TEST_F(Eval, SaysWhatItLacks) {
  EXPECT_THAT(Evaluate({}).printed, HasSubstr("set either weights or checkpoints"));
  EXPECT_THAT(RunWorker({"eval", "--checkpoints=" + Checkpoints()}).printed,
              HasSubstr("no data: set data to token files"));
  EXPECT_THAT(Evaluate({"--checkpoints=" + Checkpoints(), "--engine=tpu"}).printed,
              HasSubstr("engine=tpu is none of auto, gpu and cpu"));
  EXPECT_THAT(RunWorker({"eval", "--help"}).printed, StartsWith("usage: muster-worker eval "));
}

TEST_F(Eval, AnExportReplacesNothing) {
  const std::string weights = Export("twice");
  const Ran again =
      RunWorker({"convert", "--from=checkpoint", "--output=" + weights, Checkpoints()});
  EXPECT_NE(again.exit_code, 0);
  EXPECT_THAT(again.printed, HasSubstr("is there already"));
}

}  // namespace
}  // namespace muster::worker
