// `muster-worker launch` around shells: what a user's program gets, and how its end is told.
#include "worker/program/launch_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/time/clock.h"
#include "worker/program/test_job.h"

namespace muster::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class LaunchCommand : public testing::Test {
 protected:
  std::vector<std::string> Words(const std::string& script, const Flags& flags = {}) const {
    return Flags{MUSTER_WORKER, "launch", "--termination-log=" + termination_, "--grace=2s"} +
           flags + Flags{"--", "sh", "-c", script};
  }
  Ran Launch(const std::string& script, const Flags& flags = {}, Environment environment = {}) {
    environment.merge(PodEnvironment(0, 1, FreePort(), 4));
    Pod pod(Words(script, flags), environment);
    const int exit_code = pod.ExitCode();
    return {exit_code, pod.printed()};
  }
  nlohmann::json Termination() const { return TerminationOf(termination_); }

  const TestDirectory directory_;
  const std::string termination_ = MakeTerminationLog(directory_, "0");
};

TEST_F(LaunchCommand, EachRankIsToldWhoItIs) {
  const Ran ran = Launch("echo $RANK of $WORLD_SIZE here $LOCAL_RANK at $MASTER_ADDR");
  EXPECT_EQ(ran.exit_code, 0) << ran.printed;
  for (const char* rank : {"0", "1", "2", "3"}) {
    EXPECT_THAT(ran.printed, HasSubstr(absl::StrCat("[rank ", rank, "] ", rank, " of 4 here ", rank,
                                                    " at 127.0.0.1\n")));
  }
  EXPECT_EQ(Contents(termination_), "");
}

TEST_F(LaunchCommand, ALauncherIsStartedOnceAndItsOutputIsItsOwn) {
  const std::string torchrun = directory_ / "torchrun";
  std::ofstream(torchrun)
      << "#!/bin/sh\necho $PET_NNODES x $PET_NPROC_PER_NODE $1\necho done >&2\n";
  chmod(torchrun.c_str(), 0755);
  Pod pod({MUSTER_WORKER, "launch", "--", torchrun, "train.py"},
          PodEnvironment(0, 1, FreePort(), 4));
  EXPECT_EQ(pod.ExitCode(), 0);
  EXPECT_THAT(pod.printed(), AllOf(HasSubstr("\n1 x 4 train.py\n"), Not(HasSubstr("[rank 0]"))));
}

TEST_F(LaunchCommand, LaunchersAreKnownByTheirNames) {
  for (const auto& command : std::vector<std::vector<std::string>>{
           {"torchrun", "train.py"},
           {"/opt/conda/bin/accelerate", "launch", "train.py"},
           {"python", "-u", "-m", "torch.distributed.run", "train.py"},
           {"python3", "/usr/local/bin/deepspeed", "train.py"}}) {
    EXPECT_TRUE(IsLauncher(command)) << command[0] << " " << command[1];
  }
  for (const auto& command : std::vector<std::vector<std::string>>{
           {"python", "train.py", "torchrun"}, {"python", "-m", "train"}, {"./train"}}) {
    EXPECT_FALSE(IsLauncher(command)) << command[0];
  }
}

TEST_F(LaunchCommand, TheRankThatFailedFirstIsInTheTerminationMessage) {
  const Ran ran =
      Launch("test $RANK != 2 || { echo 'No space left on device' >&2; exit 1; }; sleep 60");
  EXPECT_EQ(Termination()["cause"], "disk-full");
  EXPECT_EQ(Termination()["rank"], 2);
  EXPECT_EQ(Termination()["exitCode"], ran.exit_code);
  EXPECT_THAT(ran.printed, HasSubstr("muster-worker: rank 2 on "));
}

TEST_F(LaunchCommand, AKilledRankIsWorthAnotherStart) {
  EXPECT_EQ(Launch("test $RANK != 1 || kill -KILL $$; sleep 60").exit_code, 137);
  EXPECT_EQ(Termination()["cause"], "killed");
  EXPECT_EQ(Termination()["rank"], 1);
}

TEST_F(LaunchCommand, AStoppedPodEndsInOrderAndTheMessageIsThereAtOnce) {
  Pod pod(Words("trap 'sleep 1; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done"),
          PodEnvironment(0, 1, FreePort(), 1));
  ASSERT_TRUE(pod.Prints("ready"));
  pod.Signal(SIGTERM);
  absl::SleepFor(absl::Milliseconds(500));
  EXPECT_EQ(Termination()["cause"], "terminated");
  EXPECT_EQ(pod.ExitCode(), 143);
  EXPECT_THAT(pod.printed(), HasSubstr("saved"));
}

