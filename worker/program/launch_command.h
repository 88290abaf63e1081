// `muster-worker launch [--SETTING=VALUE...] -- COMMAND [ARGUMENT...]`: any program as the ranks of
// a pod.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace muster::worker {

// Whether this program starts ranks itself, so that a pod needs one process of it: torchrun,
// accelerate, deepspeed, mpirun, python -m torch.distributed.run, ...
bool IsLauncher(const std::vector<std::string>& command);

// `arguments` are those after the word launch. Returns the exit code: 0 if all ranks ended well,
// that of the failure's cause, 128 + the signal if the pod was stopped, 2 for a command line that
// makes no sense. Call it from the process's only thread, once.
int RunLaunch(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace muster::worker
