#include "extender/process_stats.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/time/clock.h"
#include "fmt/format.h"

namespace muster::extender {
namespace {

TEST(ProcessStats, AreThoseOfThisProcess) {
  const ProcessStats stats = ReadProcessStats();
  EXPECT_GT(stats.resident_bytes, 1 << 20);
  EXPECT_GE(stats.virtual_bytes, stats.resident_bytes);
  EXPECT_GE(stats.threads, 1);
  EXPECT_GE(stats.open_files, 3);
  EXPECT_GE(stats.max_files, stats.open_files);
  const auto now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_LE(stats.start_time_seconds, now + 1);
  EXPECT_GT(stats.start_time_seconds, now - 3600);
}

TEST(ProcessStats, ANameMayHoldAnything) {
  const std::filesystem::path proc =
      std::filesystem::temp_directory_path() / fmt::format("muster-proc-{}", getpid());
  std::filesystem::create_directories(proc / "self/fd");
  std::ofstream(proc / "stat") << "cpu 1 2 3\nbtime 1000\n";
  std::ofstream(proc / "self/stat")
      << "7 (a ) b) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 9 0 200 4096 3 0\n";
  std::ofstream(proc / "self/fd/0");
  const ProcessStats stats = ReadProcessStats(proc);
  std::filesystem::remove_all(proc);
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  EXPECT_EQ(stats.cpu_seconds, 200 / ticks);
  EXPECT_EQ(stats.start_time_seconds, 1000 + 200 / ticks);
  EXPECT_EQ(stats.threads, 9);
  EXPECT_EQ(stats.virtual_bytes, 4096);
  EXPECT_EQ(stats.resident_bytes, 3 * sysconf(_SC_PAGESIZE));
  EXPECT_EQ(stats.open_files, 1);
  EXPECT_EQ(ReadProcessStats("/nowhere").threads, 0);
}

}  // namespace
}  // namespace muster::extender
