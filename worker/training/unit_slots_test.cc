#include "worker/training/unit_slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

namespace muster::worker {
namespace {

// Blocks, and whether the head is tied.
class UnitSlotsOf : public testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  const int blocks = std::get<0>(GetParam());
  const int units = blocks + 2;
  const bool tied = std::get<1>(GetParam());
  UnitSlots slots{units, 2, tied};
  int late = 0;     // fetched when it was needed
  int fetched = 0;  // in all

  std::vector<int> Forward() const {
    std::vector<int> used(units);
    for (int unit = 0; unit < units; ++unit) used[unit] = unit;
    if (tied) used.push_back(0);
    return used;
  }

  // Units in the order of their use, fetched as Next() says.
  void Use(const std::vector<int>& used) {
    for (const int unit : used) {
      if (!slots.Holds(unit)) {
        ++late;
        ++fetched;
        slots.Put(unit);
      }
      if (const auto next = slots.Next(unit)) {
        ASSERT_NE(slots.SlotOf(*next), slots.SlotOf(unit)) << unit << " was still in use";
        ++fetched;
        slots.Put(*next);
      }
    }
  }

  void Step() {
    Use(Forward());
    for (int unit = blocks; unit >= 1; --unit) Use({unit});
  }
};

TEST_P(UnitSlotsOf, OnlyTheFirstUnitOfAStepIsWaitedFor) {
  for (int step = 0; step < 3; ++step) {
    slots.Clear();  // weights changed
    late = 0;
    fetched = 0;
    Step();
    EXPECT_EQ(late, 1);
    // Each block twice, but those that the forward leaves.
    EXPECT_EQ(fetched, units + std::max(0, blocks - 2));
  }
}

TEST_P(UnitSlotsOf, SeveralMicroBatchesFetchWhatIsNotThereAndWaitForNothing) {
  Step();
  late = 0;
  Step();
  Step();
  EXPECT_EQ(late, 0);
}

TEST_P(UnitSlotsOf, AValidationBetweenStepsChangesNothing) {
  Use(Forward());
  Use(Forward());
  EXPECT_EQ(late, 1);  // the first block is fetched again, but in time
  slots.Clear();
  late = 0;
  Step();
  EXPECT_EQ(late, 1);
}

INSTANTIATE_TEST_SUITE_P(, UnitSlotsOf,
                         testing::Combine(testing::Values(1, 2, 3, 12, 33), testing::Bool()));

}  // namespace
}  // namespace muster::worker
