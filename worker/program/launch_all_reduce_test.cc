// `muster-worker launch` in a pod whose GPUs, driver and NCCL are made up: what it finds before it
// starts anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "worker/program/test_job.h"

namespace muster::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

class LaunchAllReduce : public testing::Test {
 protected:
  // A pod of two GPUs, with these variables on top. /dev/shm of a container that runs tests may be
  // small, which fails a pod that is said to have several.
  Pod Start(const Flags& flags, const Environment& more = {},
            const std::string& nccl = MUSTER_MADE_UP_NCCL) const {
    Environment environment = more;
    environment.merge(
        Environment{{"CUDA_VISIBLE_DEVICES", "0,1"},
                    {"LD_LIBRARY_PATH", MUSTER_MADE_UP_DRIVER ":" MUSTER_MADE_UP_CUDA ":" + nccl},
                    // No Python's libraries.
                    {"PATH", "/bin"},
                    {"HOME", "/none"}});
    environment.merge(PodEnvironment(0, 1, FreePort(), 2));
    return Pod(Flags{MUSTER_WORKER, "launch", "--termination-log=" + termination_, "--gpus=1",
                     "--all-reduce-time=20ms"} +
                   flags + Flags{"--", "/bin/sh", "-c", "echo started"},
               environment);
  }
  Ran Launch(const Environment& environment, const Flags& flags = {},
             const std::string& nccl = MUSTER_MADE_UP_NCCL) const {
    Pod pod = Start(flags, environment, nccl);
    const int exit_code = pod.ExitCode();
    return {exit_code, pod.printed()};
  }
  nlohmann::json Termination() const { return TerminationOf(termination_); }
  void ExpectEnd(const Ran& ran, const std::string& cause, const std::string& detail) const {
    EXPECT_THAT(ran.printed,
                AllOf(Not(HasSubstr("started\n")), HasSubstr("failed   all-reduce result      ")));
    ASSERT_TRUE(Termination().is_object()) << ran.printed;
    EXPECT_EQ(Termination()["cause"], cause);
    EXPECT_EQ(Termination()["exitCode"], ran.exit_code);
    EXPECT_THAT(Termination()["detail"].get<std::string>(), HasSubstr(detail));
  }

  const TestDirectory directory_;
  const std::string termination_ = MakeTerminationLog(directory_, "0");
};

TEST_F(LaunchAllReduce, OneThatIsRightIsToldAndTheProgramStarts) {
  const Ran ran = Launch({}, {"--node-bandwidth=0.001"});
  EXPECT_EQ(ran.exit_code, 0) << ran.printed;
  EXPECT_THAT(ran.printed,
              AllOf(HasSubstr("ok       all-reduce result      exact on 2 ranks of 1 node; NCCL "
                              "2.28.9 of " MUSTER_MADE_UP_NCCL "/libnccl.so.2\n"),
                    HasSubstr("ok       all-reduce in nodes    node 0 ("),
                    HasSubstr("[rank 1] started\n")));
}

TEST_F(LaunchAllReduce, PythonsOwnNcclGoesBeforeTheLinkers) {
  const std::string library = directory_ / "lib/python3.12/site-packages/nvidia/nccl/lib";
  std::filesystem::create_directories(library);
  std::filesystem::create_symlink(MUSTER_MADE_UP_NCCL "/libnccl.so.2", library + "/libnccl.so.2");
  const Ran ran = Launch({{"VIRTUAL_ENV", directory_ / ""}}, {}, MUSTER_MADE_UP_OLD_NCCL);
  EXPECT_EQ(ran.exit_code, 0) << ran.printed;
  EXPECT_THAT(ran.printed, HasSubstr(" of " + library + "/libnccl.so.2"));
}

TEST_F(LaunchAllReduce, WrongSumsAndSlowLinksAreTheNodesFault) {
  ExpectEnd(Launch({{"MADE_UP_NCCL", "wrong"}}), "all-reduce-wrong", "GPU 1 (0000:20:00.0)");
  EXPECT_EQ(Termination()["rank"], 1);
  const Ran ran = Launch({}, {"--instance-type=p5.48xlarge"});
  EXPECT_GE(ran.exit_code, 128);
  EXPECT_THAT(ran.printed, AllOf(Not(HasSubstr("started\n")), HasSubstr("is expected of p5.48xl")));
  EXPECT_EQ(Termination()["cause"], "gpu-links-slow");
}

TEST_F(LaunchAllReduce, ThatNcclDoesNotStartIsToldInItsWords) {
  ExpectEnd(Launch({{"MADE_UP_NCCL", "error"}}), "gpu-fabric-down", "system not yet initialized");
  ExpectEnd(Launch({}, {}, MUSTER_MADE_UP_OLD_NCCL), "library-mismatch", "has no ncclCommInitAll");
}

TEST_F(LaunchAllReduce, OneThatHangsEndsAtItsDeadline) {
  const absl::Time begin = absl::Now();
  ExpectEnd(Launch({{"MADE_UP_NCCL", "hang"}}, {"--all-reduce-timeout=1s"}), "process-hung",
            "no end within 1s in ncclCommInitAll");
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
}

