#include "worker/diagnose/rank_directory.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>

namespace muster::worker {
namespace {

RankDirectory Of(std::initializer_list<std::string_view> lines) {
  RankDirectory directory;
  for (const std::string_view line : lines) directory.Read(line);
  return directory;
}

constexpr std::string_view kRank9 =
    "n1:202:390 [1] NCCL INFO ncclCommInitRankConfig comm 0x5 rank 9 nranks 16 cudaDev 1 nvmlDev 1 "
    "busId 63000 commId 0x1 - Init COMPLETE";

TEST(RankDirectory, AProcessOfNcclIsKnownByItsCommunicatorAndADeviceByThatOfItsHost) {
  const RankDirectory directory = Of({kRank9});
  EXPECT_EQ(directory.Find("n1:202:777 [1] misc/socket.cc:71 NCCL WARN closed"), 9);
  EXPECT_EQ(directory.Find("n1:203:391 [2] misc/socket.cc:71 NCCL WARN closed"), 10);
  EXPECT_EQ(directory.Find("n2:203:391 [2] misc/socket.cc:71 NCCL WARN closed"), std::nullopt);
  // Each process sees one device, which it calls by the same number.
  EXPECT_EQ(directory.Find("n1:203:391 [1] misc/socket.cc:71 NCCL WARN closed"), std::nullopt);
  EXPECT_EQ(directory.Find("failed (exitcode: -9) local_rank: 3 (pid: 204) of binary: x"), 11);
}

TEST(RankDirectory, ADevicesFaultIsOfTheRankOnItsPciAddress) {
  constexpr std::string_view kXid = "Aug 22 22:10:09 n1 kernel: NVRM: Xid (PCI:0000:63:00): 79, x";
  EXPECT_EQ(Of({kRank9}).Find(kXid), 9);
  constexpr std::string_view kRank1 =
      "n0:202:390 [1] NCCL INFO ncclCommInitRank comm 0x5 rank 1 nranks 16 busId 63000 - Init";
  EXPECT_EQ(Of({kRank1, kRank9}).Find(kXid), 9);
  EXPECT_EQ(Of({kRank1, kRank9}).Find("NVRM: Xid (PCI:0000:63:00): 79, x"), std::nullopt);
  RankDirectory directory = Of({"NVRM: Xid (PCI:0000:4e:00): 45, pid=330812, name=python3"});
  directory.Learn(330812, 1);
  EXPECT_EQ(directory.Find("NVRM: Xid (PCI:0000:4e:00): 74, pid='<unknown>', x"), 1);
  EXPECT_EQ(directory.Find("Memory cgroup out of memory: Killed process 330812 (python3)"), 1);
}

TEST(RankDirectory, LaunchersNameProcessesAndTasks) {
  const RankDirectory directory =
      Of({"(TorchTrainer pid=80, ip=10.0.0.1) - (ip=10.0.0.2, pid=3907) world_rank=3, local_rank=1",
          "(RayTrainWorker pid=71, ip=10.0.0.1) Setting up for: env:// [rank=0, world_size=4]"});
  EXPECT_EQ(directory.Find("(RayTrainWorker pid=3907, ip=10.0.0.2) "), 3);
  EXPECT_EQ(directory.Find("(RayTrainWorker pid=71, ip=10.0.0.1) "), 0);
  EXPECT_EQ(directory.Find("(TorchTrainer pid=80, ip=10.0.0.1) "), std::nullopt);
  EXPECT_EQ(directory.Find("srun: error: n1: task 43: Killed"), 43);
  EXPECT_EQ(directory.Find("srun: error: n1: tasks 0-7: Killed"), std::nullopt);
  EXPECT_EQ(directory.Find("mpirun noticed that process rank 6 with PID 0 on node h2 exited"), 6);
}

TEST(RankDirectory, WhatTwoRanksCouldBeMeantByIsNobody) {
  RankDirectory directory;
  directory.Learn(41, 1);
  directory.Learn(41, 9);
  EXPECT_EQ(directory.OfProcess(41), std::nullopt);
  EXPECT_EQ(directory.Find("Killed process 41 (python3)"), std::nullopt);
}

}  // namespace
}  // namespace muster::worker
