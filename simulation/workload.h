// What a scenario leaves to chance, drawn: the gangs of its mix, and how launches go.
#pragma once

#include <cstdint>

#include "simulation/scenario.h"

namespace muster::simulation {

// How many launches of a NodePool are drawn; the last one goes for the rest.
inline constexpr int kDrawnLaunches = 5'000;

// The scenario with a step for each gang of its mix, and delays in place of launches. Depends on
// nothing but the scenario and the seed, and what is drawn for one NodePool or the mix not on the
// others: the n-th gang and the n-th launch are the same whatever a scheduler makes of them.
Scenario Drawn(Scenario scenario, uint64_t seed);

}  // namespace muster::simulation
