#include "extender/warning_budget.h"

#include <gtest/gtest.h>

#include <string>

namespace muster::extender {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

TEST(WarningBudget, WhoTakesMoreThanHisPartWaitsForItAndNobodyElse) {
  WarningBudget budget;
  EXPECT_TRUE(budget.Allows("greedy", kStart));
  budget.Charge("greedy", absl::Milliseconds(600), kStart);
  EXPECT_FALSE(budget.Allows("greedy", kStart));
  EXPECT_TRUE(budget.Allows("other", kStart));
  // 100 ms are to be made up for, at a fiftieth of a processor.
  EXPECT_FALSE(budget.Allows("greedy", kStart + absl::Milliseconds(4'900)));
  EXPECT_TRUE(budget.Allows("greedy", kStart + absl::Milliseconds(5'100)));
}

TEST(WarningBudget, AllTogetherHaveAPartToo) {
  WarningBudget budget;
  for (const char* each : {"a", "b", "c"}) budget.Charge(each, absl::Milliseconds(400), kStart);
  EXPECT_FALSE(budget.Allows("new", kStart));
  EXPECT_TRUE(budget.Allows("new", kStart + absl::Seconds(3)));
}

TEST(WarningBudget, RestSavesNoMoreThanOnceThePart) {
  WarningBudget budget;
  budget.Charge("a", absl::Milliseconds(1), kStart);
  const absl::Time later = kStart + absl::Hours(24);
  budget.Charge("a", absl::Milliseconds(500), later);
  EXPECT_FALSE(budget.Allows("a", later));
}

TEST(WarningBudget, RemembersABoundedNumberOfNamespacesAndForgetsNoDebtor) {
  WarningBudget budget;
  budget.Charge("greedy", absl::Milliseconds(800), kStart);
  for (size_t i = 0; i < 2 * WarningBudget::kMostNamespaces; ++i) {
    budget.Charge("n" + std::to_string(i), absl::Microseconds(10), kStart);
  }
  EXPECT_EQ(budget.namespaces(), WarningBudget::kMostNamespaces);
  EXPECT_FALSE(budget.Allows("greedy", kStart));
}

}  // namespace
}  // namespace muster::extender
