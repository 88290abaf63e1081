// Every launcher's environment, as its pods have it.
#include "worker/launch/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"

namespace muster::worker {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string name;
  Environment environment;
  Host host;
  LaunchOverrides overrides = {};
  // What is expected:
  std::string source;
  int nodes = 1;
  int node_rank = 0;
  int processes = 1;
  std::string store = "127.0.0.1:29500";
  std::string note = "";  // part of the notes; empty: there are none
};

const Case kCases[] = {
    {.name = "NothingSet",
     .environment = {},
     .host = {"laptop", 0},
     .source = "this machine alone"},
    {.name = "NothingSetOnEightDevices",
     .environment = {},
     .host = {"node", 8},
     .source = "this machine alone",
     .processes = 8},
    {.name = "PyTorchJobWithMaster",
     .environment = {{"MASTER_ADDR", "job-master-0"},
                     {"MASTER_PORT", "23456"},
                     {"WORLD_SIZE", "4"},
                     {"RANK", "2"},
                     {"PET_MASTER_ADDR", "job-master-0"},
                     {"PET_MASTER_PORT", "23456"},
                     {"PET_NODE_RANK", "2"},
                     {"PET_NNODES", "4"},
                     {"PYTHONUNBUFFERED", "1"}},
     .host = {"job-worker-1", 1},
     .source = "PyTorchJob",
     .nodes = 4,
     .node_rank = 2,
     .store = "job-master-0:23456"},
    {.name = "PyTorchJobWhoseRankIsThePodsNumber",
     .environment = {{"MASTER_ADDR", "job-master-0"},
                     {"MASTER_PORT", "23456"},
                     {"WORLD_SIZE", "16"},
                     {"RANK", "1"},
                     {"PET_NODE_RANK", "1"},
                     {"PET_NNODES", "2"},
                     {"PET_NPROC_PER_NODE", "8"}},
     .host = {"job-worker-0", 8},
     .source = "PyTorchJob",
     .nodes = 2,
     .node_rank = 1,
     .processes = 8,
     .store = "job-master-0:23456"},
    {.name = "PyTorchJobThatForgotNprocPerNode",
     .environment = {{"MASTER_ADDR", "job-master-0"},
                     {"MASTER_PORT", "23456"},
                     {"WORLD_SIZE", "2"},
                     {"RANK", "1"},
                     {"PET_NODE_RANK", "1"},
                     {"PET_NNODES", "2"}},
     .host = {"job-worker-0", 8},
     .source = "PyTorchJob",
     .nodes = 2,
     .node_rank = 1,
     .processes = 8,
     .store = "job-master-0:23456",
     .note = "WORLD_SIZE=2, but 2 nodes with 8 processes each are 16 ranks"},
    {.name = "PodRankWithoutPet",
     .environment = {{"MASTER_ADDR", "10.0.0.1"}, {"WORLD_SIZE", "3"}, {"RANK", "2"}},
     .host = {"pod", 0},
     .source = "RANK and WORLD_SIZE",
     .nodes = 3,
     .node_rank = 2,
     .store = "10.0.0.1:29500"},
    {.name = "ElasticPyTorchJob",
     .environment = {{"PET_RDZV_ENDPOINT", "job-worker-0:29400"},
                     {"PET_RDZV_BACKEND", "c10d"},
                     {"PET_NNODES", "2:4"},
                     {"PET_MAX_RESTARTS", "3"},
                     {"PET_RDZV_ID", "job"}},
     .host = {"job-worker-3", 0},
     .source = "elastic PyTorchJob",
     .nodes = 4,
     .node_rank = 3,
     .store = "job-worker-0:29400",
     .note = "PET_NNODES=2:4: waiting for all 4\nnode rank 3 from the host name job-worker-3"},
    {.name = "ElasticPyTorchJobAtAnIpv6Address",
     .environment = {{"PET_RDZV_ENDPOINT", "[fd00::7]:29400"}, {"PET_NNODES", "2:2"}},
     .host = {"job-worker-1", 0},
     .source = "elastic PyTorchJob",
     .nodes = 2,
     .node_rank = 1,
     .store = "[fd00::7]:29400",
     .note = "node rank 1 from the host name job-worker-1"},
    {.name = "TrainJob",
     .environment = {{"PET_NNODES", "2"},
                     {"PET_NPROC_PER_NODE", "auto"},
                     {"PET_NODE_RANK", "1"},
                     {"PET_MASTER_ADDR", "job-node-0-0.job"},
                     {"PET_MASTER_PORT", "29500"},
                     {"JOB_COMPLETION_INDEX", "1"}},
     .host = {"job-node-0-1.job.default.svc.cluster.local", 4},
     .source = "TrainJob",
     .nodes = 2,
     .node_rank = 1,
     .processes = 4,
     .store = "job-node-0-0.job:29500"},
    {.name = "TrainJobThatAsksForMoreThanTheDevices",
     .environment = {{"PET_NNODES", "1"}, {"PET_NPROC_PER_NODE", "8"}, {"PET_NODE_RANK", "0"}},
     .host = {"job-node-0-0", 4},
     .source = "TrainJob",
     .processes = 4,
     .note = "PET_NPROC_PER_NODE=8, but 4 devices are visible"},
    {.name = "TrainJobThatLeavesDevicesUnused",
     .environment = {{"PET_NNODES", "1"}, {"PET_NPROC_PER_NODE", "1"}, {"PET_NODE_RANK", "0"}},
     .host = {"job-node-0-0", 4},
     .source = "TrainJob",
     .note = "4 devices are visible, and PET_NPROC_PER_NODE=1 uses fewer"},
    {.name = "SeveralProcessesWithoutDevices",
     .environment = {{"PET_NNODES", "1"}, {"PET_NPROC_PER_NODE", "2"}, {"PET_NODE_RANK", "0"}},
     .host = {"job-node-0-0", 0},
     .source = "TrainJob",
     .processes = 2},
    {.name = "JobSet",
     .environment = {{"JOB_COMPLETION_INDEX", "1"}, {"NNODES", "4"}},
     .host = {"js-workers-0-1.js.default.svc.cluster.local", 2},
     .source = "JobSet or Indexed Job",
     .nodes = 4,
     .node_rank = 1,
     .processes = 2,
     .store = "js-workers-0-0.js.default.svc.cluster.local:29500",
     .note = "rank 0 is expected at js-workers-0-0.js.default.svc.cluster.local"},
    {.name = "JobSetOfSinglePodJobs",
     .environment = {{"JOB_COMPLETION_INDEX", "0"}, {"NNODES", "4"}},
     .host = {"my-run-node-3-0.my-run.default.svc.cluster.local", 2},
     .source = "JobSet of single-pod Jobs",
     .nodes = 4,
     .node_rank = 3,
     .processes = 2,
     .store = "my-run-node-0-0.my-run.default.svc.cluster.local:29500",
     .note = "node rank 3 from the host name my-run-node-3-0"},
    {.name = "JobSetOfSinglePodJobsWithPet",
     .environment = {{"JOB_COMPLETION_INDEX", "0"},
                     {"PET_NNODES", "2"},
                     {"MASTER_ADDR", "js-node-0-0.js"}},
     .host = {"js-node-1-0.js.default.svc.cluster.local", 0},
     .source = "TrainJob",
     .nodes = 2,
     .node_rank = 1,
     .store = "js-node-0-0.js:29500"},
    {.name = "IndexedJobWhoseNameEndsWithANumber",
     .environment = {{"JOB_COMPLETION_INDEX", "0"}, {"NNODES", "2"}},
     .host = {"train-1-0.train.default.svc.cluster.local", 0},
     .source = "JobSet or Indexed Job",
     .nodes = 2,
     .node_rank = 0,
     .store = "train-1-0.train.default.svc.cluster.local:29500",
     .note = "rank 0 is expected at train-1-0.train"},
    {.name = "IndexedJobWithMaster",
     .environment = {{"JOB_COMPLETION_INDEX", "2"},
                     {"WORLD_SIZE", "4"},
                     {"MASTER_ADDR", "job-0.job"},
                     {"MASTER_PORT", "1234"}},
     .host = {"job-2", 0},
     .source = "JobSet or Indexed Job",
     .nodes = 4,
     .node_rank = 2,
     .store = "job-0.job:1234",
     .note = "WORLD_SIZE=4 counts pods"},
    {.name = "FlagsWin",
     .environment = {{"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}, {"MASTER_ADDR", "a"}},
     .host = {"pod", 8},
     .overrides = {.nodes = 3,
                   .node_rank = 2,
                   .processes_per_node = 4,
                   .master_address = "b",
                   .master_port = 5},
     .source = "TrainJob",
     .nodes = 3,
     .node_rank = 2,
     .processes = 4,
     .store = "b:5"},
};

class LaunchEnvironment : public ::testing::TestWithParam<Case> {};

TEST_P(LaunchEnvironment, IsRead) {
  const Case& expected = GetParam();
  const auto plan = ReadLaunch(expected.environment, expected.host, expected.overrides);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->source, expected.source);
  EXPECT_EQ(plan->nodes, expected.nodes);
  EXPECT_EQ(plan->node_rank, expected.node_rank);
  EXPECT_EQ(plan->processes_per_node, expected.processes);
  EXPECT_EQ(plan->world_size, expected.nodes * expected.processes);
  EXPECT_EQ(plan->first_rank, expected.node_rank * expected.processes);
  EXPECT_EQ(ToText(plan->store), expected.store);
  EXPECT_FALSE(plan->local_rank.has_value());
  const std::string notes = absl::StrJoin(plan->notes, "\n");
  EXPECT_THAT(notes, HasSubstr(expected.note));
  EXPECT_EQ(notes.empty(), expected.note.empty()) << notes;
}

INSTANTIATE_TEST_SUITE_P(Launchers, LaunchEnvironment, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST(LaunchEnvironment, TorchrunsChildIsARankAndLeavesItsPortToTorchrun) {
  const auto plan = ReadLaunch({{"LOCAL_RANK", "1"},
                                {"RANK", "5"},
                                {"LOCAL_WORLD_SIZE", "4"},
                                {"WORLD_SIZE", "8"},
                                {"GROUP_RANK", "1"},
                                {"MASTER_ADDR", "node-0"},
                                {"MASTER_PORT", "29500"},
                                {"TORCHELASTIC_RUN_ID", "none"},
                                {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
                               {"node-1", 4}, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->source, "torchrun");
  EXPECT_EQ(plan->local_rank, 1);
  EXPECT_EQ(plan->first_rank + *plan->local_rank, 5);
  EXPECT_EQ(plan->world_size, 8);
  EXPECT_EQ(plan->node_rank, 1);
  EXPECT_EQ(ToText(plan->store), "node-0:29501");
  EXPECT_THAT(plan->notes.at(0), HasSubstr("torchrun listens on MASTER_PORT 29500"));
}

TEST(LaunchEnvironment, TheLaunchersOwnRanksReadWhatItMeant) {
  const auto pod = ReadLaunch({{"PET_NNODES", "3"},
                               {"PET_NODE_RANK", "2"},
                               {"PET_NPROC_PER_NODE", "4"},
                               {"PET_MASTER_ADDR", "node-0"}},
                              {"node-2", 4}, {});
  ASSERT_TRUE(pod.ok()) << pod.status();
  const auto rank = ReadLaunch(RankEnvironment(*pod, 3), {"node-2", 4}, {});
  ASSERT_TRUE(rank.ok()) << rank.status();
  EXPECT_EQ(rank->local_rank, 3);
  EXPECT_EQ(rank->first_rank + *rank->local_rank, 11);
  EXPECT_EQ(rank->world_size, 12);
  EXPECT_EQ(rank->node_rank, 2);
  EXPECT_EQ(ToText(rank->store), ToText(pod->store));
}

struct Nonsense {
  std::string name;
  Environment environment;
  std::string message;
};

class LaunchNonsense : public ::testing::TestWithParam<Nonsense> {};

TEST_P(LaunchNonsense, IsRefusedWithTheVariable) {
  const auto plan = ReadLaunch(GetParam().environment, {"pod", 0}, {});
  EXPECT_TRUE(absl::IsInvalidArgument(plan.status())) << plan.status();
  EXPECT_THAT(plan.status().message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Values, LaunchNonsense,
    ::testing::Values(
        Nonsense{"RankIsText", {{"RANK", "two"}, {"WORLD_SIZE", "2"}}, "RANK=two isn't a number"},
        Nonsense{"RankOutsideTheWorld",
                 {{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}},
                 "node rank 2 doesn't exist among 2 nodes"},
        Nonsense{
            "NoMaster", {{"RANK", "1"}, {"WORLD_SIZE", "2"}}, "2 nodes and no MASTER_ADDR: set it"},
        Nonsense{"NodeCountIsText",
                 {{"PET_NNODES", "two"}, {"PET_NODE_RANK", "0"}},
                 "PET_NNODES=two is neither a number nor min:max"},
        Nonsense{"NoNodeRank",
                 {{"PET_NNODES", "2"}, {"MASTER_ADDR", "a"}},
                 "PET_NNODES=2 without PET_NODE_RANK"},
        Nonsense{"NoCountOfAnIndexedJob",
                 {{"JOB_COMPLETION_INDEX", "0"}},
                 "set NNODES to the job's completions"},
        Nonsense{"ElasticWithoutANumberedName",
                 {{"PET_RDZV_ENDPOINT", "a:1"}, {"PET_NNODES", "2:4"}},
                 "the host name pod doesn't end with the pod's number"},
        Nonsense{"PortOutOfRange", {{"MASTER_PORT", "70000"}}, "MASTER_PORT: 70000 isn't a port"},
        Nonsense{"TorchrunsRankOutsideTheWorld",
                 {{"LOCAL_RANK", "0"}, {"RANK", "4"}, {"WORLD_SIZE", "4"}},
                 "RANK=4 doesn't exist in WORLD_SIZE=4"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace muster::worker