TEST_F(LaunchAllReduce, ACrashIsNotTheLaunchers) {
  ExpectEnd(Launch({{"MADE_UP_NCCL", "crash"}}), "program-crash",
            "the process that tried it ended ");
}

TEST_F(LaunchAllReduce, AGpuThatFailsWhileOthersWaitForItIsNamed) {
  ExpectEnd(Launch({{"MADE_UP_CUDA", "ecc"}}), "gpu-fault",
            "GPU 1 (0000:20:00.0): after ncclAllReduce: uncorrectable ECC error");
  EXPECT_EQ(Termination()["rank"], 1);
}

TEST_F(LaunchAllReduce, APodThatIsStoppedMeanwhileEndsAtOnce) {
  Pod pod = Start({}, {{"MADE_UP_NCCL", "hang"}});
  ASSERT_TRUE(pod.Prints("NCCL version 2.28.9+made-up"));
  pod.Signal(SIGTERM);
  EXPECT_EQ(pod.ExitCode(), 143);
  EXPECT_EQ(Termination()["cause"], "terminated");
}

TEST_F(LaunchAllReduce, IsLeftOutWithoutGpusWithoutNcclAndByItsSetting) {
  const Environment broken = {{"MADE_UP_NCCL", "error"}};
  for (const Ran& ran : {Launch(broken, {"--all-reduce=false"}),
                         Launch({{"MADE_UP_NCCL", "error"}, {"CUDA_VISIBLE_DEVICES", ""}})}) {
    EXPECT_EQ(ran.exit_code, 0) << ran.printed;
    EXPECT_THAT(ran.printed, Not(HasSubstr("all-reduce")));
  }
  const Ran without = Launch(broken, {}, "/none");
  EXPECT_EQ(without.exit_code, 0) << without.printed;
  EXPECT_THAT(without.printed,
              HasSubstr("ok       all-reduce result      not tried: libnccl.so.2: cannot open"));
}

TEST_F(LaunchAllReduce, BandwidthsThatMakeNoSenseAreRefused) {
  std::ofstream(directory_ / "bandwidths") << "p5.48xlarge eight\n";
  const Ran ran = Launch({}, {"--bandwidths=" + directory_ / "bandwidths"});
  EXPECT_EQ(ran.exit_code, 78);
  EXPECT_THAT(Termination()["detail"].get<std::string>(), HasSubstr("line 1"));
}

// What NVML says of rows that broke.
TEST_F(LaunchAllReduce, AGpuWhoseRowsWaitForItsResetOrCanNotBeRemappedEndsThePod) {
  for (const auto& [state, words] :
       {std::pair{"pending", "a broken row is remapped only once the GPU is reset"},
        std::pair{"failed", "row remapping failed"}}) {
    const Ran ran = Launch({{"MADE_UP_REMAPPING", state}});
    EXPECT_THAT(ran.printed, AllOf(HasSubstr("failed   GPU health"), Not(HasSubstr("started\n")),
                                   Not(HasSubstr("all-reduce"))));
    EXPECT_EQ(Termination()["cause"], "gpu-fault");
    EXPECT_THAT(Termination()["detail"].get<std::string>(),
                AllOf(HasSubstr("GPU 1 (GPU-"), HasSubstr(words)));
  }
}

// A machine without EFA, of which a pod is told that it has some.
TEST_F(LaunchAllReduce, EfaThatIsNotThereEndsThePod) {
  const Ran ran = Launch({}, {"--efa-devices=4"});
  EXPECT_LT(ran.exit_code, 128);
  EXPECT_THAT(ran.printed,
              AllOf(HasSubstr("failed   EFA devices            0 on the node, 0 in "
                              "this container, 4 expected"),
                    HasSubstr("failed   NCCL network plugin"), Not(HasSubstr("started\n"))));
  EXPECT_EQ(Termination()["exitCode"], ran.exit_code);
}

TEST_F(LaunchAllReduce, TheTrialIsACommandOfItsOwn) {
  const std::string path = MUSTER_MADE_UP_CUDA ":" MUSTER_MADE_UP_NCCL;
  const auto run = [&](const Flags& flags, const std::string& how) {
    return RunWorker(Flags{"all-reduce"} + flags,
                     {{"LD_LIBRARY_PATH", path}, {"MADE_UP_NCCL", how}});
  };
  EXPECT_EQ(run({"--time=20ms"}, "").exit_code, 0);
  EXPECT_THAT(run({"--time=20ms"}, "").printed, HasSubstr("\"version\": \"2.28.9\""));
  EXPECT_GE(run({"--time=20ms"}, "wrong").exit_code, 128);
  EXPECT_EQ(run({"--library=libnccl-none.so"}, "").exit_code, 0);
  EXPECT_EQ(run({"--libary=x"}, "").exit_code, 2);
  EXPECT_EQ(run({"--time=long"}, "").exit_code, 2);
}

}  // namespace
}  // namespace muster::worker
