// What users and the environment do wrong, through the program: each ends with a cause, a fix, and
// an exit code that says whether to start again; an old checkpoint is never damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/file.h"
#include "worker/checkpoint/test_small_disk.h"
#include "worker/diagnose/cause.h"
#include "worker/program/test_job.h"

namespace muster::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class BadInput : public testing::Test {
 protected:
  static void SetUpTestSuite() { data_ = new JobDirectory(); }
  static void TearDownTestSuite() { delete data_; }

  std::string termination_log(const std::string& name = "0") const {
    return directory_ / ("termination-" + name);
  }

  // Of a run of ten steps.
  Flags TrainFlags(const std::string& name = "0") const {
    MakeTerminationLog(directory_, name);
    return data_->TrainFlags() +
           Flags{"--steps=10", "--termination-log=" + termination_log(name), "--meet-timeout=30s"};
  }
  Flags CheckpointFlags() const {
    return {"--checkpoints=" + checkpoints_, "--checkpoint-every=5"};
  }

  Ran Train(const Flags& flags) const { return RunWorker(TrainFlags() + flags); }

  std::unique_ptr<Pod> StartPod(int pod, int pods, const std::string& port, const Flags& flags = {},
                                const std::string& program = MUSTER_WORKER,
                                const std::string& name = "") const {
    const std::string log = name.empty() ? absl::StrCat(pod) : name;
    return std::make_unique<Pod>(Flags{program} + TrainFlags(log) + flags,
                                 PodEnvironment(pod, pods, port, /*processes=*/1));
  }

  // The log names cause, rank and fix; so does the termination message; the code is the cause's.
  void ExpectEnd(const Ran& ran, CauseId id, const std::string& detail,
                 const std::string& name = "0") const {
    const Cause& cause = CauseOf(id);
    EXPECT_EQ(ran.exit_code, cause.exit_code) << ran.printed;
    EXPECT_THAT(ran.printed, HasSubstr(std::string(cause.fix)));
    EXPECT_THAT(ran.printed, HasSubstr(detail));
    const nlohmann::json message = TerminationOf(termination_log(name));
    ASSERT_TRUE(message.is_object()) << Contents(termination_log(name)) << "\n" << ran.printed;
    EXPECT_EQ(message.at("cause"), std::string(cause.name)) << message;
    EXPECT_EQ(message.at("exitCode"), ran.exit_code);
    EXPECT_THAT(message.at("detail").get<std::string>(), HasSubstr(detail));
  }

  void ExpectEnd(Pod& pod, CauseId id, const std::string& detail, const std::string& name) const {
    const int exit_code = pod.ExitCode();
    ExpectEnd(Ran{exit_code, pod.printed()}, id, detail, name);
  }

  std::vector<int64_t> Steps() const { return *CommittedSteps(checkpoints_); }
  std::string Shard(int64_t step) const {
    return CheckpointPath(checkpoints_, step) + "/shard-00000-of-00001.safetensors";
  }

  // Turns over one bit in the file's last quarter.
  static void Damage(const std::string& path) {
    std::string bytes = Contents(path);
    bytes[bytes.size() * 3 / 4] ^= 1;
    std::ofstream(path, std::ios::binary) << bytes;
  }

  static JobDirectory* data_;
  const TestDirectory directory_;
  const std::string checkpoints_ = directory_ / "checkpoints";
};

JobDirectory* BadInput::data_ = nullptr;

TEST_F(BadInput, UnknownFlagsAreRefusedWithTheNearest) {
  ExpectEnd(Train({"--step=7"}), CauseId::kConfigurationInvalid,
            "there is no setting step; did you mean steps?");
  ExpectEnd(Train({"--steps=many"}), CauseId::kConfigurationInvalid,
            "--steps=many isn't a whole number");
  ExpectEnd(Train({"more"}), CauseId::kConfigurationInvalid, "more is no setting");
}

