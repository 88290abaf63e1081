// Ranks as processes on one machine, killed, stopped and mixed up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "worker/communicator/tcp_communicator.h"
#include "worker/communicator/tcp_exchange.h"

namespace muster::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

// Forks one process per rank; each runs `body` and reports the text that it returns.
class Processes {
 public:
  using Body = std::function<std::string(Communicator&)>;

  Processes(int world_size, const Body& body) {
    std::vector<Socket> listeners;
    for (int rank = 0; rank < world_size; ++rank) {
      listeners.push_back(*Listen(0));
      endpoints_.push_back({.host = "127.0.0.1", .port = LocalEnd(listeners.back()).port});
    }
    for (int rank = 0; rank < world_size; ++rank) {
      int ends[2];
      EXPECT_EQ(pipe(ends), 0);
      const pid_t child = fork();
      if (child == 0) {
        const Socket listener = std::move(listeners[rank]);
        // Another rank's listener that lives on here would accept after that rank's death.
        listeners.clear();
        const std::string report = RunRank(rank, world_size, listener, body);
        _exit(write(ends[1], report.data(), report.size()) < 0 ? 1 : 0);
      }
      close(ends[1]);
      reports_.emplace_back(ends[0]);
      children_.push_back(child);
    }
  }

  ~Processes() {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }

  void Signal(int rank, int signal) { kill(children_[rank], signal); }

  // What that rank reported; empty if it didn't by `deadline`.
  std::string Report(int rank, Deadline deadline) {
    if (!WaitFor(reports_[rank], POLLIN, deadline)) return "";
    char text[4096];
    const ssize_t size = read(reports_[rank].fd(), text, sizeof text);
    return size > 0 ? std::string(text, size) : "";
  }

 private:
  std::string RunRank(int rank, int world_size, const Socket& listener, const Body& body) {
    const absl::StatusOr<std::unique_ptr<Communicator>> communicator =
        ConnectTcpCommunicator({.rank = rank, .world_size = world_size, .generation = 1},
                               {.generation = 1, .token = 7}, listener, endpoints_, kPatience);
    return communicator.ok() ? body(**communicator) : communicator.status().ToString();
  }

  std::vector<Endpoint> endpoints_;
  std::vector<pid_t> children_;
  std::vector<Socket> reports_;
};

