// What a simulated run came to, as text for people and as JSON for tools.
#pragma once

#include <string>
#include <vector>

#include "simulation/simulate.h"

namespace muster::simulation {

// The timeline, the nodes, the gangs, and the sums; with `brief` the sums only.
std::string TextReport(const Outcome& outcome, bool brief);

// {"scenarios": [...]}; times in milliseconds since the start, GPU-time in GPU-milliseconds.
std::string JsonReport(const std::vector<Outcome>& outcomes);

}  // namespace muster::simulation
