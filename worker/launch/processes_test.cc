#include "worker/launch/processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/time/clock.h"

namespace muster::worker {
namespace {

// A child of this process that runs a shell's script; ended with the object.
class Child {
 public:
  explicit Child(const char* script) : pid_(fork()) {
    if (pid_ == 0) {
      setenv("RANK", "5", 1);
      execl("/bin/sh", "sh", "-c", script, nullptr);
      _exit(127);
    }
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// Until `holds`, for at most ten seconds.
template <typename Condition>
bool Comes(Condition holds) {
  for (int i = 0; i < 1000; ++i) {
    if (holds()) return true;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return false;
}

TEST(Processes, AProcessThatWaitsDoesNothingAndSaysWhere) {
  const Child child("exec sleep 60");
  ASSERT_TRUE(Comes([&] { return SampleOf(child.pid())->state == 'S'; }));
  ASSERT_TRUE(Comes([&] { return VariableOf(child.pid(), "RANK") == "5"; }));
  absl::SleepFor(absl::Milliseconds(100));
  const ProcessSample before = *SampleOf(child.pid());
  absl::SleepFor(absl::Milliseconds(300));
  const ProcessSample after = *SampleOf(child.pid());
  EXPECT_EQ(after.ticks, before.ticks);
  EXPECT_EQ(after.events, before.events);
  EXPECT_NE(WaitChannelOf(child.pid()).find("nanosleep"), std::string::npos);
  EXPECT_EQ(VariableOf(child.pid(), "RANK"), "5");
  EXPECT_EQ(VariableOf(child.pid(), "RAN"), std::nullopt);
}

TEST(Processes, OneThatComputesAndOneThatReadsAreTold) {
  const Child computes("while :; do :; done");
  const Child reads("while :; do read line </proc/self/stat; done");
  const ProcessSample a = *SampleOf(computes.pid());
  const ProcessSample b = *SampleOf(reads.pid());
  EXPECT_TRUE(Comes([&] { return SampleOf(computes.pid())->ticks > a.ticks + 5; }));
  EXPECT_TRUE(Comes([&] { return SampleOf(reads.pid())->events > b.events + 100; }));
}

TEST(Processes, AStoppedOneIsTold) {
  const Child child("exec sleep 60");
  kill(child.pid(), SIGSTOP);
  EXPECT_TRUE(Comes([&] { return SampleOf(child.pid())->state == 'T'; }));
}

TEST(Processes, WhatAChildHasStartedIsBelowItToo) {
  const Child child("sleep 60 & wait");
  pid_t grandchild = 0;
  EXPECT_TRUE(Comes([&] {
    for (const ProcessSample& process : ProcessesBelow(getpid())) {
      if (process.parent == child.pid()) grandchild = process.pid;
    }
    return grandchild != 0;
  }));
  kill(grandchild, SIGKILL);
  EXPECT_TRUE(Comes([&] { return !SampleOf(grandchild).has_value(); }));
}

}  // namespace
}  // namespace muster::worker
