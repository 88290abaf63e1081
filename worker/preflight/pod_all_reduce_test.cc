// On made-up libraries of CUDA and NCCL (made_up_cuda.cc, made_up_nccl.cc), in this process. What
// hangs or crashes is in program/launch_all_reduce_test.cc.
#include "worker/preflight/pod_all_reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace muster::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class PodAllReduces : public testing::Test {
 protected:
  ~PodAllReduces() override {
    for (const char* name : {"MADE_UP_GPUS", "MADE_UP_NCCL"}) unsetenv(name);
  }

  static PodAllReduce Try(const std::string& nccl = MUSTER_MADE_UP_NCCL) {
    return TryPodAllReduce(
        {.nccl = nccl, .cuda = MUSTER_MADE_UP_CUDA, .time = absl::Milliseconds(20)},
        [](std::string_view) {});
  }
  // As in a pod that is node 1 and has the ranks from 8 on.
  static AllReduceVerdict Judge(const PodAllReduce& found, const std::string& instance_type = "",
                                std::optional<double> node_bandwidth = std::nullopt) {
    return CheckPodAllReduce(
        found,
        {.first_rank = 8, .node = 1, .host = "train-1", .links = {.instance_type = instance_type}},
        {.node = node_bandwidth});
  }
};

TEST_F(PodAllReduces, AreExactAndTimedAndSayByWhichNccl) {
  const PodAllReduce found = Try();
  ASSERT_FALSE(found.error.has_value()) << found.error->text;
  ASSERT_EQ(found.gpus.size(), 2);
  EXPECT_EQ(found.gpus[1].name, "GPU 1 (0000:20:00.0)");
  EXPECT_GT(found.gpus[1].found.node, 0);
  const AllReduceVerdict verdict = Judge(found, "", 0.001);
  EXPECT_EQ(ExitCodeOf(verdict.rows), 0);
  ASSERT_EQ(verdict.rows.size(), 2);
  EXPECT_EQ(verdict.rows[0].numbers,
            "exact on 2 ranks of 1 node; NCCL 2.28.9 of " MUSTER_MADE_UP_NCCL);
  EXPECT_THAT(verdict.rows[1].numbers, StartsWith("node 1 (train-1) "));
  EXPECT_EQ(verdict.rows[1].verdict, Verdict::kOk);
}

TEST_F(PodAllReduces, AreJudgedByTheInstanceType) {
  const PodAllReduce found = Try();
  const AllReduceVerdict slow = Judge(found, "p5.48xlarge");
  EXPECT_EQ(slow.rows.back().cause, CauseId::kGpuLinksSlow);
  EXPECT_EQ(FailureOf(slow, 1)->host, "train-1");
  EXPECT_EQ(Judge(found).rows.back().verdict, Verdict::kWarning);
}

TEST_F(PodAllReduces, OneGpuShowsThatLibraryAndDriverWork) {
  setenv("MADE_UP_GPUS", "1", 1);
  const AllReduceVerdict verdict = Judge(Try(), "p5.48xlarge");
  ASSERT_EQ(verdict.rows.size(), 1);
  EXPECT_THAT(verdict.rows[0].numbers, StartsWith("exact on 1 rank of 1 node"));
  setenv("MADE_UP_NCCL", "wrong", 1);
  EXPECT_EQ(Judge(Try()).rows[0].cause, CauseId::kAllReduceWrong);
}

TEST_F(PodAllReduces, AWrongElementIsToldWithItsGpu) {
  setenv("MADE_UP_NCCL", "wrong", 1);
  const AllReduceVerdict verdict = Judge(Try());
  ASSERT_EQ(verdict.rows.size(), 1);
  EXPECT_EQ(verdict.rows[0].cause, CauseId::kAllReduceWrong);
  EXPECT_THAT(
      verdict.rows[0].numbers,
      AllOf(StartsWith("rank 9 on train-1, GPU 1 (0000:20:00.0), in its node: element 5 is "),
            HasSubstr(", 2 wrong in all; NCCL 2.28.9 of ")));
  EXPECT_EQ(FailureOf(verdict, 1)->rank, 9);
}

