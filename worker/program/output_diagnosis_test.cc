#include "worker/program/output_diagnosis.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

constexpr char kClosed[] = "[E] NCCL WARN Connection closed by remote peer 10.0.0.3<4242>";
constexpr char kDiskFull[] = "OSError: [Errno 28] No space left on device: '/checkpoints/7.pt'";

TEST(OutputDiagnosis, WhatTheFirstRankSaysWentWrongByItselfExplainsTheEnd) {
  OutputDiagnosis diagnosis(/*streams_are_ranks=*/true);
  diagnosis.Read(0, true, kClosed);
  diagnosis.Read(3, true, kDiskFull);
  const auto told = diagnosis.Explain(3);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(CauseOf(told->cause).name, "disk-full");
  EXPECT_EQ(told->rank, 3);
}

TEST(OutputDiagnosis, AConnectionThatAnotherClosedIsExplainedByTheOther) {
  OutputDiagnosis diagnosis(/*streams_are_ranks=*/true);
  diagnosis.Read(0, true, kClosed);
  diagnosis.Read(3, true, kDiskFull);
  const auto told = diagnosis.Explain(0);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(CauseOf(told->cause).name, "disk-full");
  EXPECT_EQ(told->rank, 3);
}

TEST(OutputDiagnosis, WhereNobodySaysMoreWhatItSawIsTold) {
  OutputDiagnosis diagnosis(/*streams_are_ranks=*/true);
  diagnosis.Read(0, true, kClosed);
  const auto told = diagnosis.Explain(0);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(CauseOf(told->cause).name, "connection-closed");
}

TEST(OutputDiagnosis, OrdinaryLinesExplainNothing) {
  OutputDiagnosis diagnosis(/*streams_are_ranks=*/true);
  diagnosis.Read(0, false, "step 7 loss 3.2");
  diagnosis.Read(0, true, "  ");
  EXPECT_EQ(diagnosis.LastLine(0), "step 7 loss 3.2");
  EXPECT_EQ(diagnosis.LastLine(1), "");
  EXPECT_FALSE(diagnosis.Explain(0).has_value());
}

TEST(OutputDiagnosis, ALaunchersStreamIsNoRanks) {
  OutputDiagnosis diagnosis(/*streams_are_ranks=*/false);
  diagnosis.Read(0, true, kDiskFull);
  const auto told = diagnosis.Explain(0);
  ASSERT_TRUE(told.has_value());
  EXPECT_FALSE(told->rank.has_value());
}

}  // namespace
}  // namespace muster::worker