TEST_F(BadInput, ValuesThatDoNotGoTogetherAreNamed) {
  for (const auto& [flag, detail] : std::vector<std::pair<std::string, std::string>>{
           {"--model=gpt5", "model \"gpt5\" is not known; known are: gpt2,"},
           {"--engine=tpu", "engine=tpu is none of auto, gpu and cpu"},
           {"--precision=fp16", "precision=fp16 is none of bf16 and fp8"},
           {"--precision=fp8", "precision=fp8: the CPU engine computes"},
           {"--attention=flash", "attention=flash is neither cudnn nor plain"},
           {"--gradient-reduction=fp8", "gradient-reduction=fp8 is none of fp32 and bf16"},
           {"--gradient-reduction=bf16", "gradient-reduction=bf16: the CPU engine computes"},
           {"--sharding=fsdp", "known are: ddp, zero1, zero3"},
           {"--heads=3", "heads"},
           {"--layers=0", "layers=0 isn't between 1 and"},
           {"--sequence=64", "sequence=64 isn't between 1 and the context, 32"},
           {"--micro-batch=3", "16 sequences, which can't be divided"},
           {"--data=", "no data to train on"},
           {"--validate-every=5", "validation-data and validate-every go together"},
           {"--keep-checkpoints=0", "keep-checkpoints=0"},
           {"--metrics-port=70000", "metrics-port=70000"},
           {"--silence-limit=1s", "silence-limit=1s is less than two heartbeats"}}) {
    SCOPED_TRACE(flag);
    ExpectEnd(Train({flag}), CauseId::kConfigurationInvalid, detail);
  }
}

TEST_F(BadInput, AGpuThatIsNotThereIsNotReplacedByTheCpu) {
  const Ran ran = RunWorker(TrainFlags() + Flags{"--engine=gpu"}, {{"CUDA_VISIBLE_DEVICES", ""}});
  // A program without the GPU engine calls it a configuration, one that has it a missing driver.
  EXPECT_NE(ran.exit_code, 0) << ran.printed;
  EXPECT_THAT(ran.printed, AllOf(HasSubstr("GPU"), Not(HasSubstr("step 10/10"))));
}

TEST_F(BadInput, APodThatAsksForGpusDoesNotTrainOnItsCpus) {
  const auto train = [&](const std::string& engine, const Environment& environment) {
    return RunWorker(TrainFlags() + Flags{"--engine=" + engine}, environment);
  };
  // A driver that shows two GPUs, without CUDA.
  const Environment driver = {{"LD_LIBRARY_PATH", MUSTER_MADE_UP_DRIVER}};
  ExpectEnd(train("auto", driver), CauseId::kEngineWithoutGpus, "NVML shows 2 GPUs, but");
  ExpectEnd(train("auto", {{"NVIDIA_VISIBLE_DEVICES", "GPU-1,GPU-2"}}), CauseId::kEngineWithoutGpus,
            "NVIDIA_VISIBLE_DEVICES=GPU-1,GPU-2, but");
  for (const Environment& environment : {driver, Environment{{"NVIDIA_VISIBLE_DEVICES", "all"}}}) {
    const Ran ran = train(environment == driver ? "cpu" : "auto", environment);
    EXPECT_EQ(ran.exit_code, 0) << ran.printed;
  }
}

TEST_F(BadInput, APodThatAsksForGpusDoesNotEvaluateOnItsCpus) {
  ASSERT_EQ(Train(CheckpointFlags()).exit_code, 0);
  const auto evaluate = [&](const std::string& engine) {
    return RunWorker({"eval", "--engine=" + engine, "--checkpoints=" + checkpoints_,
                      "--data=" + data_->tokens(), "--termination-log=" + termination_log()},
                     {{"LD_LIBRARY_PATH", MUSTER_MADE_UP_DRIVER}});
  };
  ExpectEnd(evaluate("auto"), CauseId::kEngineWithoutGpus, "NVML shows 2 GPUs, but");
  EXPECT_EQ(evaluate("cpu").exit_code, 0);
}

TEST_F(BadInput, RanksOfPodsThatOnlySometimesAskForGpusAllEnd) {
  const std::string port = FreePort();
  const auto first = StartPod(0, 2, port, {"--engine=auto"});
  // As torchrun starts it: the pod isn't looked at.
  Environment second = PodEnvironment(1, 2, port, /*processes=*/1);
  second["NVIDIA_VISIBLE_DEVICES"] = "GPU-1";
  second["LOCAL_RANK"] = "1";
  Pod pod(Flags{MUSTER_WORKER} + TrainFlags("1") + Flags{"--engine=auto"}, second);
  ExpectEnd(pod, CauseId::kEngineWithoutGpus, "NVIDIA_VISIBLE_DEVICES=GPU-1", "1");
  ExpectEnd(*first, CauseId::kEngineWithoutGpus, "NVIDIA_VISIBLE_DEVICES=GPU-1", "0");
}

