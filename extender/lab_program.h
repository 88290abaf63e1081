// The commands that need no cluster are another program's, muster-lab: it holds an API server and
// simulators, which a service that runs in a cluster has no use for.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace muster::extender {

// True of the commands that muster-lab does for `muster`.
bool IsLabCommand(std::string_view command);

// Becomes muster-lab with the same arguments: the one in the folder of this program's own file, or
// else the one on PATH. Returns only if there is none: NotFound, with where it was looked for and
// how to get it, or Unavailable with the system's reason.
absl::Status BecomeLab(char** argv);

}  // namespace muster::extender
