#include "worker/diagnose/log_time.h"

#include <gtest/gtest.h>

#include <string>

namespace muster::worker {
namespace {

std::string Time(std::string_view line) {
  const auto time = TimeOf(line);
  if (!time) return "";
  return absl::FormatTime(time->has_year ? "%Y-%m-%d %H:%M:%E*S" : "%m-%d %H:%M:%E*S", time->time,
                          absl::UTCTimeZone());
}

TEST(LogTime, TimesOfAllWhoWriteIntoAWorkersLog) {
  EXPECT_EQ(Time("[2026-01-01 12:08:32] node-0:194:710 [0] NCCL WARN x"), "2026-01-01 12:08:32");
  EXPECT_EQ(Time("2026-01-01T12:08:32.123456789Z stdout F text"), "2026-01-01 12:08:32.123456789");
  EXPECT_EQ(Time("2026-01-01T21:08:32.5+09:00 text"), "2026-01-01 12:08:32.5");
  EXPECT_EQ(Time("[2025-12-31 17:08:24,236] [WARNING] [stage3.py:2236:step]"),
            "2025-12-31 17:08:24.236");
  EXPECT_EQ(Time("  time      : 2026-01-01_11:10:18"), "2026-01-01 11:10:18");
  EXPECT_EQ(Time("E0101 11:10:18.826000 7 site-packages/torch/api.py:874] failed"),
            "01-01 11:10:18.826");
  EXPECT_EQ(Time("[rank0]:[W101 12:08:33.945328381 ProcessGroupNCCL.cpp:1538] Warning"),
            "01-01 12:08:33.945328381");
  EXPECT_EQ(Time("[rank3]:[E1206 18:44:13.275158817 ProcessGroupNCCL.cpp:607] [Rank 3]"),
            "12-06 18:44:13.275158817");
  EXPECT_EQ(Time("libfabric:194:1767269312::efa:cq:efa_rdm_txe_handle_error():737<warn> err"),
            "2026-01-01 12:08:32");
  EXPECT_EQ(Time("[Thu Jan  1 12:08:32 2026] NVRM: Xid (PCI:0000:53:00): 79, GPU"),
            "2026-01-01 12:08:32");
  EXPECT_EQ(Time("Jan  1 12:08:32 node-0 kernel: NVRM: Xid (PCI:0000:53:00): 79, GPU"),
            "01-01 12:08:32");
  EXPECT_EQ(Time("      Finished:     Thu, 01 Jan 2026 21:08:33 +0900"), "2026-01-01 12:08:33");
}

TEST(LogTime, TheKernelsRecordsAreTold) {
  for (const char* record :
       {"[5120221.100211] LustreError: x", "[   12.100211] x", "[Thu Jan  1 12:08:32 2026] x",
        "Jan  1 12:08:32 node-0 kernel: x", "node-0 | [5120221.100211] x"}) {
    EXPECT_TRUE(IsOfKernel(record)) << record;
  }
  for (const char* other : {"", "[", "[12.5] x", "[12.100211]", "[.100211] x", "[1.1002113] x"}) {
    EXPECT_FALSE(IsOfKernel(other)) << other;
  }
}

TEST(LogTime, WhatIsNoTimeIsNone) {
  EXPECT_EQ(Time("node-0:194:712 [0] NCCL INFO transport.cc:198 -> 6"), "");
  EXPECT_EQ(Time("Epoch 12:08:32 of 2026-13-01 12:08:32"), "");
  EXPECT_EQ(Time("2026-02-30 12:08:32"), "");
  EXPECT_EQ(Time("      Started:      Thu, 01 Jan 2026 12:08:33 +0000"), "");
  EXPECT_EQ(Time(std::string(200, '.') + " 2026-01-01 12:08:32"), "");
}

TEST(LogTime, WhatSetsATimeOffBelongsToIt) {
  for (const char* time :
       {"2026-03-02 10:41:17,123 ", "[10:41:17] ", "03-02 10:41:17.5 - ", "2026/03/02 10:41:17 ",
        "May 27 15:02:40.123456 ", "Thu 2026-05-07 15:02:40 UTC ", "2026-03-02T10:41:17+0000 ",
        "(10:41:17) ", "10:41:17 | ", "[2026-03-02, 10:41:17 UTC] "}) {
    EXPECT_EQ(TimeLength(std::string(time) + " x"), std::string_view(time).size()) << time;
  }
  for (const char* none :
       {"", "step 1", "10:41", "10:41:17", "1/2 x", "2026-03-02 x", "[10:41:17 x"}) {
    EXPECT_EQ(TimeLength(none), 0) << none;
  }
}

TEST(LogTime, ATimeWithoutAYearIsInTheYearThatFits) {
  const absl::Time new_year =
      absl::FromCivil(absl::CivilSecond(2026, 1, 1, 0, 0, 5), absl::UTCTimeZone());
  const auto near = [&](std::string_view line) {
    return absl::FormatTime("%Y-%m-%d", WithYearNear(TimeOf(line)->time, new_year),
                            absl::UTCTimeZone());
  };
  EXPECT_EQ(near("E1231 23:59:58.000000 7 x] y"), "2025-12-31");
  EXPECT_EQ(near("E0101 00:00:09.000000 7 x] y"), "2026-01-01");
}

}  // namespace
}  // namespace muster::worker
