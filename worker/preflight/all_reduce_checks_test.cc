// Verdicts on made-up rates.
#include "worker/preflight/all_reduce_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/preflight/made_up_machine.h"
#include "worker/training/on_ranks.h"

namespace muster::worker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Healthy p5.48xlarge, eight ranks on each.
std::vector<RankAllReduce> P5Nodes(int nodes) {
  std::vector<RankAllReduce> ranks;
  for (int rank = 0; rank < 8 * nodes; ++rank) {
    ranks.push_back(
        {.rank = rank,
         .node = rank / 8,
         .host = Concat("train-", rank / 8),
         .links = {.instance_type = "p5.48xlarge", .efa_devices = 32, .has_plugin = true},
         .found = {.wrong = {}, .node = 360, .across = nodes == 1 ? 0.0 : 400}});
  }
  return ranks;
}

// Of a node.
template <typename Change>
void Each(std::vector<RankAllReduce>& ranks, int node, Change change) {
  for (RankAllReduce& rank : ranks) {
    if (rank.node == node) change(rank);
  }
}

const Row& RowOf(const AllReduceVerdict& verdict, const std::string& check) {
  static const Row kNone;
  for (const Row& row : verdict.rows) {
    if (row.check == check) return row;
  }
  ADD_FAILURE() << "no row " << check;
  return kNone;
}

TEST(CheckAllReduces, HealthyNodesPass) {
  const AllReduceVerdict verdict = CheckAllReduces(P5Nodes(2), {});
  ASSERT_EQ(verdict.rows.size(), 3);
  for (const Row& row : verdict.rows) EXPECT_EQ(row.verdict, Verdict::kOk) << row.numbers;
  EXPECT_EQ(RowOf(verdict, "all-reduce in nodes").numbers,
            "node 0 (train-0) 360.0 GB/s, node 1 (train-1) 360.0 GB/s; at least 275.0 GB/s is "
            "expected");
  EXPECT_EQ(RowOf(verdict, "all-reduce across").numbers,
            "400.0 GB/s among 16 ranks of 2 nodes; at least 300.0 GB/s is expected");
  EXPECT_EQ(FailureOf(verdict, 0), std::nullopt);
}

TEST(CheckAllReduces, OneNodeHasNobodyToReachAndOneGpuNobodyInside) {
  EXPECT_EQ(CheckAllReduces(P5Nodes(1), {}).rows.size(), 2);
  std::vector<RankAllReduce> ranks = P5Nodes(2);
  ranks = {ranks[0], ranks[8]};
  for (RankAllReduce& rank : ranks) rank.found.node = 0;
  const AllReduceVerdict verdict = CheckAllReduces(ranks, {});
  ASSERT_EQ(verdict.rows.size(), 2);
  // With an eighth of the GPUs comes an eighth of the network.
  EXPECT_THAT(RowOf(verdict, "all-reduce across").numbers, HasSubstr("at least 37.5 GB/s"));
}

TEST(CheckAllReduces, AWrongSumNamesRankAndElementAndNothingElseCounts) {
  std::vector<RankAllReduce> ranks = P5Nodes(2);
  ranks[11].found = {.wrong = WrongSum{.reach = Reach::kAcross,
                                       .element = 70'000,
                                       .found = 12,
                                       .expected = 11,
                                       .wrong_elements = 3}};
  const AllReduceVerdict verdict = CheckAllReduces(ranks, {});
  ASSERT_EQ(verdict.rows.size(), 1);
  EXPECT_EQ(verdict.rows[0].verdict, Verdict::kFailed);
  EXPECT_EQ(verdict.rows[0].numbers,
            "rank 11 on train-1 across nodes: element 70000 is 12 instead of 11, 3 wrong in all");
  for (const int node : {0, 1}) {
    const auto failure = FailureOf(verdict, node);
    EXPECT_EQ(failure->cause, CauseId::kAllReduceWrong);
    EXPECT_EQ(failure->rank, 11);
    EXPECT_EQ(failure->host, "train-1");
  }
}

