#include "worker/diagnose/line_splitter.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace muster::worker {
namespace {

using Lines = std::vector<std::pair<int64_t, std::string>>;

// `text` cut into lines, given in chunks of `size` bytes.
Lines Split(std::string_view text, size_t size) {
  Lines lines;
  LineSplitter splitter;
  const auto receive = [&](int64_t number, std::string_view line) {
    lines.emplace_back(number, line);
  };
  for (size_t at = 0; at < text.size(); at += size) splitter.Feed(text.substr(at, size), receive);
  splitter.Finish(receive);
  return lines;
}

TEST(LineSplitter, NumbersLinesAsEditorsDoWhateverTheChunks) {
  for (const size_t size : {1, 2, 3, 100}) {
    EXPECT_EQ(Split("one\n\nthree\r\nfour", size), (Lines{{1, "one"}, {3, "three"}, {4, "four"}}))
        << size;
  }
}

TEST(LineSplitter, WhatFollowsAProgressBarIsALineOfItsOwn) {
  EXPECT_EQ(Split("start\n 1%|\r 2%|\rerror\nnext\n", 7),
            (Lines{{1, "start"}, {2, " 1%|"}, {2, " 2%|"}, {2, "error"}, {3, "next"}}));
}

TEST(LineSplitter, KeepsTheBeginningOfAnEndlessLine) {
  const Lines lines = Split(std::string(10 * LineSplitter::kMaxLine, 'x') + "\nnext\n", 5000);
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[0].second.size(), LineSplitter::kMaxLine);
  EXPECT_EQ(lines[1], (std::pair<int64_t, std::string>{2, "next"}));
}

}  // namespace
}  // namespace muster::worker