TEST_F(LaunchCommand, ANameThatNobodyKnowsIsWaitedForAndThenNamed) {
  const Ran ran =
      Launch("echo started", {"--resolve-timeout=1s"}, {{"MASTER_ADDR", "no-such-pod.invalid"}});
  EXPECT_GE(ran.exit_code, 128) << ran.printed;
  EXPECT_THAT(ran.printed, Not(HasSubstr("started")));
  EXPECT_EQ(Termination()["cause"], "name-not-found");
  EXPECT_THAT(Termination()["detail"].get<std::string>(), HasSubstr("no-such-pod.invalid"));
}

TEST_F(LaunchCommand, AnEnvironmentThatMakesNoSenseIsRefusedWithItsVariable) {
  const Ran ran = Launch("echo started", {}, {{"PET_NODE_RANK", "7"}, {"RANK", "7"}});
  EXPECT_EQ(ran.exit_code, 78);
  EXPECT_THAT(ran.printed, Not(HasSubstr("started\n")));
  EXPECT_THAT(Termination()["detail"].get<std::string>(), HasSubstr("node rank 7"));
}

TEST_F(LaunchCommand, AGpuThatIsNotThereIsSaidBeforeAnythingStarts) {
  const Ran ran = Launch("echo started", {"--gpus=8"});
  EXPECT_GE(ran.exit_code, 128);
  EXPECT_THAT(ran.printed, Not(HasSubstr("started\n")));
  EXPECT_EQ(Termination()["cause"], "driver-missing");
  EXPECT_EQ(Launch("echo started", {"--gpus=8", "--preflight=false"}).exit_code, 0);
}

TEST_F(LaunchCommand, AProgramThatIsNotThereIsNamed) {
  Pod pod({MUSTER_WORKER, "launch", "--", "/no/such/program"}, {});
  EXPECT_EQ(pod.ExitCode(), 78);
  EXPECT_THAT(pod.printed(), HasSubstr("/no/such/program can't be started"));
}

TEST_F(LaunchCommand, ACommandLineThatMakesNoSenseIsTwo) {
  EXPECT_EQ(RunWorker({"launch"}).exit_code, 2);
  EXPECT_EQ(RunWorker({"launch", "--"}).exit_code, 2);
  EXPECT_EQ(RunWorker({"launch", "python", "train.py"}).exit_code, 2);
  EXPECT_THAT(RunWorker({"launch", "--standstil=end", "--", "true"}).printed,
              HasSubstr("did you mean standstill?"));
  EXPECT_EQ(RunWorker({"launch", "--standstill=never", "--", "true"}).exit_code, 78);
  EXPECT_THAT(RunWorker({"launch", "--help"}).printed, HasSubstr("--standstill-after"));
}

#ifndef MUSTER_SANITIZED
// A library of Debian's that it needs isn't in another image, and a version of glibc's symbols that
// it needs isn't in an older one. 2.34: Ubuntu 22.04 has 2.35, Amazon Linux 2023 and UBI 9
// have 2.34.
TEST_F(LaunchCommand, TheProgramIsOneFileForAnyImageWithGlibc) {
  Pod ldd({"ldd", MUSTER_WORKER}, {});
  EXPECT_EQ(ldd.ExitCode(), 0);
  const std::vector<std::string> lines =
      absl::StrSplit(ldd.printed(), '\n', absl::SkipWhitespace());
  for (const std::string& line : lines) {
    EXPECT_THAT(line, testing::ContainsRegex("linux-vdso|ld-linux|lib(c|m)\\.so"));
  }
  const std::string program = Contents(MUSTER_WORKER);
  constexpr std::string_view kVersion = "GLIBC_2.";
  int newest = 0;
  for (size_t at = program.find(kVersion); at != std::string::npos;
       at = program.find(kVersion, at + 1)) {
    int minor = 0;
    const size_t begin = at + kVersion.size();
    const size_t end = program.find_first_not_of("0123456789", begin);
    if (absl::SimpleAtoi(program.substr(begin, end - begin), &minor))
      newest = std::max(newest, minor);
  }
  EXPECT_GT(newest, 0);
  EXPECT_LE(newest, 34) << "readelf -V tells which symbols are of a newer glibc";
}
#endif

}  // namespace
}  // namespace muster::worker
