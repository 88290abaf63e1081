// How much two sides differ in a comparison, and why.
#pragma once

#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace muster::quota::testing {

class DifferenceTally {
 public:
  void AddCompared(int64_t count) { compared_ += count; }
  // Empty if it is of no kind that README.md of quota/ lists.
  void AddDifference(std::string_view why) {
    ++different_;
    ++by_kind_[std::string(why.empty() ? "(no listed reason)" : why)];
    if (why.empty()) ++unlisted_;
  }
  int64_t unlisted() const { return unlisted_; }

  // Prints it and fails on what is unlisted, or where more than 0.5 % differ of what is enough for
  // that not to be by chance. `what` was compared.
  void Judge(std::string_view what) const {
    constexpr int64_t kEnough = 20'000;
    std::cout << different_ << " of " << compared_ << " " << what << " differ from Kueue\n";
    for (const auto& [why, count] : by_kind_)
      std::cout << "  " << count << " because " << why << "\n";
    EXPECT_EQ(unlisted_, 0);
    if (compared_ >= kEnough) {
      EXPECT_LE(different_ * 200, compared_) << "more than 0.5 %";
    }
  }

 private:
  int64_t compared_ = 0;
  int64_t different_ = 0;
  int64_t unlisted_ = 0;
  std::map<std::string, int64_t> by_kind_;
};

}  // namespace muster::quota::testing