TEST_F(BadInput, AFileOfSettingsIsNamedWithItsLine) {
  std::ofstream(directory_ / "config.yaml") << "steps: 5\nstpes: 6\n";
  ExpectEnd(Train({"--config=" + directory_ / "config.yaml"}), CauseId::kConfigurationInvalid,
            "config.yaml:2: there is no setting stpes; did you mean steps?");
}

TEST_F(BadInput, AModelThatCannotFitIsToldBeforeTraining) {
  const Ran ran = Train({"--model=llama-3-8b", "--layers=2000", "--width=4096", "--heads=32",
                         "--vocabulary=128256", "--context=32"});
  ExpectEnd(ran, CauseId::kModelTooLarge, "planned on this node");
  EXPECT_THAT(ran.printed, Not(HasSubstr("[rank")));
}

TEST_F(BadInput, ACheckpointFolderThatCannotBeWritten) {
  std::ofstream(directory_ / "file") << "";
  const Ran ran = Train({"--checkpoints=" + directory_ / "file/checkpoints"});
  ExpectEnd(ran, CauseId::kCheckpointUnwritable, directory_ / "file/checkpoints");
  EXPECT_THAT(ran.printed, Not(HasSubstr("[rank")));
}

TEST_F(BadInput, DataThatIsCutShortOrMissing) {
  const std::string path = directory_ / "cut";
  std::filesystem::copy(data_->tokens(), path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 100);
  ExpectEnd(Train({"--data=" + path}), CauseId::kDataCorrupt, path);
  ExpectEnd(Train({"--data=" + directory_ / "none"}), CauseId::kConfigurationInvalid,
            directory_ / "none");
}

TEST_F(BadInput, WeightsOfAnotherModelOrCutShort) {
  ASSERT_EQ(Train(CheckpointFlags()).exit_code, 0);
  const std::string weights = directory_ / "weights";
  const Ran ran = RunWorker({"convert", "--from=checkpoint", "--output=" + weights, checkpoints_});
  ASSERT_EQ(ran.exit_code, 0) << ran.printed;
  EXPECT_EQ(Train({"--weights=" + weights}).exit_code, 0);
  ExpectEnd(Train({"--weights=" + weights, "--width=64"}), CauseId::kConfigurationInvalid,
            "width=64, but the config.json of " + weights + " says 32");
  const std::string file = weights + "/model.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 100);
  ExpectEnd(Train({"--weights=" + weights}), CauseId::kCheckpointCorrupt, file);
  // Without a config.json the settings say what they are, and the shapes show that they don't.
  std::filesystem::remove(weights + "/config.json");
  EXPECT_EQ(
      RunWorker({"convert", "--from=checkpoint", "--output=" + directory_ / "again", checkpoints_})
          .exit_code,
      0);
  std::filesystem::rename(directory_ / "again/model.safetensors", file);
  EXPECT_EQ(Train({"--weights=" + weights}).exit_code, 0);
  ExpectEnd(Train({"--weights=" + weights, "--width=64"}), CauseId::kConfigurationInvalid, weights);
}

TEST_F(BadInput, CheckpointsOfAnotherRunAreGoneOnWithOnlyIfThatIsAskedFor) {
  ASSERT_EQ(Train(CheckpointFlags()).exit_code, 0);
  const Flags other = CheckpointFlags() + Flags{"--steps=11", "--seed=2"};
  ExpectEnd(Train(other), CauseId::kConfigurationInvalid, "is of another run (seed=1 batch=16 ");
  const Ran anyway = Train(other + Flags{"--resume-anyway"});
  EXPECT_EQ(anyway.exit_code, 0) << anyway.printed;
  EXPECT_THAT(anyway.printed, HasSubstr("resuming after step 10"));
}

TEST_F(BadInput, PodsWithoutTheJobsSecret) {
  const std::string port = FreePort();
  ASSERT_TRUE(WriteFileWhole(directory_ / "secret", "0123456789abcdef\n").ok());
  const Flags with = {"--job-secret-file=" + directory_ / "secret"};
  const auto first = StartPod(0, 2, port, with);
  const auto stranger = StartPod(1, 2, port, {}, MUSTER_WORKER, "stranger");
  ExpectEnd(*stranger, CauseId::kConfigurationInvalid, "rank 1 has no secret", "stranger");
  const auto second = StartPod(1, 2, port, with);
  EXPECT_EQ(first->ExitCode(), 0) << first->printed();
  EXPECT_EQ(second->ExitCode(), 0) << second->printed();
  const Ran none = RunWorker(TrainFlags() + Flags{"--job-secret-file=" + directory_ / "none"});
  ExpectEnd(none, CauseId::kConfigurationInvalid, directory_ / "none");
}

