// Jobs of real processes whose members are killed, stopped, cut off and replaced.
#include "worker/program/run_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "worker/communicator/tcp_socket.h"
#include "worker/program/exit.h"

namespace muster::worker {
namespace {

using ::testing::HasSubstr;

constexpr int kMostRanks = 8;

// What ranks show the test, in memory that they share with it.
struct Board {
  struct Rank {
    std::atomic<int64_t> generation = 0;  // that it works in
    std::atomic<int64_t> losses = 0;      // generations that ended under it
    std::array<char, 512> why = {};       // the last one did; written before `losses`
  };
  std::array<Rank, kMostRanks> ranks;
  std::atomic<bool> done = false;
  std::atomic<bool> told = false;  // rank 0, by the store, of a loss
};

// Outside the range that connections take theirs from.
uint16_t FreePort() {
  uint16_t port = 20'000 + getpid() % 10'000;
  while (!Listen(port).ok()) ++port;
  return port;
}

class RunRankTest : public ::testing::Test {
 protected:
  RunRankTest()
      : board_(new(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0)) Board) {}

  ~RunRankTest() override {
    KillAll();
    munmap(board_, sizeof(Board));
  }

  void StartAll(int world_size) {
    world_size_ = world_size;
    port_ = FreePort();
    for (int rank = 0; rank < world_size; ++rank) StartRank(rank);
  }

  // In place of the one that was there before.
  void StartRank(int rank) {
    pids_[rank] = fork();
    if (pids_[rank] != 0) return;
    const RankOptions options = {.rank = rank,
                                 .world_size = world_size_,
                                 .store = {"127.0.0.1", port_},
                                 .host_name = "pod",
                                 .gpu_uuids = {},
                                 .versions = {},
                                 .meet_timeout = absl::Seconds(30),
                                 .replace_timeout = replace_timeout_,
                                 .say = [this, rank](absl::string_view text) { Hear(rank, text); }};
    _exit(ExitCodeFor(RunRank(options, [&](Communicator& each) { return Work(each); })));
  }

  // All-reduces until the test says that it's enough.
  absl::Status Work(Communicator& communicator) {
    Board::Rank& mine = board_->ranks[communicator.rank()];
    mine.generation = communicator.generation();
    std::vector<float> values(1000);
    if (accusing_ && communicator.rank() == 0 && communicator.generation() == 1) {
      return AccuseRank1(communicator);
    }
    while (true) {
      const auto done = AgreeOnAny(communicator, board_->done, absl::Minutes(1));
      absl::Status status = done.status();
      if (status.ok() && *done && failing_rank_ == communicator.rank()) {
        return absl::UnavailableError("/checkpoints: can't write: Input/output error");
      }
      if (status.ok() && *done && failing_rank_ >= 0)
        status = communicator.Barrier(absl::Minutes(1));
      if (status.ok() && *done) return absl::OkStatus();
      if (status.ok()) {
        status = communicator.AllReduce(values, Reduction::kSum, absl::Minutes(1));
      }
      if (status.ok()) continue;
      std::strncpy(mine.why.data(), std::string(status.message()).c_str(), mine.why.size() - 1);
      ++mine.losses;
      return status;
    }
  }

  // Ends the generation by its own word, and returns only once the store's has come too.
  absl::Status AccuseRank1(Communicator& communicator) const {
    communicator.Abort(WithRanksAtFault(absl::UnavailableError("rank 1 makes no sense"), {1}));
    while (!board_->told.load(std::memory_order_relaxed)) absl::SleepFor(absl::Milliseconds(1));
    absl::SleepFor(absl::Milliseconds(100));
    return communicator.status();
  }

  // Relaxed: nothing but the program itself is to keep its threads apart.
  void Hear(int rank, absl::string_view text) {
    if (rank == 0 && !absl::StartsWith(text, "generation ")) {
      board_->told.store(true, std::memory_order_relaxed);
    }
  }

  void KillRank(int rank) {
    kill(pids_[rank], SIGKILL);
    waitpid(pids_[rank], nullptr, 0);
    pids_[rank] = 0;
  }

  void KillAll() {
    for (int rank = 0; rank < kMostRanks; ++rank) {
      if (pids_[rank] > 0) KillRank(rank);
    }
  }

  bool Within(absl::Duration limit, const std::function<bool()>& condition) {
    const Deadline deadline = DeadlineAfter(limit);
    while (!condition()) {
      if (TimeLeft(deadline) == absl::ZeroDuration()) return false;
      absl::SleepFor(absl::Milliseconds(2));
    }
    return true;
  }

  bool AllWorkIn(int64_t generation) {
    return Within(absl::Seconds(30), [&] {
      for (int rank = 0; rank < world_size_; ++rank) {
        if (board_->ranks[rank].generation != generation) return false;
      }
      return true;
    });
  }

  // All but that one have noticed a loss.
  bool AllNoticeWithin(absl::Duration limit, int but) {
    return Within(limit, [&] {
      for (int rank = 0; rank < world_size_; ++rank) {
        if (rank != but && board_->ranks[rank].losses == 0) return false;
      }
      return true;
    });
  }