TEST(CheckAllReduces, ASlowNodeIsNamedAndAccusedByItselfOnly) {
  std::vector<RankAllReduce> ranks = P5Nodes(3);
  ranks[13].found.node = 120.44;  // one of its ranks is enough
  const AllReduceVerdict verdict = CheckAllReduces(ranks, {});
  const Row& row = RowOf(verdict, "all-reduce in nodes");
  EXPECT_EQ(row.verdict, Verdict::kFailed);
  EXPECT_THAT(row.numbers, AllOf(HasSubstr("node 1 (train-1) 120.4 GB/s, node 0 (train-0) 360.0"),
                                 HasSubstr("; 275.0 GB/s is expected of p5.48xlarge")));
  EXPECT_THAT(verdict.nodes_at_fault, ElementsAre(1));
  EXPECT_EQ(FailureOf(verdict, 1)->cause, CauseId::kGpuLinksSlow);
  EXPECT_EQ(FailureOf(verdict, 0)->cause, CauseId::kPeerSlow);
  for (const int node : {0, 1, 2}) {
    EXPECT_EQ(FailureOf(verdict, node)->rank, 8);
    EXPECT_EQ(FailureOf(verdict, node)->host, "train-1");
    // Elsewhere it may be well.
    EXPECT_GE(CauseOf(FailureOf(verdict, node)->cause).exit_code, 128);
  }
}

TEST(CheckAllReduces, WhatAllNodesHaveInCommonIsNoNodesFault) {
  std::vector<RankAllReduce> ranks = P5Nodes(2);
  for (RankAllReduce& rank : ranks) rank.found.node = 20;
  const auto failure = FailureOf(CheckAllReduces(ranks, {}), 0);
  EXPECT_EQ(failure->cause, CauseId::kAllReduceSlow);
  EXPECT_EQ(CauseOf(failure->cause).exit_code, 78);
}

TEST(CheckAllReduces, VariablesThatSwitchWaysOffAreTheCauseOfSlowness) {
  std::vector<RankAllReduce> ranks = P5Nodes(2);
  Each(ranks, 1, [](RankAllReduce& rank) {
    rank.found.node = 20;
    rank.links.keeps_from_node = "NCCL_P2P_DISABLE=1";
  });
  const AllReduceVerdict verdict = CheckAllReduces(ranks, {});
  const Row& row = RowOf(verdict, "all-reduce in nodes");
  EXPECT_EQ(row.cause, CauseId::kConfigurationInvalid);
  EXPECT_THAT(row.numbers, HasSubstr("set in the environment: NCCL_P2P_DISABLE=1"));
  EXPECT_EQ(FailureOf(verdict, 0)->cause, CauseId::kConfigurationInvalid);
  // But not if nothing is slow.
  Each(ranks, 1, [](RankAllReduce& rank) { rank.found.node = 300; });
  EXPECT_EQ(RowOf(CheckAllReduces(ranks, {}), "all-reduce in nodes").verdict, Verdict::kOk);
}

