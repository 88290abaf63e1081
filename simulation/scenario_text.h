// A scenario as the text of its file.
#pragma once

#include <string>

#include "simulation/scenario.h"

namespace muster::simulation {

// What ParseScenario reads as the same scenario, a line for each node, pool and step. Of the
// engine's options those that a scenario may set. What is drawn (`mix`, `launches`) is left out: it
// is to be drawn before (workload.h). Of expectations all but the texts are written.
std::string ScenarioText(const Scenario& scenario);

}  // namespace muster::simulation
