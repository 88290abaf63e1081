// Pods as processes of this very program: with "work" as its first argument it is one.
#include "worker/program/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <iostream>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/communicator/tcp_socket.h"
#include "worker/program/stop_signal.h"

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

// One pod; its output as it comes.
class Pod {
 public:
  explicit Pod(const Environment& environment, const std::vector<std::string>& flags = {}) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      close(ends[0]);
      close(ends[1]);
      setenv("NCCL_DEBUG", "INFO", 1);
      for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
      std::vector<std::string> words = {"/proc/self/exe", "work"};
      words.insert(words.end(), flags.begin(), flags.end());
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    close(ends[1]);
    output_ = Socket(ends[0]);
  }

  ~Pod() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  void Signal(int signal) const { kill(pid_, signal); }

  bool Prints(const std::string& text) {
    const Deadline deadline = DeadlineAfter(absl::Seconds(30));
    while (!absl::StrContains(printed_, text)) {
      if (!WaitFor(output_, POLLIN, deadline) || !Read()) return false;
    }
    return true;
  }

  int ExitCode() {
    while (Read()) continue;
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  const std::string& printed() const { return printed_; }

 private:
  bool Read() {
    std::array<char, 4096> buffer;
    const ssize_t size = read(output_.fd(), buffer.data(), buffer.size());
    if (size > 0) printed_.append(buffer.data(), static_cast<size_t>(size));
    return size > 0;
  }

  pid_t pid_ = 0;
  Socket output_;
  std::string printed_;
};

std::string FreePort() {
  uint16_t port = 10'000 + getpid() % 10'000;
  while (!Listen(port).ok()) ++port;
  return absl::StrCat(port);
}

// As PyTorchJob gives it to pods of two processes each.
Environment PodEnvironment(int pod, int pods, const std::string& port) {
  return {{"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", port},
          {"WORLD_SIZE", absl::StrCat(2 * pods)},
          {"RANK", absl::StrCat(pod)},
          {"PET_NNODES", absl::StrCat(pods)},
          {"PET_NODE_RANK", absl::StrCat(pod)},
          {"PET_NPROC_PER_NODE", "2"},
          {"CUDA_VISIBLE_DEVICES", ""}};
}

TEST(Job, SigtermOfOnePodStopsAllRanksAtOneStepWith143) {
  const std::string port = FreePort();
  Pod first(PodEnvironment(0, 2, port));
  Pod second(PodEnvironment(1, 2, port));
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
  Pod first(environment);
  environment = PodEnvironment(1, 2, port);
  environment["CRASH"] = "1";
  Pod second(environment);
  EXPECT_EQ(first.ExitCode(), 2) << first.printed();
  EXPECT_EQ(second.ExitCode(), 2) << second.printed();
  EXPECT_THAT(second.printed(), HasSubstr("the loss is not a number"));
  EXPECT_THAT(first.printed(), HasSubstr(" exited with code 2 before any other rank"));
}

TEST(Job, APodThatDiesIsReplacedAndTheOthersGoOn) {
  const std::string port = FreePort();
  Pod first(PodEnvironment(0, 2, port));
  auto second = std::make_unique<Pod>(PodEnvironment(1, 2, port));
  ASSERT_TRUE(first.Prints("[rank 1] generation 1")) << first.printed();
  ASSERT_TRUE(second->Prints("[rank 2] generation 1")) << second->printed();
  second = std::make_unique<Pod>(PodEnvironment(1, 2, port));
  EXPECT_TRUE(first.Prints("[rank 0] generation 2")) << first.printed();
  EXPECT_TRUE(second->Prints("[rank 3] generation 2")) << second->printed();
  first.Signal(SIGTERM);
  EXPECT_EQ(first.ExitCode(), 143);
  EXPECT_EQ(second->ExitCode(), 143);
}

TEST(Job, SigtermWhileOthersAreMissingEndsTheWaiting) {
  Pod alone(PodEnvironment(0, 2, FreePort()), {"--heartbeat-interval=50ms"});
  ASSERT_TRUE(alone.Prints("rendezvous at")) << alone.printed();
  alone.Signal(SIGTERM);
  EXPECT_EQ(alone.ExitCode(), 143) << alone.printed();
}

TEST(Job, MissingRanksAreNamedAndWorthARetry) {
  Pod alone(PodEnvironment(0, 2, FreePort()), {"--meet-timeout=1500ms"});
  EXPECT_EQ(alone.ExitCode(), 138);
  EXPECT_THAT(alone.printed(), HasSubstr("2 of 4 ranks came in time; missing: ranks 2 and 3"));
}

TEST(Job, AnEnvironmentThatMakesNoSenseIsAConfigurationError) {
  Pod pod({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}});
  EXPECT_EQ(pod.ExitCode(), 2);
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
  return line.ok() ? RunJob(config, arguments, {}, Step) : 2;
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
