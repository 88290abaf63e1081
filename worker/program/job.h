// From a pod's entry point to a rank at work: what `muster-worker train` does around its training.
//
// Started in a pod, the program reads the launcher's environment, starts itself once per device and
// supervises these processes. Started as a rank, by itself or by torchrun, it meets the others and
// works.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/communicator/communicator.h"
#include "worker/diagnose/failure.h"
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
  // Holds what keeps strangers out of the job's rendezvous; otherwise MUSTER_JOB_SECRET does.
  std::optional<std::string> secret_file;
  std::string termination_log = kTerminationLog;
};

// Flags and keys of what may overrule a launcher's environment.
void AddLaunchSettings(Settings& settings, LaunchOverrides& launch);
// Of all of the above.
void AddJobSettings(Settings& settings, JobConfig& config);

// InvalidArgument for values that can't work together.
absl::Status Validate(const JobConfig& config);

struct Job {
  JobConfig config;
  // The program's own, argv[0] left out: ranks are started with the same.
  std::vector<std::string> arguments;
  // What all ranks must have the same of; asked in the rank's process.
  std::function<std::map<std::string, std::string>()> versions;
  // Of the GPUs that this rank trains on, which no other rank may have; asked in the rank's
  // process. May be null.
  std::function<std::vector<std::string>()> gpu_uuids = {};
  // Asked once in each pod before it meets the others; what it returns is the end. May be null.
  std::function<std::optional<Failure>(const LaunchPlan&)> check_node;
  // Told in the rank's process what its body, or meeting the others, ended with; what it returns is
  // the rank's end instead. The others don't learn of that. May be null.
  std::function<absl::Status(const absl::Status&)> on_end = nullptr;
  // Whether what ranks write to standard output gets their number.
  bool prefix_output = true;
  // Asks StopRequested() (stop_signal.h) at step boundaries and returns Cancelled when all ranks
  // have agreed to stop.
  RankBody body;
};

// Returns the exit code; what a user should know goes to standard error. Call it from the process's
// only thread, once.
//
// A failure is told three times: a sentence for people and a line of JSON (TerminationMessage), by
// the rank that met it; and the first one of a pod as its termination message, by the process that
// supervises, or by the rank itself under torchrun. The exit code is that of the failure's cause.
int RunJob(const Job& job);

// Writes the termination message if the file is there: Kubernetes makes it, and where there is
// none, nobody would read it. What fails is said on standard error.
void LeaveTerminationMessage(const Failure& failure, const std::string& termination_log);

// The end of a process that hasn't become a job: the sentence, the termination message, the code.
int EndWith(const Failure& failure, const std::string& termination_log);

}  // namespace muster::worker
