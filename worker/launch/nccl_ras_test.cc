#include "worker/launch/nccl_ras.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::worker {
namespace {

std::optional<int> NoneOfThisPod(int64_t /*pid*/) { return std::nullopt; }

// In the form in which NCCL tells it.
constexpr char kBehind[] =
    "Errors\n"
    "======\n"
    "\n"
    "#0-0 (27a079b828ff1a75) MISMATCH\n"
    "  Communicator ranks have different collective operation counts\n"
    "  7 ranks have launched up to operation 6650\n"
    "  1 rank has launched up to operation 6649\n"
    "  Rank 3 -- GPU 3 managed by process 4711 on node 10.0.0.7\n"
    "\n";

TEST(NcclRas, TheRankThatHasLaunchedFewerIsNamed) {
  const Standstill told = ReadRas(kBehind, NoneOfThisPod);
  EXPECT_EQ(told.rank, 3);
  EXPECT_EQ(told.detail,
            "rank 3 has launched other collectives than most ranks (NCCL's RAS: from 6649 to "
            "6650)");
}

TEST(NcclRas, AProcessOfThisPodIsKnownByItsId) {
  EXPECT_EQ(ReadRas(kBehind,
                    [](int64_t pid) { return pid == 4711 ? std::optional<int>(11) : std::nullopt; })
                .rank,
            11);
}

TEST(NcclRas, WhereAllHaveLaunchedTheSameNobodyIsNamed) {
  EXPECT_FALSE(ReadRas("Communicators... (0.00s)\n\n  0       1       1       8       8   RUNNING"
                       "      OK\n\nErrors\n======\n\nWarnings\n========\n\n",
                       NoneOfThisPod)
                   .rank.has_value());
  EXPECT_FALSE(ReadRas("", NoneOfThisPod).rank.has_value());
}

TEST(NcclRas, ItIsAskedWhereItsVariableSays) {
  EXPECT_EQ(ToText(RasEndpoint({})), "localhost:28028");
  EXPECT_EQ(ToText(RasEndpoint({{"NCCL_RAS_ADDR", "[::1]:99"}})), "[::1]:99");
}

TEST(NcclRas, AnAnswerIsReadToItsEndAndSilenceOnlyForATime) {
  const auto listener = Listen(0);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const Endpoint here = {.host = "127.0.0.1", .port = LocalEnd(*listener).port};
  EXPECT_EQ(AskRas(here, absl::Milliseconds(200)), "") << "it accepts nobody";
  const pid_t server = fork();
  if (server == 0) {
    while (true) {
      if (!WaitFor(*listener, 1 /*POLLIN*/, DeadlineAfter(absl::Seconds(20)))) _exit(1);
      auto accepted = Accept(*listener);
      if (!accepted.ok() || !accepted->has_value()) continue;
      constexpr char kText[] = "all is well\n";
      SendAll(**accepted, std::as_bytes(std::span(kText, sizeof kText - 1)),
              DeadlineAfter(absl::Seconds(1)))
          .IgnoreError();
    }
  }
  EXPECT_EQ(AskRas(here, absl::Seconds(10)), "all is well\n");
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
}

}  // namespace
}  // namespace muster::worker
