// NVIDIA's management library, loaded when it is needed: the program itself runs without a driver.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "worker/preflight/machine.h"

namespace muster::worker {

// What NVML knows of the GPUs of this container. NotFound if libnvidia-ml.so.1 can't be loaded,
// Unavailable with NVML's error number if it doesn't answer.
absl::StatusOr<GpuInventory> ReadGpuInventory();

// How busy each of these GPUs was in the last moments, in per cent; empty if that can't be told.
std::vector<int> ReadGpuUse();

}  // namespace muster::worker
