// What a run comes to in a few figures, and those of several policies side by side.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "simulation/gpu_ledger.h"
#include "simulation/simulate.h"

namespace muster::simulation {

struct Figures {
  GpuAccount bought;  // of nodes that were bought, by cause
  int64_t gangs = 0;
  int64_t completed = 0;  // minMember members have succeeded
  // From a gang's first member until it was whole: of half of the gangs, and of 95 in a hundred, at
  // most. nullopt: so many never started.
  std::optional<Millis> median_start{};
  std::optional<Millis> late_start{};

  // What idled for gangs until they started or gave up, and after they gave up.
  GpuTime IdleForGangs() const { return bought.BeforeStart() + bought.Of(Idle::kGaveUp); }
};

Figures FiguresOf(const Outcome& outcome);

// A table with a column for each outcome; of two, also the first in percent of the second. Waste is
// told by cause.
std::string Comparison(std::span<const Outcome> outcomes);

}  // namespace muster::simulation
