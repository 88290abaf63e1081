// What is left to chance, drawn from a seed: equal on every machine, which the standard's
// distributions aren't.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>

#include "absl/time/time.h"
#include "simulation/scenario.h"

namespace muster::simulation {

// Draws of two streams of one seed don't depend on each other.
class Draw {
 public:
  Draw(uint64_t seed, uint32_t stream) {
    std::seed_seq sequence{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), stream};
    random_.seed(sequence);
  }

  // Both ends included.
  int64_t Between(int64_t low, int64_t high) {
    const auto span = static_cast<uint64_t>(high - low) + 1;
    return low + static_cast<int64_t>(random_() % span);
  }
  bool Chance(int percent) { return Between(1, 100) <= percent; }
  // In steps of a hundredth of a percent.
  bool Chance(double percent) { return Between(1, 10'000) <= std::llround(percent * 100); }
  // In whole milliseconds.
  absl::Duration In(const DurationRange& range) {
    return absl::Milliseconds(
        Between(range.low / absl::Milliseconds(1), range.high / absl::Milliseconds(1)));
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace muster::simulation
