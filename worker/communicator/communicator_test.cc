// What every communicator on the CPU promises, with a thread per rank.
#include "worker/communicator/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <thread>

#include "worker/communicator/local_communicator.h"
#include "worker/communicator/tcp_communicator.h"

namespace muster::worker {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(60);

// Runs `body(communicator)` on every rank at once; the statuses by rank.
template <typename Body>
std::vector<absl::Status> OnAllRanks(std::vector<std::unique_ptr<Communicator>>& group, Body body) {
  std::vector<absl::Status> statuses(group.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&, rank] { statuses[rank] = body(*group[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

using Group = std::vector<std::unique_ptr<Communicator>>;

Group MakeTcpCommunicators(int world_size) {
  std::vector<Socket> listeners;
  std::vector<Endpoint> endpoints;
  for (int rank = 0; rank < world_size; ++rank) {
    absl::StatusOr<Socket> listener = Listen(0);
    EXPECT_TRUE(listener.ok()) << listener.status();
    endpoints.push_back({.host = "127.0.0.1", .port = LocalEnd(*listener).port});
    listeners.push_back(*std::move(listener));
  }
  Group group(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      auto communicator =
          ConnectTcpCommunicator({.rank = rank, .world_size = world_size, .generation = 1},
                                 {.generation = 1, .token = 5}, listeners[rank], endpoints, kLong);
      EXPECT_TRUE(communicator.ok()) << communicator.status();
      group[rank] = *std::move(communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return group;
}

struct Implementation {
  std::string name;
  std::function<Group(int world_size)> make;
};

class CpuCommunicators : public ::testing::TestWithParam<Implementation> {};

INSTANTIATE_TEST_SUITE_P(Implementations, CpuCommunicators,
                         ::testing::Values(Implementation{"Threads",
                                                          [](int world_size) {
                                                            return MakeLocalCommunicators(
                                                                world_size);
                                                          }},
                                           Implementation{"Tcp", MakeTcpCommunicators}),
                         [](const auto& info) { return info.param.name; });

TEST_P(CpuCommunicators, AllReduceAddsUpInRankOrder) {
  auto group = GetParam().make(3);
  // (1e8 + 1) - 1e8 is 0 in float32; any other order gives 1.
  const std::vector<float> first = {1e8F, 1, -1e8F};
  std::vector<std::vector<float>> values(3);
  OnAllRanks(group, [&](Communicator& communicator) {
    values[communicator.rank()] = {first[communicator.rank()], 1, 2, 3};
    return communicator.AllReduce(values[communicator.rank()], Reduction::kSum, kLong);
  });
  EXPECT_THAT(values, Each(ElementsAre(0, 3, 6, 9)));
}

TEST_P(CpuCommunicators, AllReduceWithinStaysInEachGroup) {
  auto group = GetParam().make(5);
  const std::vector<std::vector<int>> groups = {{0, 3, 4}, {1, 2}, {1, 2}, {0, 3, 4}, {0, 3, 4}};
  std::vector<std::vector<float>> values(5);
  const auto statuses = OnAllRanks(group, [&](Communicator& communicator) {
    const int rank = communicator.rank();
    values[rank] = std::vector<float>(7, static_cast<float>(rank));
    values[rank][6] = 10;
    return communicator.AllReduceWithin(groups[rank], values[rank], Reduction::kSum, kLong);
  });
  EXPECT_THAT(statuses, Each(absl::OkStatus()));
  for (const int rank : {0, 3, 4}) EXPECT_THAT(values[rank], ElementsAre(7, 7, 7, 7, 7, 7, 30));
  for (const int rank : {1, 2}) EXPECT_THAT(values[rank], ElementsAre(3, 3, 3, 3, 3, 3, 20));
}

TEST_P(CpuCommunicators, AllReduceWithinRefusesAGroupWithoutItself) {
  auto group = GetParam().make(2);
  OnAllRanks(group, [&](Communicator& communicator) {
    float value = 1;
    const std::vector<int> other = {1 - communicator.rank()};
    EXPECT_TRUE(absl::IsInvalidArgument(
        communicator.AllReduceWithin(other, {&value, 1}, Reduction::kSum, kLong)));
    EXPECT_TRUE(absl::IsInvalidArgument(communicator.AllReduceWithin(
        std::vector<int>{0, 1, 2}, {&value, 1}, Reduction::kSum, kLong)));
    return communicator.status();
  });
}

TEST_P(CpuCommunicators, MaximumIsNanIfAnyIs) {
  auto group = GetParam().make(3);
  std::vector<std::vector<float>> values(3);
  OnAllRanks(group, [&](Communicator& communicator) {
    const auto rank = static_cast<float>(communicator.rank());
    values[communicator.rank()] = {-rank, rank == 1 ? std::nanf("") : rank};
    return communicator.AllReduce(values[communicator.rank()], Reduction::kMax, kLong);
  });
  for (const std::vector<float>& mine : values) {
    EXPECT_EQ(mine[0], 0);
    EXPECT_TRUE(std::isnan(mine[1]));
  }
}

TEST_P(CpuCommunicators, ScattersAndGathersInPlaceToo) {
  auto group = GetParam().make(4);
  std::vector<std::vector<float>> values(4);
  const auto statuses = OnAllRanks(group, [&](Communicator& communicator) -> absl::Status {
    std::vector<float>& mine = values[communicator.rank()];
    mine = {1, 2, 3, 4, 5, 6, 7, 8};
    const std::span<float> shard = std::span(mine).subspan(communicator.rank() * 2, 2);
    absl::Status status = communicator.ReduceScatter(mine, shard, Reduction::kSum, kLong);
    return status.ok() ? communicator.AllGather(shard, mine, kLong) : status;
  });
  EXPECT_THAT(statuses, Each(absl::OkStatus()));
  EXPECT_THAT(values, Each(ElementsAre(4, 8, 12, 16, 20, 24, 28, 32)));
}

TEST_P(CpuCommunicators, BroadcastsFromAnyRank) {
  auto group = GetParam().make(3);
  std::vector<std::vector<float>> values(3);
  OnAllRanks(group, [&](Communicator& communicator) {
    values[communicator.rank()] = {static_cast<float>(communicator.rank())};
    return communicator.Broadcast(std::span(values[communicator.rank()]), 2, kLong);
  });
  EXPECT_THAT(values, Each(ElementsAre(2)));
}

// Larger than any socket's buffer, and not a multiple of the ranks.
TEST_P(CpuCommunicators, LargePayloadsOfAnySizeArriveWhole) {
  auto group = GetParam().make(3);
  const size_t count = 2'000'003;
  const auto statuses = OnAllRanks(group, [&](Communicator& communicator) -> absl::Status {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 1000);
    for (const size_t size : {count, size_t{2}, size_t{0}}) {
      absl::Status status =
          communicator.AllReduce(std::span(values).first(size), Reduction::kSum, kLong);
      if (!status.ok()) return status;
    }
    for (size_t i = 2; i < count; ++i) {
      if (values[i] != 3 * static_cast<float>(i % 1000)) return absl::DataLossError("wrong sum");
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(statuses, Each(absl::OkStatus()));
}

TEST_P(CpuCommunicators, ALoneRankTalksToItself) {
  auto group = GetParam().make(1);
  std::vector<float> input = {1, 2};
  std::vector<float> output(2);
  EXPECT_TRUE(group[0]->AllReduce(input, Reduction::kSum, kLong).ok());
  EXPECT_TRUE(group[0]->ReduceScatter(input, output, Reduction::kSum, kLong).ok());
  EXPECT_THAT(output, ElementsAre(1, 2));
  EXPECT_TRUE(group[0]->AllGather(std::span<const float>(output), std::span(input), kLong).ok());
  EXPECT_TRUE(group[0]->Barrier(kLong).ok());
}

TEST_P(CpuCommunicators, TheDeadlineNamesWhoDidNotCome) {
  auto group = GetParam().make(4);
  std::vector<float> values = {1};
  const auto statuses = OnAllRanks(group, [&](Communicator& communicator) -> absl::Status {
    if (communicator.rank() % 2 == 1) return absl::OkStatus();
    std::vector<float> mine = {1};
    return communicator.AllReduce(mine, Reduction::kSum, absl::Milliseconds(50));
  });
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(statuses[rank])) << statuses[rank];
    EXPECT_THAT(RanksAtFault(statuses[rank]), ElementsAre(1, 3));
    EXPECT_THAT(statuses[rank].message(),
                HasSubstr("ranks 1 and 3 did not come to all-reduce 1 (4 bytes)"));
  }
  // Too late: the operation has failed for good.
  EXPECT_TRUE(absl::IsDeadlineExceeded(group[1]->AllReduce(values, Reduction::kSum, kLong)));
}

TEST_P(CpuCommunicators, RanksInDifferentOperationsAreToldApart) {
  auto group = GetParam().make(2);
  const auto statuses = OnAllRanks(group, [&](Communicator& communicator) {
    std::vector<float> values(communicator.rank() + 1);
    return communicator.AllReduce(values, Reduction::kSum, kLong);
  });
  EXPECT_TRUE(absl::IsFailedPrecondition(statuses[0])) << statuses[0];
  EXPECT_THAT(statuses[0].message(), HasSubstr("all-reduce 1 (8 bytes)"));
  EXPECT_THAT(statuses[0].message(), HasSubstr("all-reduce 1 (4 bytes)"));
}

TEST_P(CpuCommunicators, ARankThatLeavesEndsTheWaiting) {
  auto group = GetParam().make(2);
  std::thread leaver([&] { group[1].reset(); });
  const absl::Status status = group[0]->Barrier(kLong);
  leaver.join();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(RanksAtFault(status), ElementsAre(1));
}

TEST_P(CpuCommunicators, AbortEndsTheOperationThatRunsAndAllLaterOnes) {
  auto group = GetParam().make(2);
  std::thread other([&] { group[0]->Abort(absl::UnavailableError("rank 7 is silent")); });
  EXPECT_EQ(group[0]->Barrier(kLong).message(), "rank 7 is silent");
  other.join();
  EXPECT_EQ(group[0]->Barrier(kLong).message(), "rank 7 is silent");
  EXPECT_EQ(group[1]->Barrier(kLong).message(), "rank 7 is silent");
  group[0]->Abort(absl::InternalError("second"));
  EXPECT_EQ(group[0]->status().message(), "rank 7 is silent");
}

TEST_P(CpuCommunicators, SizesThatDoNotFitHarmNobody) {
  auto group = GetParam().make(2);
  std::vector<float> three(3);
  std::vector<float> two(2);
  EXPECT_TRUE(absl::IsInvalidArgument(group[0]->ReduceScatter(three, two, Reduction::kSum, kLong)));
  EXPECT_TRUE(absl::IsInvalidArgument(group[0]->Broadcast(std::span(two), 2, kLong)));
  EXPECT_THAT(OnAllRanks(group, [](Communicator& each) { return each.Barrier(kLong); }),
              Each(absl::OkStatus()));
}

TEST(AgreeOnAny, AllRanksLearnWhatOneKnows) {
  auto group = MakeLocalCommunicators(3);
  for (const bool any : {true, false}) {
    OnAllRanks(group, [&](Communicator& communicator) {
      const auto agreed = AgreeOnAny(communicator, any && communicator.rank() == 1, kLong);
      EXPECT_TRUE(agreed.ok());
      EXPECT_EQ(agreed.value_or(!any), any);
      return agreed.status();
    });
  }
}

TEST(OperationRing, KeepsTheLastOnesWithTheirOutcome) {
  OperationRing ring;
  EXPECT_FALSE(ring.Last().has_value());
  for (int i = 0; i < 100; ++i) {
    const Operation operation = ring.Start(OperationKind::kAllGather, 8, 0);
    if (i < 99) ring.Finish(operation.sequence, absl::OkStatus());
  }
  const std::vector<Operation> all = ring.All();
  ASSERT_EQ(all.size(), OperationRing::kCapacity);
  EXPECT_EQ(all.front().sequence, 37);
  EXPECT_EQ(all.back().sequence, 100);
  EXPECT_TRUE(all[0].took.has_value());
  EXPECT_FALSE(all.back().took.has_value());
  EXPECT_THAT(ring.Report(), HasSubstr("all-gather 100 (8 bytes): running for "));
  EXPECT_THAT(ring.Report(), HasSubstr("all-gather 99 (8 bytes): OK after "));
}

TEST(RankList, ReadsWell) {
  EXPECT_EQ(RankList({3}), "rank 3");
  EXPECT_EQ(RankList({3, 4}), "ranks 3 and 4");
  EXPECT_EQ(RankList({0, 1, 2, 3, 9, 12}), "ranks 0 to 3, 9 and 12");
}

TEST_P(CpuCommunicators, WhatAnyRankFailedWithIsEveryonesResult) {
  auto group = GetParam().make(3);
  std::vector<absl::Status> results = {absl::OkStatus(), absl::DataLossError("cut short"),
                                       absl::PermissionDeniedError("not mine")};
  const auto statuses = OnAllRanks(group, [&](Communicator& communicator) {
    absl::Status fine;
    absl::Status status = AgreeOnResult(communicator, fine, kLong);
    EXPECT_TRUE(fine.ok());
    status.Update(AgreeOnResult(communicator, results[communicator.rank()], kLong));
    return status;
  });
  EXPECT_THAT(statuses, Each(absl::OkStatus()));
  EXPECT_THAT(results, Each(absl::DataLossError("rank 1: cut short")));
}

}  // namespace
}  // namespace muster::worker