TEST_F(PodAllReduces, WhatNcclSaysOfItsStartIsTheCause) {
  setenv("MADE_UP_NCCL", "error", 1);
  const AllReduceVerdict verdict = Judge(Try());
  EXPECT_EQ(verdict.rows[0].cause, CauseId::kGpuFabricDown);
  EXPECT_THAT(verdict.rows[0].numbers,
              StartsWith("NCCL error in ncclCommInitAll: unhandled cuda error (run with "
                         "NCCL_DEBUG=INFO for details); Cuda failure 802 'system not yet "
                         "initialized'; NCCL 2.28.9 of "));
  EXPECT_EQ(FailureOf(verdict, 1)->rank, std::nullopt);
}

TEST_F(PodAllReduces, ALibraryThatLacksAFunctionIsNamedWithIt) {
  const AllReduceVerdict verdict = Judge(Try(MUSTER_MADE_UP_OLD_NCCL));
  EXPECT_EQ(verdict.rows[0].cause, CauseId::kLibraryMismatch);
  EXPECT_THAT(verdict.rows[0].numbers,
              StartsWith(MUSTER_MADE_UP_OLD_NCCL " has no ncclCommInitAll"));
}

TEST_F(PodAllReduces, ADriverWithoutGpusIsNamed) {
  setenv("MADE_UP_GPUS", "0", 1);
  const AllReduceVerdict verdict = Judge(Try());
  EXPECT_EQ(verdict.rows[0].cause, CauseId::kDriverMissing);
  EXPECT_THAT(verdict.rows[0].numbers, StartsWith("cuInit: no CUDA-capable device"));
}

TEST_F(PodAllReduces, AreLeftOutWithoutALibrary) {
  for (const PodAllReduce& found :
       {Try("libnccl-none.so.2"),
        TryPodAllReduce({.nccl = MUSTER_MADE_UP_NCCL, .cuda = "libcuda-none.so.1"},
                        [](std::string_view) {})}) {
    const AllReduceVerdict verdict = Judge(found);
    ASSERT_EQ(verdict.rows.size(), 1);
    EXPECT_EQ(verdict.rows[0].verdict, Verdict::kOk);
    EXPECT_THAT(verdict.rows[0].numbers,
                AllOf(StartsWith("not tried: lib"), HasSubstr("-none.so")));
    EXPECT_FALSE(FailureOf(verdict, 1).has_value());
  }
}

TEST_F(PodAllReduces, AreTheSameAfterTheirWayBetweenProcesses) {
  PodAllReduce found = {.library = "/opt/\"nccl\"\n", .version = "2.28.9"};
  found.gpus = {{.name = "GPU 0"}, {.name = "GPU 1"}};
  found.gpus[0].found.node = 0.1;
  found.gpus[1].found.wrong = WrongSum{.element = 123'456'789'012,
                                       .found = std::numeric_limits<float>::quiet_NaN(),
                                       .expected = 16'777'215,
                                       .wrong_elements = 3};
  const auto read =
      ParsePodAllReduce("step: cuInit\n{ a library's words }\n" + PodAllReduceJson(found));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->library, found.library);
  EXPECT_EQ(read->version, found.version);
  EXPECT_FALSE(read->error.has_value());
  ASSERT_EQ(read->gpus.size(), 2);
  EXPECT_EQ(read->gpus[0].found.node, 0.1);
  EXPECT_FALSE(read->gpus[0].found.wrong.has_value());
  const WrongSum& wrong = *read->gpus[1].found.wrong;
  EXPECT_TRUE(std::isnan(wrong.found));
  EXPECT_EQ(wrong.element, 123'456'789'012);
  EXPECT_EQ(wrong.expected, 16'777'215);
  EXPECT_EQ(wrong.wrong_elements, 3);

  found = {.error = ImageNcclError{.cause = CauseId::kGpuFault, .text = "a\tb", .gpu = 3}};
  const auto failed = ParsePodAllReduce(PodAllReduceJson(found));
  ASSERT_TRUE(failed.ok()) << failed.status();
  EXPECT_EQ(failed->error->cause, CauseId::kGpuFault);
  EXPECT_EQ(failed->error->text, "a\tb");
  EXPECT_EQ(failed->error->gpu, 3);

  for (const char* text : {"", "{", "{\n}", "step: cuInit\n", "{\n\"library\": 3}"}) {
    EXPECT_EQ(ParsePodAllReduce(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace muster::worker
