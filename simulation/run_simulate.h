// `muster simulate` in a test, with its streams in memory.
#pragma once

#include <sstream>
#include <string>

#include "simulation/simulate.h"

namespace muster::simulation {

struct Ran {
  int exit_code = 0;
  std::string out, err;
};

// Without files it reads standard input.
inline Ran RunText(const std::string& standard_input, SimulateOptions options = {}) {
  if (options.files.empty()) options.files = {"-"};
  std::istringstream in(standard_input);
  std::ostringstream out;
  std::ostringstream err;
  const int exit_code = RunSimulate(options, in, out, err);
  return {exit_code, out.str(), err.str()};
}

}  // namespace muster::simulation
