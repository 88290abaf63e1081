#include "worker/launch/forms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

// The second of two pods with four ranks each.
LaunchPlan SecondPod() {
  return {.source = "PyTorchJob",
          .nodes = 2,
          .node_rank = 1,
          .processes_per_node = 4,
          .first_rank = 4,
          .world_size = 8,
          .local_rank = {},
          .store = {.host = "job-master-0", .port = 23456},
          .notes = {}};
}

TEST(Forms, ARankIsToldWhoItIsInEveryLaunchersWords) {
  const Environment rank = ProcessForms(SecondPod(), 2);
  const std::map<std::string, Environment> forms = {
      {"torchrun",
       {{"RANK", "6"},
        {"LOCAL_RANK", "2"},
        {"WORLD_SIZE", "8"},
        {"LOCAL_WORLD_SIZE", "4"},
        {"GROUP_RANK", "1"},
        {"MASTER_ADDR", "job-master-0"},
        {"MASTER_PORT", "23456"}}},
      {"DeepSpeed", {{"CROSS_RANK", "1"}, {"CROSS_SIZE", "2"}, {"LOCAL_SIZE", "4"}}},
      {"Open MPI",
       {{"OMPI_COMM_WORLD_RANK", "6"},
        {"OMPI_COMM_WORLD_SIZE", "8"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}},
      {"Slurm",
       {{"SLURM_PROCID", "6"},
        {"SLURM_LOCALID", "2"},
        {"SLURM_NTASKS", "8"},
        {"SLURM_NNODES", "2"},
        {"SLURM_NODEID", "1"},
        {"SLURM_NTASKS_PER_NODE", "4"}}}};
  for (const auto& [launcher, form] : forms) {
    for (const auto& variable : form) EXPECT_THAT(rank, Contains(variable)) << launcher;
  }
  EXPECT_THAT(rank, Not(Contains(Key("SLURM_JOB_ID")))) << "there is no Slurm to be asked";
}

TEST(Forms, ALauncherIsToldItsNodeAndFindsItsArguments) {
  EXPECT_THAT(NodeForms(SecondPod(), {}),
              AllOf(Contains(Pair("PET_NNODES", "2")), Contains(Pair("PET_NODE_RANK", "1")),
                    Contains(Pair("PET_NPROC_PER_NODE", "4")),
                    Contains(Pair("PET_MASTER_ADDR", "job-master-0")),
                    Contains(Pair("PET_MASTER_PORT", "23456")), Contains(Pair("NODE_RANK", "1")),
                    Not(Contains(Key("RANK"))), Not(Contains(Key("LOCAL_RANK")))));
}

TEST(Forms, WhatAPodSaysOfItsLaunchersArgumentsStays) {
  EXPECT_THAT(NodeForms(SecondPod(), {{"PET_NPROC_PER_NODE", "auto"}}),
              Not(Contains(Key("PET_NPROC_PER_NODE"))));
  EXPECT_THAT(NodeForms(SecondPod(), {{"PET_RDZV_ENDPOINT", "job-worker-0:23456"}}),
              AllOf(Not(Contains(Key("PET_NODE_RANK"))), Not(Contains(Key("PET_MASTER_ADDR")))));
}

TEST(Forms, ThreadsDoNotOutnumberTheProcessors) {
  EXPECT_THAT(Aids(SecondPod(), {}, 32), Contains(Pair("OMP_NUM_THREADS", "8")));
  EXPECT_THAT(Aids(SecondPod(), {}, 2), Contains(Pair("OMP_NUM_THREADS", "1")));
  EXPECT_THAT(Aids(SecondPod(), {{"OMP_NUM_THREADS", "3"}}, 32),
              Not(Contains(Key("OMP_NUM_THREADS"))));
}

}  // namespace
}  // namespace muster::worker
