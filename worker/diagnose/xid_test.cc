#include "worker/diagnose/xid.h"

#include <gtest/gtest.h>

#include <string>

#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

TEST(Xid, EveryRowIsReadFromTheKernelsLine) {
  for (const Xid& xid : Xids()) {
    const std::string line =
        Concat("[Thu Jan  1 12:08:32 2026] NVRM: Xid (PCI:0000:53:00): ", xid.number,
               ", pid=192, name=python, text");
    ASSERT_NE(FindXid(line), nullptr) << line;
    EXPECT_EQ(FindXid(line)->number, xid.number);
  }
}

TEST(Xid, FaultsOfTheGpuAreToldFromFaultsOfTheProgram) {
  for (const int number : {48, 79, 95, 119, 120}) {
    EXPECT_EQ(FindXid(Concat("XID ", number, ": x"))->cause, CauseId::kGpuFault) << number;
  }
  EXPECT_EQ(FindXid("NVRM: Xid (PCI:0000:53:00): 31, pid=7")->cause, CauseId::kProgramFault);
  EXPECT_EQ(FindXid("NVRM: Xid (PCI:0000:53:00): 94, pid=7")->cause,
            CauseId::kContainedMemoryError);
}

TEST(Xid, WhatEndsNoJobIsNone) {
  EXPECT_EQ(FindXid("NVRM: Xid (PCI:0000:53:00): 63, Row remapper: pending"), nullptr);
  EXPECT_EQ(FindXid("NVRM: Xid (PCI:0000:53:00): 45, pid=192, Ch 00000010"), nullptr);
  EXPECT_EQ(FindXid("transaction txid 79 and taXid 79"), nullptr);
  EXPECT_EQ(FindXid("Xid (PCI:0000"), nullptr);
  EXPECT_EQ(FindXid("Xid"), nullptr);
}

}  // namespace
}  // namespace muster::worker
