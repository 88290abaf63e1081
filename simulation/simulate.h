// `muster simulate`: what happens if, and what it costs.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "simulation/gpu_ledger.h"
#include "simulation/history.h"
#include "simulation/scenario.h"
#include "simulation/world.h"

namespace muster::simulation {

// How long a world goes on after the scenario's last step, unless it is told until when.
inline constexpr absl::Duration kRunOn = absl::Hours(1);

// The longest that a run may be asked to go on.
inline constexpr absl::Duration kLongestRun = absl::Hours(24 * 31);

struct GangOutcome {
  GangAccount account;
  std::string state;   // as it was last; empty if Muster knows the gang no more
  std::string reason;  // code
  std::string message;
};

// Everything that a run came to.
struct Outcome {
  std::string file;
  std::string name;
  uint64_t seed = 1;
  Policy policy = Policy::kMuster;
  Millis end = 0;
  std::string why_ended{};
  std::vector<TimelineEntry> timeline{};
  std::vector<NodeAccount> nodes{};
  std::vector<GangOutcome> gangs{};
  GpuAccount bought{};               // of nodes that were bought
  GpuAccount from_the_start{};       // of nodes that were there
  double kept_idle_gpu_seconds = 0;  // by reservations
  // "FILE:LINE: what didn't hold"; of the step that the API server refused, if one was.
  std::vector<std::string> failures{};
  std::optional<std::string> refused{};
};

// Runs the scenario until `until` (since the start), or past its last step until nothing waits or
// idles any more, at most kRunOn. What a scenario expects, it expects of Muster: under another
// policy it isn't looked at.
Outcome Simulate(const Scenario& written, uint64_t seed, std::optional<absl::Duration> until,
                 Policy policy = Policy::kMuster);

struct SimulateOptions {
  std::vector<std::string> files;  // "-": standard input
  std::string output = "text";     // text, json
  bool brief = false;              // text without the timeline and the tables of nodes and gangs
  uint64_t seed = 1;
  std::string policy = "muster";  // muster, coscheduling, both, no-reservation, guard
  std::string until{};            // a duration; empty: as Simulate says
};

// Runs each file, prints what came of it to `out` and what didn't hold or couldn't be read to
// `err`. Returns the exit code: 0 all expectations and invariants hold, 1 one doesn't, 2 a file
// can't be read or has a step that the API server refuses.
int RunSimulate(const SimulateOptions& options, std::istream& in, std::ostream& out,
                std::ostream& err);

}  // namespace muster::simulation
