// `muster-worker preflight [OPTION...]`: the checks of this machine, and, as one pod of a job or
// one of its ranks, of what only all ranks together show.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace muster::worker {

// `arguments` are the program's, "preflight" included. Where the launcher's environment tells of
// several ranks and this pod has GPUs (--all-reduce: also without), ranks meet and try all-reduces;
// the first rank of each pod prints one report of its machine and of that. Otherwise RunPreflight
// on this machine. Returns the exit code of the first failed row, 2 for wrong arguments.
int RunPreflightJob(const std::vector<std::string>& arguments, const std::string& version,
                    std::ostream& out, std::ostream& err);

}  // namespace muster::worker
