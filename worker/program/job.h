// From a pod's entry point to a rank at work: what `muster-worker train` does around its training.
//
// Started in a pod, the program reads the launcher's environment, starts itself once per device and
// supervises these processes. Started as a rank, by itself or by torchrun, it meets the others and
// works.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/communicator/communicator.h"
#include "worker/launch/environment.h"
#include "worker/program/run_rank.h"
#include "worker/program/settings.h"
#include "worker/rendezvous/round_book.h"

namespace muster::worker {

struct JobConfig {
  LaunchOverrides launch;
  absl::Duration meet_timeout = absl::Minutes(10);
  absl::Duration replace_timeout = absl::Minutes(10);
  absl::Duration grace = absl::Seconds(30);
  HeartbeatOptions heartbeat;
};

// Flags and keys of all of the above.
void AddJobSettings(Settings& settings, JobConfig& config);

// InvalidArgument for values that can't work together.
absl::Status Validate(const JobConfig& config);

// Of this process; all ranks must have the same.
using Versions = std::map<std::string, std::string>;

// `arguments` are the program's own, argv[0] left out: ranks are started with the same. Returns the
// exit code; what a user should know goes to standard error. Call it from the process's only
// thread, once. The body asks StopRequested() (stop_signal.h) at step boundaries and returns
// Cancelled when all ranks have agreed to stop.
int RunJob(const JobConfig& config, const std::vector<std::string>& arguments,
           const Versions& versions, const RankBody& body);

}  // namespace muster::worker
