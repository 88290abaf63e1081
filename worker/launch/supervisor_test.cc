// Ranks are shells here: what counts is how they end.
#include "worker/launch/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace muster::worker {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class SupervisorTest : public ::testing::Test {
 protected:
  // One rank per script.
  absl::StatusOr<SupervisorResult> Run(const std::vector<std::string>& scripts) {
    std::vector<RankProcess> processes;
    for (size_t rank = 0; rank < scripts.size(); ++rank) {
      processes.push_back({.rank = static_cast<int>(rank),
                           .command = {"sh", "-c", scripts[rank]},
                           .environment = {{"RANK", absl::StrCat(rank)}}});
    }
    return Supervise(processes, options_);
  }

  // Sends this process a signal once every rank has printed "ready".
  void SignalWhenReady(int ranks, int signal) {
    options_.write_line = [this, ranks, signal](absl::string_view line, bool is_error) {
      Write(line, is_error);
      if (absl::EndsWith(line, "ready\n") && ++ready_ == ranks) kill(getpid(), signal);
    };
  }

  void Write(absl::string_view line, bool is_error) {
    (is_error ? errors_ : lines_).emplace_back(line);
  }

  int ready_ = 0;
  std::vector<std::string> lines_;
  std::vector<std::string> errors_;
  SupervisorOptions options_ = {
      .grace = absl::Milliseconds(500),
      .write_line = [this](absl::string_view line, bool is_error) { Write(line, is_error); }};
};

