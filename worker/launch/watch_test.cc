// Pods of real processes, shells and Pythons, that stop getting anywhere.
#include "worker/launch/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "worker/checkpoint/test_directory.h"

namespace muster::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class WatchTest : public ::testing::Test {
 protected:
  // Supervises one rank per command, with a watch that has little patience.
  void Run(const std::vector<std::vector<std::string>>& commands, WatchOptions options = {}) {
    options.pace = {.least = absl::Seconds(3), .at_first = absl::Seconds(3)};
    options.world_size = static_cast<int>(commands.size());
    options.say = [this](const std::string& text) { absl::StrAppend(&said_, text, "\n"); };
    std::vector<RankProcess> processes;
    for (size_t rank = 0; rank < commands.size(); ++rank) {
      processes.push_back({.rank = static_cast<int>(rank),
                           .command = commands[rank],
                           .environment = {{"PYTHONFAULTHANDLER", "1"},
                                           {"WORLD_SIZE", absl::StrCat(commands.size())}}});
    }
    watch_.emplace(options);
    const auto result = Supervise(
        processes,
        {.grace = absl::Seconds(1),
         .write_line = [this](absl::string_view line, bool) { absl::StrAppend(&printed_, line); },
         .on_line = [this](int rank, absl::string_view line,
                           bool /*is_error*/) { watch_->Read(rank, line); },
         .look = [this](auto running) { return watch_->Look(running); }});
    ASSERT_TRUE(result.ok()) << result.status();
    result_ = *result;
  }
  static std::vector<std::string> Shell(const std::string& script) { return {"sh", "-c", script}; }

  std::optional<RankWatch> watch_;
  SupervisorResult result_;
  std::string said_;
  std::string printed_;
};

TEST_F(WatchTest, AStoppedRankEndsThePodAndIsNamed) {
  Run({Shell("exec sleep 60"), Shell("kill -STOP $$"), Shell("exec sleep 60")});
  EXPECT_TRUE(result_.ended_by_look);
  EXPECT_FALSE(result_.first_failure.has_value());
  ASSERT_TRUE(watch_->standstill().has_value());
  EXPECT_EQ(watch_->standstill()->rank, 1);
  EXPECT_THAT(watch_->standstill()->detail,
              AllOf(HasSubstr("was stopped by a signal"), HasSubstr("nobody did anything for ")));
  EXPECT_THAT(said_, HasSubstr("no rank of this pod has done anything for "));
}

TEST_F(WatchTest, PythonsSayWhereTheyWere) {
  const TestDirectory directory;
  const std::string program = directory / "train.py";
  std::ofstream(program) << "import sys, threading, time\n"
                            "def load():\n"
                            "    time.sleep(60)\n"
                            "def wait():\n"
                            "    threading.Event().wait()\n"
                            "load() if sys.argv[1] == '2' else wait()\n";
  std::vector<std::vector<std::string>> commands;
  for (int rank = 0; rank < 4; ++rank) {
    commands.push_back({"python3", program, absl::StrCat(rank)});
  }
  Run(commands);
  ASSERT_TRUE(watch_->standstill().has_value());
  EXPECT_EQ(watch_->standstill()->rank, 2);
  EXPECT_THAT(watch_->standstill()->detail,
              HasSubstr("rank 2 is at train.py:3 (load) while the 3 others wait at "
                        "train.py:5 (wait)"));
}

TEST_F(WatchTest, RanksOfALauncherBelowAreFoundAndTakenOneByOne) {
  const TestDirectory directory;
  const std::string program = directory / "train.py";
  std::ofstream(program) << "import os, threading, time\n"
                            "def load():\n"
                            "    time.sleep(60)\n"
                            "def wait():\n"
                            "    threading.Event().wait()\n"
                            "load() if os.environ['RANK'] == '6' else wait()\n";
  Run({Shell(absl::StrCat("for rank in 4 5 6 7; do LOCAL_RANK=$((rank - 4)) RANK=$rank setsid "
                          "python3 ",
                          program, " & done; wait"))},
      {.starts_ranks = false});
  ASSERT_TRUE(watch_->standstill().has_value());
  EXPECT_EQ(watch_->standstill()->rank, 6);
  EXPECT_THAT(watch_->standstill()->detail, HasSubstr("the 3 others wait at train.py:5 (wait)"));
  EXPECT_TRUE(ProcessesBelow(getpid()).empty()) << "ranks in sessions of their own are left";
}

TEST_F(WatchTest, AJobInWhichSomebodyWorksIsLeftAlone) {
  Run({Shell("end=$(($(date +%s) + 8)); while [ $(date +%s) -lt $end ]; do :; done"),
       Shell("exec sleep 8")});
  EXPECT_FALSE(result_.ended_by_look);
  EXPECT_EQ(result_.exit_code, 0);
  EXPECT_FALSE(watch_->standstill().has_value());
}

TEST_F(WatchTest, WhereItIsOnlyToBeToldNobodyIsEnded) {
  Run({Shell("exec sleep 8"), Shell("exec sleep 8")}, {.end_standstill = false});
  EXPECT_FALSE(result_.ended_by_look);
  EXPECT_EQ(result_.exit_code, 0);
  EXPECT_THAT(said_, AllOf(HasSubstr("no rank of this pod has done anything"),
                           HasSubstr("all ranks of this pod wait alike")));
}

TEST_F(WatchTest, ARankWhoseCommandLineSaysAnotherNumberOfRanksIsNamed) {
  Run({{"sleep", "60"}, {"env", "WORLD_SIZE=9", "sleep", "60"}});
  EXPECT_TRUE(result_.ended_by_look);
  ASSERT_TRUE(watch_->mismatch().has_value());
  EXPECT_EQ(watch_->mismatch()->rank, 1);
  EXPECT_THAT(watch_->mismatch()->detail, HasSubstr("WORLD_SIZE=9"));
}

}  // namespace
}  // namespace muster::worker
