// Why a launched program ended, from all that its launcher knows.
#pragma once

#include <optional>

#include "worker/diagnose/failure.h"
#include "worker/launch/memory_events.h"
#include "worker/launch/standstill.h"
#include "worker/launch/supervisor.h"

namespace muster::worker {

struct LaunchEnd {
  SupervisorResult result = {};
  bool starts_ranks = true;  // or its one process does
  std::optional<Standstill> mismatch = {};
  std::optional<Standstill> standstill = {};
  // If the kernel killed something for memory shortly before the end.
  std::optional<MemoryEvents> memory_kill = {};
  // By the output and the first failure (LiveDiagnosis); has a value if there is one.
  std::optional<Failure> told = {};
};

// Nothing if all ended well. Who ends a job knows best: a signal to the pod, or this launcher. Then
// comes what the kernel did, then what the program said and how it ended. Its cause says the exit
// code, but for a pod that was stopped in order: that is 128 + the signal.
std::optional<Failure> VerdictOn(const LaunchEnd& end);

}  // namespace muster::worker
