// Pods as processes of this very program: with "work" as its first argument it is one.
#include "worker/program/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <iostream>
#include <memory>
#include <utility>

#include "worker/program/stop_signal.h"
#include "worker/program/test_pod.h"

namespace muster::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Steps until any rank is told to stop. Rank 1 of a job with CRASH set fails at its third.
absl::Status Step(Communicator& communicator) {
  std::cout << "generation " << communicator.generation() << " " << getenv("NCCL_DEBUG")
            << std::endl;
  for (int step = 1;; ++step) {
    if (getenv("CRASH") != nullptr && communicator.rank() == 1 && step == 3) {
      return absl::FailedPreconditionError("the loss is not a number");
    }
    const auto stop = AgreeOnAny(communicator, StopRequested(), absl::Minutes(1));
    if (!stop.ok()) return stop.status();
    if (*stop) {
      std::cout << "saved" << std::endl;
      return absl::CancelledError("stopped at a step boundary");
    }
  }
}

// This program as a pod of a job that steps.
class SteppingPod : public Pod {
 public:
  explicit SteppingPod(Environment environment, const std::vector<std::string>& flags = {})
      : Pod(Words(flags), Extended(std::move(environment))) {}

 private:
  static std::vector<std::string> Words(const std::vector<std::string>& flags) {
    std::vector<std::string> words = {"/proc/self/exe", "work"};
    words.insert(words.end(), flags.begin(), flags.end());
    return words;
  }
  static Environment Extended(Environment environment) {
    environment["NCCL_DEBUG"] = "INFO";
    return environment;
  }
};

TEST(Job, SigtermOfOnePodStopsAllRanksAtOneStepWith143) {
  const std::string port = FreePort();
  SteppingPod first(PodEnvironment(0, 2, port));
  SteppingPod second(PodEnvironment(1, 2, port));
  ASSERT_TRUE(second.Prints("[rank 3] generation 1 INFO")) << second.printed();
  second.Signal(SIGTERM);
  EXPECT_EQ(second.ExitCode(), 143) << second.printed();
  EXPECT_EQ(first.ExitCode(), 143) << first.printed();
  EXPECT_THAT(first.printed(), HasSubstr("[rank 0] saved"));
  EXPECT_THAT(first.printed(), HasSubstr("[rank 1] saved"));
  EXPECT_THAT(second.printed(), HasSubstr("[rank 3] saved"));
  EXPECT_THAT(second.printed(),
              HasSubstr("PyTorchJob: node 1 of 2, ranks 2 to 3 of 4, rendezvous at 127.0.0.1:"));
}

TEST(Job, OneRanksFailureIsEveryonesAndReportedOnceAPod) {
  const std::string port = FreePort();
  Environment environment = PodEnvironment(0, 2, port);
  environment["CRASH"] = "1";
  SteppingPod first(environment);
  environment = PodEnvironment(1, 2, port);
  environment["CRASH"] = "1";
  SteppingPod second(environment);
  EXPECT_EQ(first.ExitCode(), 78) << first.printed();
  EXPECT_EQ(second.ExitCode(), 78) << second.printed();
  EXPECT_THAT(second.printed(), HasSubstr("the loss is not a number"));
  EXPECT_THAT(first.printed(), HasSubstr(" exited with code 78 before any other rank"));
}

TEST(Job, APodThatDiesIsReplacedAndTheOthersGoOn) {
  const std::string port = FreePort();
  SteppingPod first(PodEnvironment(0, 2, port));
  auto second = std::make_unique<SteppingPod>(PodEnvironment(1, 2, port));
  ASSERT_TRUE(first.Prints("[rank 1] generation 1")) << first.printed();
  ASSERT_TRUE(second->Prints("[rank 2] generation 1")) << second->printed();
  second = std::make_unique<SteppingPod>(PodEnvironment(1, 2, port));
  EXPECT_TRUE(first.Prints("[rank 0] generation 2")) << first.printed();
  EXPECT_TRUE(second->Prints("[rank 3] generation 2")) << second->printed();
  first.Signal(SIGTERM);
  EXPECT_EQ(first.ExitCode(), 143);
  EXPECT_EQ(second->ExitCode(), 143);
}

TEST(Job, SigtermWhileOthersAreMissingEndsTheWaiting) {
  SteppingPod alone(PodEnvironment(0, 2, FreePort()), {"--heartbeat-interval=50ms"});
  ASSERT_TRUE(alone.Prints("rendezvous at")) << alone.printed();
  alone.Signal(SIGTERM);
  EXPECT_EQ(alone.ExitCode(), 143) << alone.printed();
}

TEST(Job, MissingRanksAreNamedAndWorthARetry) {
  SteppingPod alone(PodEnvironment(0, 2, FreePort()), {"--meet-timeout=1500ms"});
  EXPECT_EQ(alone.ExitCode(), 138);
  EXPECT_THAT(alone.printed(), HasSubstr("2 of 4 ranks came in time; missing: ranks 2 and 3"));
}

TEST(Job, AnEnvironmentThatMakesNoSenseIsAConfigurationError) {
  SteppingPod pod({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}});
  EXPECT_EQ(pod.ExitCode(), 78);
  EXPECT_THAT(pod.printed(), HasSubstr("node rank 2 doesn't exist among 2 nodes"));
  EXPECT_THAT(pod.printed(), Not(HasSubstr("[rank")));
}

TEST(Job, ASilenceLimitBelowTwoHeartbeatsIsRefused) {
  JobConfig config;
  config.heartbeat.silence_limit = absl::Seconds(1);
  EXPECT_TRUE(absl::IsInvalidArgument(Validate(config)));
  EXPECT_TRUE(Validate(JobConfig()).ok());
}

int Work(const std::vector<std::string>& arguments) {
  JobConfig config;
  Settings settings;
  AddJobSettings(settings, config);
  const auto line = settings.ReadCommandLine(arguments);
  if (!line.ok()) std::cerr << line.status() << std::endl;
  return line.ok() ? RunJob({.config = config,
                             .arguments = arguments,
                             .versions = nullptr,
                             .check_node = nullptr,
                             .body = Step})
                   : 2;
}

}  // namespace
}  // namespace muster::worker

int main(int argc, char** argv) {
  if (argc > 1 && argv[1] == std::string("work")) {
    return muster::worker::Work({argv + 1, argv + argc});
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
