// How a rank's end is told: every error that ends one becomes a failure of diagnose's table, and
// that says the exit code, the sentence in the log, and the termination message.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "worker/diagnose/failure.h"

namespace muster::worker {

// The failure that `status` (not OK) tells: what its text shows (FailureOf), or else what its code
// means here. Cancelled is SIGTERM's; Unavailable without ranks at fault is a volume, and with them
// a lost peer. The failure's rank is the one at fault, or the one that the message begins with
// ("rank 3: ..."), or else `rank`, whose host is `host`.
Failure FailureFor(const absl::Status& status, std::optional<int> rank = std::nullopt,
                   const std::string& host = "");

// A failure as an error (FailedPrecondition), so that it goes through what passes errors on,
// communicators too; FailureFor() makes it the same failure again.
absl::Status StatusOf(const Failure& failure);

// For the process: 0, or the exit code of the failure's cause. 143 is a stop in order; at least 128
// is worth another try, perhaps elsewhere; below it only a change of the job helps. Kubeflow's
// restartPolicy ExitCode restarts a pod for the former only.
int ExitCodeFor(const absl::Status& status);

}  // namespace muster::worker