TEST_F(SupervisorTest, LinesCarryTheirRankAndNothingIsLost) {
  const auto result = Run({"echo one; echo wrong >&2; printf 'no end'", "echo rank $RANK"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0);
  EXPECT_FALSE(result->first_failure.has_value());
  EXPECT_THAT(lines_,
              UnorderedElementsAre("[rank 0] one\n", "[rank 0] no end\n", "[rank 1] rank 1\n"));
  EXPECT_THAT(errors_, ElementsAre("[rank 0] wrong\n"));
}

TEST_F(SupervisorTest, TheFirstFailureEndsTheOthersAndIsReportedOnce) {
  const absl::Time start = absl::Now();
  const auto result = Run({"exec sleep 60", "exit 7", "exec sleep 60"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  EXPECT_EQ(result->exit_code, 7);
  ASSERT_TRUE(result->first_failure.has_value());
  EXPECT_EQ(result->first_failure->rank, 1);
  EXPECT_EQ(result->first_failure->how, "exited with code 7");
}

TEST_F(SupervisorTest, ADeathBySignalIs128AndTheSignal) {
  const auto result = Run({"kill -9 $$"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 137);
  EXPECT_EQ(result->first_failure->how, "was killed by signal 9 (Killed)");
}

TEST_F(SupervisorTest, ARankThatIgnoresSigtermIsKilledAfterTheGrace) {
  const auto result = Run({"trap '' TERM; while true; do sleep 0.1; done", "sleep 0.2; exit 1"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 1);
  EXPECT_EQ(result->first_failure->rank, 1);
}

TEST_F(SupervisorTest, SignalsReachEveryRankAndSigtermIsNoFailure) {
  SignalWhenReady(2, SIGTERM);
  const std::string script =
      "trap 'echo saved; exit 143' TERM; echo ready; while true; do sleep 0.05; done";
  const auto result = Run({script, script});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 143);
  EXPECT_FALSE(result->first_failure.has_value());
  EXPECT_THAT(lines_, Contains("[rank 0] saved\n"));
  EXPECT_THAT(lines_, Contains("[rank 1] saved\n"));
}

TEST_F(SupervisorTest, SigtermWithoutAHandlerIsTheSameEnd) {
  SignalWhenReady(1, SIGTERM);
  const auto result = Run({"echo ready; exec sleep 60"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 143);
  EXPECT_FALSE(result->first_failure.has_value());
}

TEST_F(SupervisorTest, ARankThatStoppedInOrderLeavesTheOthersTheirTime) {
  options_.grace = absl::ZeroDuration();
  const auto result = Run({"exit 143", "sleep 0.3; echo saved; exit 143"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 143);
  EXPECT_FALSE(result->first_failure.has_value());
  EXPECT_THAT(lines_, Contains("[rank 1] saved\n"));
}

TEST_F(SupervisorTest, ASignalThatEndsNobodyIsOnlyPassedOn) {
  SignalWhenReady(1, SIGUSR1);
  const auto result =
      Run({"trap 'echo told; exit 0' USR1; echo ready; while true; do sleep 0.05; done"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0);
  EXPECT_THAT(lines_, Contains("[rank 0] told\n"));
}

TEST_F(SupervisorTest, AProgramThatIsNotThereEndsTheRest) {
  const auto result = Supervise({{.rank = 0, .command = {"sleep", "60"}, .environment = {}},
                                 {.rank = 1, .command = {"/no/such"}, .environment = {}}},
                                options_);
  EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << result.status();
  EXPECT_EQ(result.status().message(),
            "rank 1: /no/such can't be started: No such file or directory");
}

// As process 1 does for its whole namespace.
TEST_F(SupervisorTest, OrphansAreReaped) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const auto result = Run({"(sleep 0.1 & sleep 0.1 & ) ; sleep 0.5"});
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "somebody's child is left";
}

// As torchrun's ranks do if torchrun is killed: they have sessions of their own.
TEST_F(SupervisorTest, WhatRanksLeaveBehindIsKilled) {
  const auto result = Run({"setsid sleep 60 & setsid sh -c 'sleep 60; true' & sleep 0.2; exit 3"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 3);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "somebody is left";
}

TEST_F(SupervisorTest, AStoppedRankIsEndedWithTheOthers) {
  options_.grace = absl::Seconds(20);
  const absl::Time start = absl::Now();
  const auto result =
      Run({"trap 'exit 9' TERM; kill -STOP $$; sleep 60 & wait", "sleep 0.3; exit 1"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_LT(absl::Now() - start, absl::Seconds(15));
  EXPECT_EQ(result->first_failure->rank, 1);
}

TEST_F(SupervisorTest, WhoLooksEndsTheRanksWithoutAFailure) {
  int looks = 0;
  options_.look = [&](absl::Span<const StartedRank> running) -> NextLook {
    EXPECT_EQ(running.size(), 2U);
    return {.verdict = ++looks < 3 ? NextLook::Verdict::kGoOn : NextLook::Verdict::kEnd,
            .after = absl::Milliseconds(20)};
  };
  const auto result = Run({"exec sleep 60", "exec sleep 60"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(looks, 3);
  EXPECT_TRUE(result->ended_by_look);
  EXPECT_FALSE(result->first_failure.has_value());
}

TEST_F(SupervisorTest, AStopIsToldOnceAndASignalAfterAFailureIsNone) {
  int stops = 0;
  options_.on_stop = [&] { ++stops; };
  SignalWhenReady(1, SIGTERM);
  EXPECT_TRUE(Run({"echo ready; exec sleep 60"})->stopped);
  EXPECT_EQ(stops, 1);
  ready_ = 0;
  SignalWhenReady(1, SIGTERM);
  EXPECT_FALSE(
      Run({"trap 'echo ready; sleep 0.2; exit 5' TERM; sleep 60 & wait", "exit 4"})->stopped);
  EXPECT_EQ(stops, 1);
}

TEST_F(SupervisorTest, SignalsThatThisProgramIgnoresAreNotIgnoredByRanks) {
  const auto before = signal(SIGPIPE, SIG_IGN);
  const auto result = Run({"kill -PIPE $$; exit 0"});
  signal(SIGPIPE, before);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 128 + SIGPIPE);
}

TEST_F(SupervisorTest, RanksDieWithTheirSupervisor) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t supervisor = fork();
  if (supervisor == 0) {
    SupervisorOptions options;
    options.write_line = [&](absl::string_view line, bool) {
      if (write(ends[1], line.data(), line.size()) < 0) _exit(1);
    };
    Supervise({{.rank = 0, .command = {"sh", "-c", "echo $$; exec sleep 60"}, .environment = {}}},
              options)
        .status()
        .IgnoreError();
    _exit(0);
  }
  close(ends[1]);
  char line[64] = {};
  ASSERT_GT(read(ends[0], line, sizeof line - 1), 0);
  const pid_t rank = std::stoi(std::string(line).substr(std::string("[rank 0] ").size()));
  kill(supervisor, SIGKILL);
  waitpid(supervisor, nullptr, 0);
  for (int i = 0; i < 200 && kill(rank, 0) == 0; ++i) absl::SleepFor(absl::Milliseconds(10));
  // Dead, and reaped unless this machine's process 1 doesn't reap.
  char state = 'Z';
  if (FILE* file = fopen(absl::StrCat("/proc/", rank, "/stat").c_str(), "r")) {
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
    fclose(file);
  }
  EXPECT_EQ(state, 'Z');
  close(ends[0]);
}

}  // namespace
}  // namespace muster::worker
