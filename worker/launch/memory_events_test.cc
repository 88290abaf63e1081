#include "worker/launch/memory_events.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "worker/checkpoint/test_directory.h"

namespace muster::worker {
namespace {

class MemoryEventsTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root() + path).parent_path());
    std::ofstream(root() + path) << text;
  }
  std::string root() const { return directory_ / "root"; }

  const TestDirectory directory_;
};

TEST_F(MemoryEventsTest, ARankThatWasKilledAtTheContainersLimitIsCounted) {
  Write("/proc/self/cgroup", "0::/kubepods/pod1/abc\n");  // as the node sees it
  Write("/sys/fs/cgroup/memory.events", "low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\n");
  Write("/sys/fs/cgroup/memory.max", "536870912\n");
  const auto events = ReadMemoryEvents(root());
  ASSERT_TRUE(events.has_value());
  EXPECT_EQ(events->killed, 1);
  EXPECT_EQ(events->limit_reached, 2);
  EXPECT_EQ(events->limit, 536870912);
}

TEST_F(MemoryEventsTest, WithoutALimitThereIsNone) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.events", "oom 0\noom_kill 1\n");
  Write("/sys/fs/cgroup/memory.max", "max\n");
  const auto events = ReadMemoryEvents(root());
  ASSERT_TRUE(events.has_value());
  EXPECT_EQ(events->killed, 1);
  EXPECT_EQ(events->limit_reached, 0) << "the node's memory was used up";
  EXPECT_FALSE(events->limit.has_value());
}

TEST_F(MemoryEventsTest, TheFirstVersionOfCgroupsTellsTheSame) {
  Write("/proc/self/cgroup", "5:memory:/pod1\n3:cpu:/\n0::/\n");
  Write("/sys/fs/cgroup/memory/pod1/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  Write("/sys/fs/cgroup/memory/pod1/memory.failcnt", "17\n");
  Write("/sys/fs/cgroup/memory/pod1/memory.limit_in_bytes", "1048576\n");
  const auto events = ReadMemoryEvents(root());
  ASSERT_TRUE(events.has_value());
  EXPECT_EQ(events->killed, 3);
  EXPECT_EQ(events->limit_reached, 17);
  EXPECT_EQ(events->limit, 1048576);
}

TEST_F(MemoryEventsTest, AMachineThatCountsNothingTellsNothing) {
  EXPECT_FALSE(ReadMemoryEvents(root()).has_value());
}

}  // namespace
}  // namespace muster::worker