// All-reduces until one fails.
std::string ReduceUntilAnError(Communicator& communicator, absl::Duration timeout) {
  std::vector<float> values(10'000, 1);
  while (true) {
    const absl::Status status = communicator.AllReduce(values, Reduction::kMax, timeout);
    if (status.ok()) continue;
    return absl::StrCat(RankList(RanksAtFault(status)), ": ", status.ToString());
  }
}

TEST(TcpProcesses, AKilledRankIsNamedByAllOthersAtOnce) {
  Processes processes(8, [](Communicator& each) { return ReduceUntilAnError(each, kPatience); });
  absl::SleepFor(absl::Milliseconds(200));
  processes.Signal(3, SIGKILL);
  const Deadline deadline = DeadlineAfter(absl::Seconds(2));
  for (const int rank : {0, 1, 2, 4, 5, 6, 7}) {
    EXPECT_THAT(processes.Report(rank, deadline), HasSubstr("rank 3: UNAVAILABLE: rank 3 is gone"));
  }
}

TEST(TcpProcesses, AStoppedRankIsNamedAtTheDeadline) {
  Processes processes(
      4, [](Communicator& each) { return ReduceUntilAnError(each, absl::Milliseconds(500)); });
  absl::SleepFor(absl::Milliseconds(100));
  processes.Signal(2, SIGSTOP);
  const Deadline deadline = DeadlineAfter(absl::Seconds(5));
  for (const int rank : {0, 1, 3}) {
    const std::string report = processes.Report(rank, deadline);
    EXPECT_THAT(report, HasSubstr("rank 2: DEADLINE_EXCEEDED: rank 2 did not "));
    EXPECT_THAT(report, HasSubstr("all-reduce "));
  }
}

TEST(TcpProcesses, ASlowRankIsNamedWithItsLastOperation) {
  Processes processes(3, [](Communicator& each) {
    float value = 0;
    each.AllReduce({&value, 1}, Reduction::kSum, kPatience).IgnoreError();
    if (each.rank() == 1) absl::SleepFor(absl::Seconds(1));
    return each.Barrier(absl::Milliseconds(200)).ToString();
  });
  const Deadline deadline = DeadlineAfter(absl::Seconds(5));
  for (const int rank : {0, 2}) {
    EXPECT_THAT(processes.Report(rank, deadline),
                HasSubstr("rank 1 did not come to barrier 2 within "));
  }
  // The slow one learns that it was.
  EXPECT_THAT(processes.Report(1, deadline), HasSubstr("rank 1 did not come to barrier 2"));
}

TEST(TcpProcesses, AnOrderlyEndIsNoError) {
  for (int round = 0; round < 5; ++round) {
    Processes processes(6, [](Communicator& each) { return each.Barrier(kPatience).ToString(); });
    for (int rank = 0; rank < 6; ++rank) {
      EXPECT_EQ(processes.Report(rank, DeadlineAfter(absl::Seconds(10))), "OK");
    }
  }
}

TEST(Mesh, RanksOfAnotherRoundAndStrangersAreHungUpOn) {
  const Socket listener = *Listen(0);
  const std::vector<Endpoint> endpoints(2, {"127.0.0.1", LocalEnd(listener).port});
  const auto stranger = Connect(*Resolve(endpoints[0]), DeadlineAfter(kPatience));
  ASSERT_TRUE(stranger.ok());
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_TRUE(SendAll(*stranger, std::as_bytes(std::span(request)), DeadlineAfter(kPatience)).ok());
  std::thread old([&] {
    ConnectMesh({.rank = 1, .world_size = 2, .generation = 1}, {.generation = 1, .token = 7},
                listener, endpoints, DeadlineAfter(kPatience))
        .status()
        .IgnoreError();
  });
  const auto links =
      ConnectMesh({.rank = 0, .world_size = 2, .generation = 2}, {.generation = 2, .token = 7},
                  listener, endpoints, DeadlineAfter(absl::Milliseconds(300)));
  old.join();
  EXPECT_TRUE(absl::IsDeadlineExceeded(links.status())) << links.status();
  EXPECT_EQ(links.status().message(), "rank 1 did not connect to rank 0 for generation 2");
  EXPECT_THAT(RanksAtFault(links.status()), ElementsAre(1));
}

TEST(Mesh, ARankThatIsNotThereIsNamedWithItsAddress) {
  uint16_t port = 0;
  {
    const Socket closed = *Listen(0);
    port = LocalEnd(closed).port;
  }
  const Socket listener = *Listen(0);
  const std::vector<Endpoint> endpoints(2, {"127.0.0.1", port});
  const auto links =
      ConnectMesh({.rank = 1, .world_size = 2, .generation = 1}, {.generation = 1, .token = 7},
                  listener, endpoints, DeadlineAfter(absl::Milliseconds(200)));
  EXPECT_THAT(links.status().message(),
              HasSubstr(absl::StrCat("rank 0 at 127.0.0.1:", port, " was not reached: ")));
  EXPECT_THAT(links.status().message(), HasSubstr("Connection refused"));
}

// Rank 2 stops while it sends: all but rank 3 have its part, and so they wait for rank 3's next
// step as they do for rank 2's. Only rank 3 knows which of the two is to blame.
TEST(Mesh, WhoWaitsForTheRankAtFaultIsNotNamedWithIt) {
  constexpr int kWorld = 4;
  std::vector<Socket> listeners;
  std::vector<Endpoint> endpoints;
  for (int rank = 0; rank < kWorld; ++rank) {
    listeners.push_back(*Listen(0));
    endpoints.push_back({"127.0.0.1", LocalEnd(listeners.back()).port});
  }
  // Connections last until all ranks know.
  const Socket wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::optional<TcpExchange> exchange;
  std::vector<std::unique_ptr<Communicator>> communicators(kWorld);
  std::vector<absl::Status> results(kWorld);
  const RoundName round = {.generation = 1, .token = 7};
  const auto stopped = [&](const Membership& membership) {
    auto links = ConnectMesh(membership, round, listeners[2], endpoints, DeadlineAfter(kPatience));
    ASSERT_TRUE(links.ok()) << links.status();
    exchange.emplace(2, *std::move(links), wake.fd(), [] { return absl::OkStatus(); });
    const std::vector<float> part(1, 1);
    const std::span<const std::byte> bytes = std::as_bytes(std::span(part));
    const std::vector<Outgoing> outgoing = {{0, bytes}, {1, bytes}};
    const Operation operation = {.sequence = 1,
                                 .kind = OperationKind::kAllReduce,
                                 .bytes = kWorld * sizeof(float),
                                 .started = absl::Now()};
    const absl::Status sent = exchange->Run(operation, 0, outgoing, {}, DeadlineAfter(kPatience));
    EXPECT_TRUE(sent.ok()) << sent;
  };
  const auto waiting = [&](const Membership& membership, absl::Duration timeout) {
    auto connected =
        ConnectTcpCommunicator(membership, round, listeners[membership.rank], endpoints, kPatience);
    ASSERT_TRUE(connected.ok()) << connected.status();
    communicators[membership.rank] = *std::move(connected);
    std::vector<float> values(kWorld, 1);
    results[membership.rank] =
        communicators[membership.rank]->AllReduce(values, Reduction::kSum, timeout);
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kWorld; ++rank) {
    const Membership membership = {.rank = rank, .world_size = kWorld, .generation = 1};
    if (rank == 2) {
      ranks.emplace_back(stopped, membership);
    } else {
      ranks.emplace_back(waiting, membership, absl::Milliseconds(rank == 3 ? 400 : 300));
    }
  }
  for (std::thread& each : ranks) each.join();
  for (const int rank : {0, 1, 3}) {
    EXPECT_THAT(RanksAtFault(results[rank]), ElementsAre(2)) << results[rank];
    EXPECT_THAT(results[rank].message(), HasSubstr("rank 2 did not ")) << rank;
  }
}

TEST(Notice, CarriesTheReasonAndIsCutRatherThanRefused) {
  const Socket listener = *Listen(0);
  const auto sender =
      Connect(*Resolve({"127.0.0.1", LocalEnd(listener).port}), DeadlineAfter(kPatience));
  ASSERT_TRUE(sender.ok());
  ASSERT_TRUE(WaitFor(listener, POLLIN, DeadlineAfter(kPatience)));
  const Socket receiver = *std::move(*Accept(listener));
  std::vector<int> many(100);
  std::iota(many.begin(), many.end(), 0);
  const std::string bytes =
      EncodeNotice({WithRanksAtFault(absl::UnavailableError(std::string(9000, 'x')), many)});
  NoticeReader reader;
  for (const char byte : bytes) {
    ASSERT_FALSE(reader.done());
    ASSERT_TRUE(
        SendAll(*sender, std::as_bytes(std::span(&byte, 1)), DeadlineAfter(kPatience)).ok());
    ASSERT_TRUE(WaitFor(receiver, POLLIN, DeadlineAfter(kPatience)));
    ASSERT_TRUE(reader.Read(receiver).ok());
  }
  ASSERT_TRUE(reader.done());
  EXPECT_EQ(reader.notice().reason.message(), std::string(4000, 'x'));
  many.resize(16);
  EXPECT_EQ(RanksAtFault(reader.notice().reason), many);
}

}  // namespace
}  // namespace muster::worker
