// What this machine says about itself.
#pragma once

#include <string>

#include "worker/launch/environment.h"

namespace muster::worker {

// The GPUs that a process here may use: as many as CUDA_VISIBLE_DEVICES names, if it is set, or
// else the device files nvidia0, nvidia1, ... in `device_folder`, which is all that a container is
// given.
int CountDevices(const Environment& environment, const std::string& device_folder = "/dev");

// The processors that this container may use, by its affinity and its limit; at least 1.
int Processors();

// Asks the resolver for the full host name; without an answer the short one.
Host ThisHost(const Environment& environment);

}  // namespace muster::worker
