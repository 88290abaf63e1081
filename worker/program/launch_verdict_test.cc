// Ends of pods, and the failure that each is told as.
#include "worker/program/launch_verdict.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

SupervisorResult Failed(int rank, int exit_code, const std::string& how) {
  return {.exit_code = exit_code,
          .first_failure = RankFailure{.rank = rank, .exit_code = exit_code, .how = how}};
}

const SupervisorResult kKilled = Failed(3, 137, "was killed by signal 9 (Killed)");
const Failure kTold = {.cause = CauseId::kDiskFull, .detail = "No space left", .rank = 2};

struct Case {
  std::string name;
  LaunchEnd end;
  std::string cause;  // empty: all ended well
  std::optional<int> rank;
  std::string detail;
};

const Case kCases[] = {
    {.name = "AllEndedWell", .end = {}, .cause = "", .rank = {}, .detail = ""},
    {.name = "StoppedInOrder",
     .end = {.result = {.exit_code = 143, .stopped = true}},
     .cause = "terminated",
     .rank = {},
     .detail = "all ranks of this pod have ended in order"},
    {.name = "WhatAStopMakesOfARankIsNoFailureOfIts",
     .end = {.result = {.exit_code = 143,
                        .first_failure = RankFailure{2, 1, "exited with code 1"},
                        .stopped = true},
             .told = kTold},
     .cause = "terminated",
     .rank = {},
     .detail = "rank 2 then exited with code 1"},
    {.name = "ARankThatStoppedItselfInOrder",
     .end = {.result = {.exit_code = 143}},
     .cause = "terminated",
     .rank = {},
     .detail = "all ranks of this pod have ended in order"},
    {.name = "KilledAtTheContainersLimit",
     .end = {.result = kKilled,
             .memory_kill = MemoryEvents{.killed = 1, .limit_reached = 4, .limit = 1 << 30},
             .told = kTold},
     .cause = "host-out-of-memory",
     .rank = 3,
     .detail = "was killed by signal 9 (Killed); its memory limit is 1.00 GiB"},
    {.name = "KilledForTheNodesMemory",
     .end = {.result = kKilled,
             .memory_kill = MemoryEvents{.killed = 1, .limit_reached = 0, .limit = 1 << 30}},
     .cause = "host-out-of-memory",
     .rank = 3,
     .detail = "was killed by signal 9 (Killed); the node had no memory left, while this container "
               "was below its limit"},
    {.name = "ALauncherIsNoRankButMaySayWhoseMemoryItWas",
     .end = {.result = Failed(0, 1, "exited with code 1"),
             .starts_ranks = false,
             .memory_kill = MemoryEvents{.killed = 1, .limit_reached = 4, .limit = 1 << 30},
             .told = Failure{.cause = CauseId::kKilled, .rank = 5}},
     .cause = "host-out-of-memory",
     .rank = 5,
     .detail = "exited with code 1; its memory limit is 1.00 GiB"},
    {.name = "ExplainedByItsOutput",
     .end = {.result = Failed(2, 1, "exited with code 1"), .told = kTold},
     .cause = "disk-full",
     .rank = 2,
     .detail = "No space left"},
    {.name = "NobodyGotAnywhere",
     .end = {.standstill = Standstill{.rank = 4, .detail = "rank 4 sleeps"}},
     .cause = "collective-timeout",
     .rank = 4,
     .detail = "rank 4 sleeps"},
    {.name = "AnotherNumberOfRanks",
     .end = {.mismatch = Standstill{.rank = 0, .detail = "WORLD_SIZE=9"}},
     .cause = "world-size-mismatch",
     .rank = 0,
     .detail = "WORLD_SIZE=9"}};

class LaunchVerdict : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, LaunchVerdict, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST_P(LaunchVerdict, IsTheCauseOfTheEnd) {
  const std::optional<Failure> failure = VerdictOn(GetParam().end);
  ASSERT_EQ(failure.has_value(), !GetParam().cause.empty());
  if (!failure.has_value()) return;
  EXPECT_EQ(CauseOf(failure->cause).name, GetParam().cause);
  EXPECT_EQ(failure->rank, GetParam().rank);
  EXPECT_EQ(failure->detail, GetParam().detail);
}

}  // namespace
}  // namespace muster::worker