TEST_F(BadInput, ALossThatIsNoNumberEndsTheRunAndLeavesTheCheckpoints) {
  ASSERT_EQ(Train(CheckpointFlags()).exit_code, 0);
  const Ran ran = Train(CheckpointFlags() + Flags{"--steps=20", "--learning-rate=1e30"});
  ExpectEnd(ran, CauseId::kLossNotFinite, "the parameters were not updated");
  EXPECT_THAT(Steps(), testing::Contains(10));
}

TEST_F(BadInput, ADamagedCheckpointLeadsToTheOneBeforeAndNoneToAnError) {
  ASSERT_EQ(Train(CheckpointFlags()).exit_code, 0);
  ASSERT_EQ(Steps(), (std::vector<int64_t>{5, 10}));
  Damage(Shard(10));
  const Ran back = Train(CheckpointFlags());
  EXPECT_EQ(back.exit_code, 0) << back.printed;
  EXPECT_THAT(back.printed, HasSubstr("checkpoint of step 10 doesn't count: "));
  EXPECT_THAT(back.printed, HasSubstr("resuming after step 5"));
  for (const int64_t step : Steps()) {
    std::filesystem::resize_file(Shard(step), std::filesystem::file_size(Shard(step)) / 2);
  }
  const std::vector<int64_t> before = Steps();
  ExpectEnd(Train(CheckpointFlags()), CauseId::kCheckpointCorrupt,
            "none of 2 checkpoints can be loaded");
  EXPECT_EQ(Steps(), before);
}

TEST_F(BadInput, CheckpointsOfAnotherModelAreNoFreshStart) {
  ASSERT_EQ(Train(CheckpointFlags()).exit_code, 0);
  ExpectEnd(Train(CheckpointFlags() + Flags{"--width=64"}), CauseId::kConfigurationInvalid,
            "holds checkpoints of another model");
}

TEST_F(BadInput, AFullDiskLeavesTheLastCheckpointWhichTheNextStartResumesFrom) {
  std::filesystem::create_directory(checkpoints_);
  SmallDisk disk(checkpoints_, 8 << 20);
  ASSERT_EQ(disk.error(), "") << "this test needs root and mount namespaces";
  ASSERT_EQ(Train(CheckpointFlags()).exit_code, 0);
  // Enough for what the check of the folder writes, too little for a shard.
  ASSERT_TRUE(disk.LeaveFree(16 << 10));
  const Ran ran = Train(CheckpointFlags() + Flags{"--steps=20"});
  ExpectEnd(ran, CauseId::kDiskFull, "No space left on device");
  EXPECT_THAT(ran.printed, HasSubstr("checkpoint of step 15 doesn't count: "));
  EXPECT_THAT(ran.printed, HasSubstr("step 20/20")) << "training goes on without it";
  EXPECT_EQ(Steps(), (std::vector<int64_t>{5, 10}));
  ASSERT_TRUE(disk.GiveBack(4 << 20));
  const Ran next = Train(CheckpointFlags() + Flags{"--steps=20"});
  EXPECT_EQ(next.exit_code, 0) << next.printed;
  EXPECT_THAT(next.printed, HasSubstr("resuming after step 10"));
}

TEST_F(BadInput, RoomThatIsMadeWhileTrainingGoesOnIsTheNextCheckpoints) {
  std::filesystem::create_directory(checkpoints_);
  SmallDisk disk(checkpoints_, 8 << 20);
  ASSERT_EQ(disk.error(), "") << "this test needs root and mount namespaces";
  const int64_t empty = disk.free();
  ASSERT_EQ(Train(CheckpointFlags() + Flags{"--steps=5"}).exit_code, 0);
  const int64_t needed = empty - disk.free();
  ASSERT_TRUE(disk.LeaveFree(needed / 2));
  Pod pod(Flags{MUSTER_WORKER} + TrainFlags() + CheckpointFlags() + Flags{"--steps=1000000"}, {});
  ASSERT_TRUE(pod.Prints("checkpoint of step 10 doesn't count: ")) << pod.printed();
  // The failed ones together would have taken more than this by now.
  ASSERT_TRUE(pod.Prints("checkpoint of step 20 doesn't count: ")) << pod.printed();
  ASSERT_TRUE(disk.GiveBack(needed / 2 + 2 * disk.page()));
  EXPECT_TRUE(pod.Prints(" is committed")) << pod.printed();
  pod.Signal(SIGTERM);
  EXPECT_EQ(pod.ExitCode(), 143);
}

