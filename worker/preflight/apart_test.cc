#include "worker/preflight/apart.h"

#include <gtest/gtest.h>

#include <csignal>

#include "absl/time/clock.h"

namespace muster::worker {
namespace {

using How = ApartEnd::How;

ApartEnd Shell(const std::string& script, ApartOptions options = {}) {
  options.program = "/bin/sh";
  const absl::StatusOr<ApartEnd> end = RunApart({"sh", "-c", script}, options);
  EXPECT_TRUE(end.ok()) << end.status();
  return end.value_or(ApartEnd());
}

TEST(Apart, WhatItWritesAndHowItEndsComeBack) {
  const ApartEnd end = Shell("echo one; sleep 0.2; echo two; exit 3");
  EXPECT_EQ(end.how, How::kExited);
  EXPECT_EQ(end.number, 3);
  EXPECT_EQ(end.answer, "one\ntwo\n");
}

TEST(Apart, ACrashIsItsOwn) {
  const ApartEnd end = Shell("echo begun; kill -SEGV $$");
  EXPECT_EQ(end.how, How::kSignalled);
  EXPECT_EQ(end.number, SIGSEGV);
  EXPECT_EQ(end.answer, "begun\n");
}

TEST(Apart, OneThatHangsIsKilledAtTheDeadline) {
  for (const char* script : {"echo $$; exec sleep 60", "echo $$; exec >&-; exec sleep 60"}) {
    const absl::Time begin = absl::Now();
    const ApartEnd end = Shell(script, {.timeout = absl::Milliseconds(300)});
    EXPECT_EQ(end.how, How::kLate);
    EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
    EXPECT_EQ(kill(std::stoi(end.answer), 0), -1) << "it still runs";
  }
}

TEST(Apart, ItEndsWhenItsStarterIsStopped) {
  int looks = 0;
  const ApartEnd end = Shell("exec sleep 60", {.stopped = [&] { return ++looks > 3; }});
  EXPECT_EQ(end.how, How::kStopped);
}

TEST(Apart, AnAnswerHasABound) {
  const ApartEnd end = Shell("head -c 30000000 /dev/zero; echo end");
  EXPECT_EQ(end.how, How::kExited);
  EXPECT_LT(end.answer.size(), 3 << 20);
}

TEST(Apart, AProgramThatIsNotThereIsAnError) {
  EXPECT_EQ(RunApart({"none"}, {.program = "/no/such/program"}).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace muster::worker
