#include "worker/launch/python_stack.h"

#include <gtest/gtest.h>

#include "absl/strings/str_split.h"

namespace muster::worker {
namespace {

PythonStack StackOf(absl::string_view text) {
  PythonStack stack;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) stack.Read(line);
  return stack;
}

constexpr char kWaiting[] =
    "Fatal Python error: Aborted\n"
    "\n"
    "Thread 0x00007f58d97fe6c0 (most recent call first):\n"
    "  File \"/usr/lib/python3.11/threading.py\", line 324 in wait\n"
    "\n"
    "Current thread 0x00007f58d9fad4c0 (most recent call first):\n"
    "  File \"/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py\", line 1534 in "
    "all_reduce\n"
    "  File \"/work/train.py\", line 31 in step\n"
    "  File \"/work/train.py\", line 60 in <module>\n"
    "\n"
    "Extension modules: torch._C (total: 1)\n"
    "  File \"/not/a/frame.py\", line 1 in any more\n";

TEST(PythonStack, TheMainThreadsFramesAreReadFromTheInnermostOn) {
  const PythonStack stack = StackOf(kWaiting);
  ASSERT_EQ(stack.frames().size(), 3U);
  EXPECT_EQ(stack.frames()[0].function, "all_reduce");
  EXPECT_EQ(stack.frames()[2].line, 60);
}

TEST(PythonStack, TheUsersOwnPlaceIsToldNotTheLibrarys) {
  const PythonStack stack = StackOf(kWaiting);
  EXPECT_EQ(ToText(*UserFrame(stack.frames())), "train.py:31 (step)");
  EXPECT_EQ(UserFrame({}), nullptr);
}

TEST(PythonStack, WhoIsInACollectiveWaitsForOthers) {
  EXPECT_TRUE(WaitsForOthers(StackOf(kWaiting).frames()));
  EXPECT_FALSE(WaitsForOthers(StackOf("Current thread 0x1 (most recent call first):\n"
                                      "  File \"/work/train.py\", line 12 in load\n")
                                  .frames()));
}

TEST(PythonStack, OrdinaryOutputIsNoStack) {
  EXPECT_TRUE(StackOf("Traceback (most recent call last):\n"
                      "  File \"train.py\", line 3, in <module>\n"
                      "ValueError: x\n")
                  .frames()
                  .empty());
}

}  // namespace
}  // namespace muster::worker
