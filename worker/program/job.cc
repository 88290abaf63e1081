#include "worker/program/job.h"

#include <unistd.h>

#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/launch/machine.h"
#include "worker/launch/supervisor.h"
#include "worker/program/stop_signal.h"

namespace muster::worker {
namespace {

void Say(absl::string_view text) { std::cerr << absl::StrCat("muster-worker: ", text, "\n"); }

int Fail(const absl::Status& status) {
  Say(status.message());
  return ExitCodeFor(status);
}

int Launch(const JobConfig& config, const LaunchPlan& plan,
           const std::vector<std::string>& arguments) {
  for (const std::string& note : plan.notes) Say(note);
  Say(absl::StrCat(plan.source, ": node ", plan.node_rank, " of ", plan.nodes, ", ranks ",
                   plan.first_rank, " to ", plan.first_rank + plan.processes_per_node - 1, " of ",
                   plan.world_size, ", rendezvous at ", ToText(plan.store)));
  std::vector<RankProcess> processes;
  for (int local = 0; local < plan.processes_per_node; ++local) {
    RankProcess process = {.rank = plan.first_rank + local,
                           .command = {"/proc/self/exe"},
                           .environment = RankEnvironment(plan, local)};
    process.command.insert(process.command.end(), arguments.begin(), arguments.end());
    processes.push_back(std::move(process));
  }
  const absl::StatusOr<SupervisorResult> result = Supervise(processes, {.grace = config.grace});
  if (!result.ok()) return Fail(result.status());
  if (result->first_failure.has_value()) {
    Say(absl::StrCat("rank ", result->first_failure->rank, " ", result->first_failure->how,
                     " before any other rank of this pod failed"));
  }
  return result->exit_code;
}

}  // namespace

void AddJobSettings(Settings& settings, JobConfig& config) {
  settings.Add("nodes", "how many pods the job has; default: what the launcher says",
               &config.launch.nodes);
  settings.Add("node-rank", "which of them this one is; default: what the launcher says",
               &config.launch.node_rank);
  settings.Add("processes-per-node", "ranks of this pod; default: its devices",
               &config.launch.processes_per_node);
  settings.Add("master-address", "where rank 0 is; default: what the launcher says",
               &config.launch.master_address);
  settings.Add("master-port", "the port of rank 0's rendezvous; default: what the launcher says",
               &config.launch.master_port);
  settings.Add("meet-timeout", "how long to wait for all ranks at the start", &config.meet_timeout);
  settings.Add("replace-timeout", "how long to wait for a lost rank's replacement; 0: end instead",
               &config.replace_timeout);
  settings.Add("grace", "from SIGTERM to SIGKILL, for the ranks that outlive a failed one",
               &config.grace);
  settings.Add("heartbeat-interval", "between two signs of life", &config.heartbeat.interval);
  settings.Add("silence-limit", "after which a rank counts as lost",
               &config.heartbeat.silence_limit);
}

absl::Status Validate(const JobConfig& config) {
  if (config.heartbeat.interval < absl::Milliseconds(10)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "heartbeat-interval=", absl::FormatDuration(config.heartbeat.interval), " is below 10ms"));
  }
  if (config.heartbeat.silence_limit < 2 * config.heartbeat.interval) {
    return absl::InvalidArgumentError(absl::StrCat(
        "silence-limit=", absl::FormatDuration(config.heartbeat.silence_limit),
        " is less than two heartbeats of ", absl::FormatDuration(config.heartbeat.interval),
        ": every delay would count as a loss"));
  }
  return absl::OkStatus();
}

int RunJob(const JobConfig& config, const std::vector<std::string>& arguments,
           const Versions& versions, const RankBody& body) {
  if (absl::Status status = Validate(config); !status.ok()) return Fail(status);
  const Environment environment = CurrentEnvironment();
  const Machine machine = ThisMachine(environment);
  const absl::StatusOr<LaunchPlan> plan = ReadLaunch(environment, machine, config.launch);
  if (!plan.ok()) return Fail(plan.status());
  if (!plan->local_rank.has_value()) return Launch(config, *plan, arguments);
  CatchStopSignals();
  const RankOptions options = {.rank = plan->first_rank + *plan->local_rank,
                               .world_size = plan->world_size,
                               .store = plan->store,
                               .host_name = machine.host_name,
                               .gpu_uuids = {},
                               .versions = versions,
                               .meet_timeout = config.meet_timeout,
                               .replace_timeout = config.replace_timeout,
                               .heartbeat = config.heartbeat,
                               .say = Say,
                               .stop_requested = StopRequested};
  const absl::Status status = RunRank(options, body);
  if (!status.ok()) Say(status.message());
  return ExitCodeFor(status);
}

}  // namespace muster::worker