TEST_F(BadInput, PodsThatDisagreeOnTheNumberOfRanks) {
  const std::string port = FreePort();
  const auto first = StartPod(0, 2, port, {"--meet-timeout=3s"});
  const auto second = StartPod(1, 4, port);
  ExpectEnd(*second, CauseId::kWorldSizeMismatch, "was started for 4 ranks, rank 0 for 2", "1");
  ExpectEnd(*first, CauseId::kRendezvousTimeout, "missing: rank 1", "0");
}

TEST_F(BadInput, TwoPodsWithOneRank) {
  const std::string port = FreePort();
  const Flags long_run = {"--steps=1000000"};
  const auto first = StartPod(0, 2, port, long_run);
  const auto second = StartPod(1, 2, port, long_run);
  ASSERT_TRUE(first->Prints("step 2/")) << first->printed();
  const auto twin = StartPod(1, 2, port, long_run, MUSTER_WORKER, "twin");
  ExpectEnd(*twin, CauseId::kRankTaken, "two processes have one rank", "twin");
  const size_t so_far = first->printed().size();
  EXPECT_TRUE(first->Prints("loss", Pod::kPatience, so_far)) << "the others go on";
  second->Signal(SIGTERM);
  EXPECT_EQ(first->ExitCode(), 143);
  EXPECT_EQ(second->ExitCode(), 143);
}

TEST_F(BadInput, PodsWithDifferentVersions) {
  const std::string port = FreePort();
  const auto first = StartPod(0, 2, port);
  const auto second = StartPod(1, 2, port, {}, MUSTER_WORKER_OF_ANOTHER_VERSION);
  ExpectEnd(*first, CauseId::kVersionsDiffer, "Mismatched worker version", "0");
  ExpectEnd(*second, CauseId::kVersionsDiffer, "has 0.0.1", "1");
}

TEST_F(BadInput, PodsWithDifferentSettings) {
  const std::string port = FreePort();
  const auto first = StartPod(0, 2, port);
  const auto second = StartPod(1, 2, port, {"--seed=7"});
  for (const auto& [pod, name] : {std::pair(first.get(), "0"), std::pair(second.get(), "1")}) {
    ExpectEnd(*pod, CauseId::kConfigurationInvalid,
              "started with \"seed: 7\", rank 0 with \"seed: 1\"", name);
    EXPECT_EQ(TerminationOf(termination_log(name)).at("rank"), 1);
  }
}

TEST_F(BadInput, CheckpointFoldersThatOnlyHaveOneName) {
  const std::string port = FreePort();
  // A link stands for a name that each pod's own file system has.
  const std::string folder = directory_ / "mount";
  std::filesystem::create_directories(directory_ / "a");
  std::filesystem::create_directories(directory_ / "b");
  std::filesystem::create_directory_symlink("/proc/self/cwd", folder);
  const Flags flags = {"--checkpoints=" + folder};
  const auto in = [&](const std::string& cwd) {
    return Flags{"sh", "-c", "cd \"$0\"; exec \"$@\"", directory_ / cwd, MUSTER_WORKER};
  };
  Pod first(in("a") + TrainFlags("0") + flags, PodEnvironment(0, 2, port, 1));
  Pod second(in("b") + TrainFlags("1") + flags, PodEnvironment(1, 2, port, 1));
  ExpectEnd(first, CauseId::kCheckpointUnwritable, "isn't the directory that rank 0 sees", "0");
  ExpectEnd(second, CauseId::kCheckpointUnwritable, "isn't the directory that rank 0 sees", "1");
}

TEST_F(BadInput, ARendezvousPortThatIsTaken) {
  const std::string port = FreePort();
  const Socket taken = *Listen(static_cast<uint16_t>(std::stoi(port)));
  const auto first = StartPod(0, 2, port);
  ExpectEnd(*first, CauseId::kAddressInUse, port, "0");
}

TEST_F(BadInput, ARankThatCrashesIsToldThoughItSaidNothing) {
  const std::string port = FreePort();
  const auto first = StartPod(0, 1, port, {"--steps=1000000"});
  ASSERT_TRUE(first->Prints("step 2/")) << first->printed();
  const pid_t rank = RankProcessOf(first->pid(), 0);
  ASSERT_GT(rank, 0);
  kill(rank, SIGILL);
  ExpectEnd(*first, CauseId::kProgramCrash, "killed by signal 4", "0");
}

}  // namespace
}  // namespace muster::worker
