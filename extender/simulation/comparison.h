// What a run comes to in a few figures, and those of several policies side by side.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "extender/simulation/gpu_ledger.h"
#include "extender/simulation/simulate.h"

namespace muster::simulation {

struct Figures {
  // GPU-time of nodes that were bought (gpu_ledger.h): idle for a gang until it started; after a
  // gang that hadn't started gave up.
  GpuTime idle_before_start = 0;
  GpuTime idle_after_give_up = 0;
  GpuTime used = 0;
  GpuTime wasted = 0;  // for whatever reason
  int64_t gangs = 0;
  int64_t completed = 0;  // minMember members have succeeded
  // From a gang's first member until it was whole: of half of the gangs, and of 95 in a hundred, at
  // most. nullopt: so many never started.
  std::optional<Millis> median_start{};
  std::optional<Millis> late_start{};

  // What is bought for gangs and does nothing for them.
  GpuTime IdleForGangs() const { return idle_before_start + idle_after_give_up; }
};

Figures FiguresOf(const Outcome& outcome);

// A table with a column for each outcome; of two, also the first in percent of the second.
std::string Comparison(std::span<const Outcome> outcomes);

}  // namespace muster::simulation
