// Rounds of small clusters whose API server answers late, not at all, or out of order.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "simulation/scenario.h"

namespace muster::simulation {

// Depends on the seed alone: gangs of plain pods and of jobs that compete for a few nodes, with or
// without quota and a NodePool, users and clouds that delete, fail and change things, restarts of
// Muster, and faults (FaultSpec) that end with the last event. The last step expects that all is
// settled (settled.h) within a bounded time after that.
Scenario DrawRound(uint64_t seed);

// The failure of a round: what kind of thing was wrong, without names and numbers. Empty: none.
// A scenario that can't be carried out is a failure "refused".
struct RoundResult {
  std::string sort;
  std::string message;  // with the timeline
};
RoundResult RunRound(const Scenario& scenario);

// A smaller scenario that fails in the same sort of way: steps, nodes, pools, members and faults
// are left out one by one while it does, in at most `tries` runs.
Scenario Shrunk(Scenario scenario, const std::string& sort, int tries);

}  // namespace muster::simulation
