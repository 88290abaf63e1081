// How a simulated pod ends, as its annotations say (kubelet_simulator.h).
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kube/objects/meta.h"

namespace muster::kube::simulators {

struct PodScript {
  absl::Duration run_time = absl::InfiniteDuration();
  std::optional<absl::Duration> termination;  // once it is deleted, at most its grace period
  int exit_code = 0;
  std::string termination_message;
};

// InvalidArgument naming the annotation, its value and what it should be.
absl::StatusOr<PodScript> PodScriptOf(const ObjectMeta& pod);

}  // namespace muster::kube::simulators
