#include "worker/program/job.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/checkpoint/file.h"
#include "worker/launch/host.h"
#include "worker/launch/supervisor.h"
#include "worker/preflight/checks.h"
#include "worker/program/exit.h"
#include "worker/program/stop_signal.h"

namespace muster::worker {
namespace {

// Set for ranks whose supervisor is this program: it writes the pod's termination message.
constexpr char kSupervised[] = "MUSTER_WORKER_SUPERVISED";

void Say(absl::string_view text) { std::cerr << absl::StrCat("muster-worker: ", text, "\n"); }

// What the supervisor knows of a rank that ended without a word. One that was killed after SIGTERM
// wasn't done within the time that the job or the pod gives.
Failure WordlessFailure(const RankFailure& failure, bool stopping) {
  constexpr int kSigkill = 137;
  const CauseId cause = failure.exit_code != kSigkill ? CauseId::kProgramCrash
                        : stopping                    ? CauseId::kTerminated
                                                      : CauseId::kKilled;
  return {.cause = cause, .detail = failure.how, .rank = failure.rank};
}

std::vector<RankProcess> RankProcesses(const LaunchPlan& plan,
                                       const std::vector<std::string>& arguments) {
  std::vector<RankProcess> processes;
  for (int local = 0; local < plan.processes_per_node; ++local) {
    RankProcess process = {.rank = plan.first_rank + local,
                           .command = {"/proc/self/exe"},
                           .environment = RankEnvironment(plan, local)};
    process.environment.emplace(kSupervised, "1");
    process.command.insert(process.command.end(), arguments.begin(), arguments.end());
    processes.push_back(std::move(process));
  }
  return processes;
}

// Ranks inherit it; it has to be there before the first thread.
void HoldNcclToEfa() {
  const std::optional<std::string> network = NetworkForNccl(*ThisMachine());
  if (network.has_value()) setenv("NCCL_NET", network->c_str(), /*overwrite=*/0);
}

// Process 1 of the pod: passes the ranks' lines on, and reads from them why a rank ended.
int Launch(const Job& job, const LaunchPlan& plan) {
  for (const std::string& note : plan.notes) Say(note);
  Say(absl::StrCat(plan.source, ": node ", plan.node_rank, " of ", plan.nodes, ", ranks ",
                   plan.first_rank, " to ", plan.first_rank + plan.processes_per_node - 1, " of ",
                   plan.world_size, ", rendezvous at ", ToText(plan.store)));
  std::map<int, Failure> told;  // by the rank that told it
  const absl::StatusOr<SupervisorResult> result =
      Supervise(RankProcesses(plan, job.arguments),
                {.grace = job.config.grace,
                 .prefix_output = job.prefix_output,
                 .on_line = [&told](int rank, absl::string_view line, bool /*is_error*/) {
                   const std::string_view text(line.data(), line.size());
                   if (!text.starts_with('{')) return;
                   if (auto failure = ReadTerminationMessage(text)) told[rank] = *failure;
                 }});
  if (!result.ok()) return EndWith(FailureFor(result.status()), job.config.termination_log);
  if (!result->first_failure.has_value()) {
    // Ranks that were stopped in order say where.
    if (result->exit_code != 0 && !told.empty()) {
      LeaveTerminationMessage(told.begin()->second, job.config.termination_log);
    }
    return result->exit_code;
  }
  const RankFailure& first = *result->first_failure;
  Say(absl::StrCat("rank ", first.rank, " ", first.how,
                   " before any other rank of this pod failed"));
  // What a stop makes of a rank doesn't change that the pod was stopped.
  const bool stopping = result->exit_code != first.exit_code;
  const auto known = told.find(first.rank);
  const Failure failure = known == told.end() ? WordlessFailure(first, stopping) : known->second;
  if (known == told.end()) Say(Sentence(failure));
  LeaveTerminationMessage(failure, job.config.termination_log);
  return stopping ? result->exit_code : CauseOf(failure.cause).exit_code;
}

constexpr char kSecretVariable[] = "MUSTER_JOB_SECRET";

absl::StatusOr<JobSecret> SecretOf(const JobConfig& config, const Environment& environment) {
  constexpr uint64_t kMostBytes = 1 << 16;
  const auto variable = environment.find(kSecretVariable);
  if (!config.secret_file.has_value() && variable == environment.end()) return JobSecret();
  absl::StatusOr<std::string> text =
      config.secret_file.has_value() ? ReadFile(*config.secret_file, kMostBytes) : variable->second;
  if (!text.ok()) return text.status();
  absl::StatusOr<JobSecret> secret = JobSecret::Create(*text);
  if (secret.ok()) return secret;
  return absl::InvalidArgumentError(
      absl::StrCat(config.secret_file.value_or(kSecretVariable), ": ", secret.status().message()));
}

}  // namespace

void AddLaunchSettings(Settings& settings, LaunchOverrides& launch) {
  settings.Add("nodes", "how many pods the job has; default: what the launcher says",
               &launch.nodes);
  settings.Add("node-rank", "which of them this one is; default: what the launcher says",
               &launch.node_rank);
  settings.Add("processes-per-node", "ranks of this pod; default: its devices",
               &launch.processes_per_node);
  settings.Add("master-address", "where rank 0 is; default: what the launcher says",
               &launch.master_address);
  settings.Add("master-port", "the port of rank 0's rendezvous; default: what the launcher says",
               &launch.master_port);
}

void AddJobSettings(Settings& settings, JobConfig& config) {
  AddLaunchSettings(settings, config.launch);
  settings.Add("meet-timeout", "how long to wait for all ranks at the start", &config.meet_timeout);
  settings.Add("replace-timeout", "how long to wait for a lost rank's replacement; 0: end instead",
               &config.replace_timeout);
  settings.Add("grace", "from SIGTERM to SIGKILL, for the ranks that outlive a failed one",
               &config.grace);
  settings.Add("heartbeat-interval", "between two signs of life", &config.heartbeat.interval);
  settings.Add("silence-limit", "after which a rank counts as lost",
               &config.heartbeat.silence_limit);
  settings.Add("job-secret-file",
               "what only the job's pods know, so that no stranger takes a rank; default: what is "
               "in MUSTER_JOB_SECRET, if anything",
               &config.secret_file);
  settings.Add("termination-log", "where the termination message goes, if the file is there",
               &config.termination_log);
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

int RunJob(const Job& job) {
  HoldNcclToEfa();
  const JobConfig& config = job.config;
  if (absl::Status status = Validate(config); !status.ok()) {
    return EndWith(FailureFor(status), config.termination_log);
  }
  const Environment environment = CurrentEnvironment();
  const Host host = ThisHost(environment);
  const absl::StatusOr<LaunchPlan> plan = ReadLaunch(environment, host, config.launch);
  if (!plan.ok()) return EndWith(FailureFor(plan.status()), config.termination_log);
  const absl::StatusOr<JobSecret> secret = SecretOf(config, environment);
  if (!secret.ok()) return EndWith(FailureFor(secret.status()), config.termination_log);
  const bool supervised = environment.contains(kSupervised);
  if (job.check_node && !supervised && plan->local_rank.value_or(0) == 0) {
    if (const std::optional<Failure> failure = job.check_node(*plan)) {
      return EndWith(*failure, config.termination_log);
    }
  }
  if (!plan->local_rank.has_value()) return Launch(job, *plan);
  CatchStopSignals();
  const RankOptions options = {
      .rank = plan->first_rank + *plan->local_rank,
      .world_size = plan->world_size,
      .store = plan->store,
      .host_name = host.name,
      .gpu_uuids = job.gpu_uuids ? job.gpu_uuids() : std::vector<std::string>(),
      .versions = job.versions ? job.versions() : std::map<std::string, std::string>(),
      .secret = *secret,
      .meet_timeout = config.meet_timeout,
      .replace_timeout = config.replace_timeout,
      .heartbeat = config.heartbeat,
      .say = Say,
      .stop_requested = StopRequested};
  absl::Status status = RunRank(options, job.body);
  if (job.on_end) status = job.on_end(status);
  if (status.ok()) return 0;
  const Failure failure = FailureFor(status, options.rank, host.name);
  // On one line of its own, for the supervisor and for whoever reads the log later.
  std::cerr << absl::StrCat(TerminationMessage(failure), "\n");
  return EndWith(failure, supervised ? "" : config.termination_log);
}

void LeaveTerminationMessage(const Failure& failure, const std::string& termination_log) {
  if (access(termination_log.c_str(), F_OK) != 0) return;
  const absl::Status status = WriteTerminationMessage(failure, termination_log);
  if (!status.ok()) Say(absl::StrCat("no termination message: ", status.message()));
}

int EndWith(const Failure& failure, const std::string& termination_log) {
  Say(Sentence(failure));
  LeaveTerminationMessage(failure, termination_log);
  return CauseOf(failure.cause).exit_code;
}

}  // namespace muster::worker
