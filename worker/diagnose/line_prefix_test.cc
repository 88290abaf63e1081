#include "worker/diagnose/line_prefix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fmt/format.h"

namespace muster::worker {
namespace {

using ::testing::ElementsAre;

// Lines of a program, a traceback's among them, each behind what `prefix` makes for it.
template <typename MakePrefix>
LinePrefix LearnedFrom(MakePrefix prefix) {
  LinePrefix learned;
  for (int i = 0; i < 20; ++i) {
    const std::string line = i % 5 == 4   ? "Traceback (most recent call last):"
                             : i % 5 == 3 ? "  File \"a.py\", line 1, in f"
                             : i % 5 == 2 ? "done"
                                          : fmt::format("step {} loss 2", i);
    learned.Learn(prefix(i) + line);
  }
  learned.Settle();
  return learned;
}

std::vector<std::string> Behind(LinePrefix learned, std::string_view line) {
  std::string source;
  const size_t length = learned.LengthIn(line, &source);
  return {std::string(line.substr(length)), source};
}

TEST(LinePrefix, WhatAllLinesBeginWithIsLearned) {
  const auto behind = [](const char* form, std::string_view line) {
    return Behind(LearnedFrom([&](int) { return std::string(form); }), line);
  };
  EXPECT_THAT(behind("[trainer] ", "[trainer]   File \"a.py\""),
              ElementsAre("  File \"a.py\"", "trainer "));
  EXPECT_THAT(behind("trainer/0 ", "trainer/0 KeyError: 'x'"),
              ElementsAre("KeyError: 'x'", "trainer/0 "));
  EXPECT_THAT(behind("stderr: ", "stderr: KeyError: 'x'"),
              ElementsAre("KeyError: 'x'", "stderr: "));
  EXPECT_THAT(behind("    ", "    KeyError: 'x'"), ElementsAre("KeyError: 'x'", ""));
  EXPECT_THAT(behind(">>> ", ">>> KeyError: 'x'"), ElementsAre("KeyError: 'x'", ">>> "));
  EXPECT_THAT(behind("[trainer] ", "KeyError: 'x'"), ElementsAre("KeyError: 'x'", ""));
}

TEST(LinePrefix, TimesDifferFromLineToLine) {
  const LinePrefix learned = LearnedFrom(
      [](int i) { return fmt::format("2026-03-02 10:41:{:02}.5 [17/train/23 (pid 44)] ", i); });
  EXPECT_THAT(Behind(learned, "2026-03-02 11:00:00.7 [17/train/23 (pid 44)]   File \"a.py\""),
              ElementsAre("  File \"a.py\"", "17/train/23 (pid 44) "));
}

TEST(LinePrefix, LinesMayBeNumbered) {
  EXPECT_THAT(Behind(LearnedFrom([](int i) { return fmt::format("{:6}\t", i + 1); }),
                     "   100\t  File \"a.py\""),
              ElementsAre("  File \"a.py\"", ""));
  EXPECT_THAT(Behind(LearnedFrom([](int i) { return fmt::format("a/train.log:{}:", 3 * i); }),
                     "a/train.log:100:  File \"a.py\""),
              ElementsAre("  File \"a.py\"", "a/train.log "));
  EXPECT_THAT(Behind(LearnedFrom([](int i) { return fmt::format("{}:", i % 4); }), "3:KeyError: x"),
              ElementsAre("3:KeyError: x", ""));
}

TEST(LinePrefix, SeveralWritersMayHaveOneForm) {
  const LinePrefix learned =
      LearnedFrom([](int i) { return fmt::format("[worker {}] ", char('a' + i % 2)); });
  EXPECT_THAT(Behind(learned, "[worker b] KeyError: 'x'"),
              ElementsAre("KeyError: 'x'", "worker b "));
}

TEST(LinePrefix, ALevelIsAProgramsOwnUntilOutputStandsBehindIt) {
  LinePrefix learned;
  for (int i = 0; i < 20; ++i) learned.Learn(fmt::format("INFO:train:step {} loss 2", i));
  learned.Settle();
  EXPECT_THAT(Behind(learned, "INFO:train:connection refused"),
              ElementsAre("INFO:train:connection refused", ""));
  std::string source;
  EXPECT_EQ(learned.LengthIn("INFO:train:[Epoch 3] done", &source), 0);
  EXPECT_EQ(learned.LengthIn("INFO:train:Traceback (most recent call last):", &source), 11);
  EXPECT_THAT(Behind(learned, "INFO:train:KeyError: 'x'"),
              ElementsAre("KeyError: 'x'", "INFO train "));
}

TEST(LinePrefix, WhatAProgramWritesIsNone) {
  for (const char* form : {"step {}: loss 2", "loss: {}", "{}: ValueError", "[W] {}", "{}"}) {
    LinePrefix learned;
    for (int i = 0; i < 20; ++i) learned.Learn(fmt::format(fmt::runtime(form), i));
    learned.Learn("and another");
    learned.Learn("and so on");
    learned.Learn("to the end");
    learned.Settle();
    const std::string line = fmt::format(fmt::runtime(form), 7);
    EXPECT_THAT(Behind(learned, line), ElementsAre(line, "")) << form;
  }
  LinePrefix few;
  few.Learn("[trainer] a");
  few.Settle();
  EXPECT_THAT(Behind(few, "[trainer] a"), ElementsAre("[trainer] a", ""));
}

TEST(LinePrefix, TheKernelsRecordsAreNoProcesss) {
  const LinePrefix learned = LearnedFrom([](int i) {
    return fmt::format("Mar 02 10:41:{:02} {}: ", i, i % 2 == 0 ? "train" : "kernel");
  });
  EXPECT_THAT(Behind(learned, "Mar 02 10:41:17 kernel: LustreError: x"),
              ElementsAre("Mar 02 10:41:17 kernel: LustreError: x", ""));
}

}  // namespace
}  // namespace muster::worker