TEST(CheckAllReduces, ASlowFabricIsExplainedByTheNodeThatHasNoEfa) {
  std::vector<RankAllReduce> ranks = P5Nodes(2);
  for (RankAllReduce& rank : ranks) rank.found.across = 5;
  Each(ranks, 1, [](RankAllReduce& rank) { rank.links.efa_devices = 0; });
  AllReduceVerdict verdict = CheckAllReduces(ranks, {});
  EXPECT_EQ(RowOf(verdict, "all-reduce across").cause, CauseId::kNoEfaProvider);
  EXPECT_THAT(RowOf(verdict, "all-reduce across").numbers,
              AllOf(HasSubstr("5.0 GB/s among 16 ranks of 2 nodes; 300.0 GB/s is expected"),
                    HasSubstr("node 1 (train-1) has no EFA device")));
  EXPECT_EQ(FailureOf(verdict, 0)->host, "train-1");

  Each(ranks, 1, [](RankAllReduce& rank) {
    rank.links.efa_devices = 32;
    rank.links.has_plugin = false;
  });
  verdict = CheckAllReduces(ranks, {});
  EXPECT_EQ(RowOf(verdict, "all-reduce across").cause, CauseId::kNetworkIsSocket);
  EXPECT_THAT(RowOf(verdict, "all-reduce across").numbers, HasSubstr("doesn't find aws-ofi-nccl"));

  Each(ranks, 1, [](RankAllReduce& rank) {
    rank.links.has_plugin = true;
    rank.links.keeps_from_fabric = "FI_PROVIDER=tcp";
  });
  verdict = CheckAllReduces(ranks, {});
  EXPECT_EQ(RowOf(verdict, "all-reduce across").cause, CauseId::kConfigurationInvalid);
  EXPECT_THAT(RowOf(verdict, "all-reduce across").numbers, HasSubstr("FI_PROVIDER=tcp"));
}

TEST(CheckAllReduces, ASlowFabricWithoutAnObstacleNamesTheSlowestNode) {
  std::vector<RankAllReduce> ranks = P5Nodes(3);
  for (RankAllReduce& rank : ranks) rank.found.across = 100;
  Each(ranks, 2, [](RankAllReduce& rank) { rank.found.node = 290; });
  const Row row = RowOf(CheckAllReduces(ranks, {}), "all-reduce across");
  EXPECT_EQ(row.cause, CauseId::kAllReduceSlow);
  EXPECT_THAT(row.numbers, HasSubstr("the slowest in itself is node 2 (train-2) with 290.0 GB/s"));
}

TEST(CheckAllReduces, AnUnknownTypeIsShownAndNotJudged) {
  std::vector<RankAllReduce> ranks = P5Nodes(2);
  for (RankAllReduce& rank : ranks) {
    rank.links = {.instance_type = "PowerEdge XE9680"};
    rank.found.node = 1;
    rank.found.across = 1;
  }
  AllReduceVerdict verdict = CheckAllReduces(ranks, {});
  for (const char* check : {"all-reduce in nodes", "all-reduce across"}) {
    EXPECT_EQ(RowOf(verdict, check).verdict, Verdict::kWarning);
    EXPECT_THAT(RowOf(verdict, check).numbers,
                AllOf(HasSubstr("1.0 GB/s"), HasSubstr("nothing is known of PowerEdge XE9680")));
  }
  EXPECT_EQ(FailureOf(verdict, 0), std::nullopt);
  EXPECT_EQ(ExitCodeOf(verdict.rows), 0);
  for (RankAllReduce& rank : ranks) rank.links.instance_type = "";
  EXPECT_THAT(RowOf(CheckAllReduces(ranks, {}), "all-reduce across").numbers,
              HasSubstr("nothing is known of this machine's instance type"));
}

TEST(CheckAllReduces, FlagsWinOverTheTable) {
  AllReduceExpectations expected = {.node = 361, .across = 401};
  AllReduceVerdict verdict = CheckAllReduces(P5Nodes(2), expected);
  EXPECT_EQ(RowOf(verdict, "all-reduce in nodes").verdict, Verdict::kFailed);
  EXPECT_EQ(RowOf(verdict, "all-reduce across").verdict, Verdict::kFailed);
  std::vector<RankAllReduce> ranks = P5Nodes(2);
  for (RankAllReduce& rank : ranks) rank.links = {};
  expected = {.node = 1, .across = 1};
  verdict = CheckAllReduces(ranks, expected);
  for (const Row& row : verdict.rows) EXPECT_EQ(row.verdict, Verdict::kOk) << row.numbers;
  // Machines that aren't EC2's have other networks than EFA.
  expected = {.node = 1, .across = 500};
  EXPECT_EQ(RowOf(CheckAllReduces(ranks, expected), "all-reduce across").cause,
            CauseId::kAllReduceSlow);
}