  std::string Why(int rank) const { return board_->ranks[rank].why.data(); }

  int ExitCode(int rank) {
    int status = 0;
    waitpid(pids_[rank], &status, 0);
    pids_[rank] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  void ExpectAllFinish() {
    board_->done = true;
    for (int rank = 0; rank < world_size_; ++rank) EXPECT_EQ(ExitCode(rank), 0) << rank;
  }

  Board* board_;
  std::array<pid_t, kMostRanks> pids_ = {};
  int world_size_ = 0;
  uint16_t port_ = 0;
  absl::Duration replace_timeout_ = absl::Seconds(30);
  int failing_rank_ = -1;  // by its own fault, when it's done
  bool accusing_ = false;  // rank 0, in generation 1
};

TEST_F(RunRankTest, AKilledRankIsNoticedWithinTwoSecondsAndReplaced) {
  StartAll(8);
  ASSERT_TRUE(AllWorkIn(1));
  KillRank(5);
  EXPECT_TRUE(AllNoticeWithin(absl::Seconds(2), 5));
  for (const int rank : {0, 1, 7}) EXPECT_THAT(Why(rank), HasSubstr("rank 5 "));
  StartRank(5);
  EXPECT_TRUE(AllWorkIn(2));
  ExpectAllFinish();
}

TEST_F(RunRankTest, SoIsTheOneWithTheStore) {
  StartAll(4);
  ASSERT_TRUE(AllWorkIn(1));
  KillRank(0);
  EXPECT_TRUE(AllNoticeWithin(absl::Seconds(2), 0));
  for (const int rank : {1, 2, 3}) EXPECT_THAT(Why(rank), HasSubstr("rank 0 "));
  StartRank(0);
  EXPECT_TRUE(AllWorkIn(2));
  ExpectAllFinish();
}

TEST_F(RunRankTest, AStoppedRankIsNoticedWithinTenSecondsAndComesBackInANewGeneration) {
  StartAll(4);
  ASSERT_TRUE(AllWorkIn(1));
  kill(pids_[2], SIGSTOP);
  EXPECT_TRUE(AllNoticeWithin(absl::Seconds(10), 2));
  for (const int rank : {0, 1, 3}) {
    EXPECT_THAT(Why(rank), HasSubstr("rank 2 (pod, process "));
    EXPECT_THAT(Why(rank), HasSubstr("is lost: not heard from for "));
  }
  kill(pids_[2], SIGCONT);
  EXPECT_TRUE(AllWorkIn(2));
  ExpectAllFinish();
}

TEST_F(RunRankTest, WithoutAReplacementTheJobEndsWithARetryableCode) {
  replace_timeout_ = absl::Seconds(1);
  StartAll(3);
  ASSERT_TRUE(AllWorkIn(1));
  KillRank(1);
  EXPECT_EQ(ExitCode(0), 138);
  EXPECT_EQ(ExitCode(2), 138);
}

TEST_F(RunRankTest, TheStoresWordMayComeAfterARanksOwn) {
  accusing_ = true;
  StartAll(2);
  EXPECT_TRUE(AllWorkIn(2));
  ExpectAllFinish();
}

// Brings the loopback interface of this network namespace up or down.
void SetLoopback(bool up) {
  const Socket socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  std::strncpy(request.ifr_name, "lo", sizeof request.ifr_name - 1);
  request.ifr_flags = up ? IFF_UP | IFF_RUNNING : 0;
  ASSERT_EQ(ioctl(socket.fd(), SIOCSIFFLAGS, &request), 0) << std::strerror(errno);
}

// In a network of its own, which is cut and mended.
TEST_F(RunRankTest, ACutNetworkIsNoticedWithinTenSecondsAndMended) {
  const pid_t inside = fork();
  if (inside == 0) {
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) _exit(2);
    SetLoopback(true);
    StartAll(3);
    EXPECT_TRUE(AllWorkIn(1));
    SetLoopback(false);
    EXPECT_TRUE(AllNoticeWithin(absl::Seconds(10), -1));
    SetLoopback(true);
    EXPECT_TRUE(AllWorkIn(2));
    ExpectAllFinish();
    KillAll();
    _exit(HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(inside, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_NE(WEXITSTATUS(status), 2) << "this machine allows no network namespaces";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(RunRankTest, ARanksOwnFailureEndsAllAtOnceThoughItWouldBeWorthARetry) {
  failing_rank_ = 1;
  StartAll(3);
  ASSERT_TRUE(AllWorkIn(1));
  board_->done = true;
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(ExitCode(rank), CauseOf(CauseId::kStorageFailed).exit_code) << rank;
  }
  for (const int rank : {0, 2}) EXPECT_THAT(Why(rank), HasSubstr("Input/output error"));
}

TEST(RunRank, ALoneRankMeetsNobody) {
  EXPECT_TRUE(
      RunRank({.host_name = "pod", .gpu_uuids = {}, .versions = {}}, [](Communicator& each) {
        return each.Barrier(absl::Seconds(1));
      }).ok());
}

}  // namespace
}  // namespace muster::worker