TEST(ReadLinks, TakesTheTypeFromTheUserTheEnvironmentOrEc2) {
  MadeUpMachine machine;
  EXPECT_EQ(ReadLinks(machine, "").instance_type, "");
  machine.files["/sys/devices/virtual/dmi/id/product_name"] = "p4d.24xlarge\n";
  machine.files["/sys/devices/virtual/dmi/id/sys_vendor"] = "Somebody else\n";
  EXPECT_EQ(ReadLinks(machine, "").instance_type, "");
  machine.files["/sys/devices/virtual/dmi/id/sys_vendor"] = "Amazon EC2\n";
  EXPECT_EQ(ReadLinks(machine, "").instance_type, "p4d.24xlarge");
  machine.environment["MUSTER_INSTANCE_TYPE"] = "p5.48xlarge";
  EXPECT_EQ(ReadLinks(machine, "").instance_type, "p5.48xlarge");
  EXPECT_EQ(ReadLinks(machine, "g5.48xlarge").instance_type, "g5.48xlarge");
}

TEST(ReadLinks, SeesDevicesPluginAndHarmfulVariables) {
  MadeUpMachine machine;
  machine.environment = {{"NCCL_P2P_DISABLE", "0"}, {"FI_PROVIDER", "efa"}, {"NCCL_NET", "OFI"}};
  LinkFacts links = ReadLinks(machine, "");
  EXPECT_EQ(links.efa_devices, 4);
  EXPECT_TRUE(links.has_plugin);
  EXPECT_THAT(links.keeps_from_node, IsEmpty());
  EXPECT_THAT(links.keeps_from_fabric, IsEmpty());
  machine.libraries.clear();
  machine.environment = {{"NCCL_P2P_DISABLE", "1"}, {"FI_PROVIDER", "tcp"}, {"NCCL_NET", "Socket"}};
  links = ReadLinks(machine, "");
  EXPECT_FALSE(links.has_plugin);
  EXPECT_EQ(links.keeps_from_node, "NCCL_P2P_DISABLE=1");
  EXPECT_EQ(links.keeps_from_fabric, "NCCL_NET=Socket, FI_PROVIDER=tcp");
}

TEST(ShareAllReduces, TellsEveryRankWhatEveryRankFound) {
  const std::vector<RankAllReduce> all = [] {
    std::vector<RankAllReduce> ranks = P5Nodes(1);
    ranks.resize(3);
    ranks[1].host = std::string(1000, 'x');
    ranks[1].links.keeps_from_node = "NCCL_P2P_DISABLE=1";
    ranks[2].found.wrong = WrongSum{Reach::kAcross, 5, 1, 2, 3};
    return ranks;
  }();
  for (const absl::Status& status : OnRanks(3, [&](Communicator& ranks) {
         const auto shared = ShareAllReduces(ranks, all[ranks.rank()], absl::Seconds(60));
         if (!shared.ok()) return shared.status();
         EXPECT_EQ(shared->size(), 3);
         EXPECT_THAT((*shared)[1].host, AllOf(HasSubstr("xxx"), Not(HasSubstr("y"))));
         EXPECT_EQ((*shared)[1].links.keeps_from_node, "NCCL_P2P_DISABLE=1");
         EXPECT_EQ((*shared)[0].links.efa_devices, 32);
         EXPECT_EQ((*shared)[0].links.instance_type, "p5.48xlarge");
         EXPECT_EQ((*shared)[0].found.node, 360);
         EXPECT_FALSE((*shared)[0].found.wrong.has_value());
         EXPECT_EQ((*shared)[2].found.wrong->element, 5);
         EXPECT_EQ((*shared)[2].found.wrong->wrong_elements, 3);
         EXPECT_EQ((*shared)[2].found.wrong->reach, Reach::kAcross);
         return absl::OkStatus();
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace muster::worker
