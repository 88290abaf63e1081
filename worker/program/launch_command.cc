#include "worker/program/launch_command.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "worker/diagnose/live_diagnosis.h"
#include "worker/launch/flight_recorder.h"
#include "worker/launch/forms.h"
#include "worker/launch/host.h"
#include "worker/launch/memory_events.h"
#include "worker/launch/nccl_ras.h"
#include "worker/launch/supervisor.h"
#include "worker/launch/watch.h"
#include "worker/preflight/nvml.h"
#include "worker/preflight/pod_all_reduce.h"
#include "worker/preflight/preflight_command.h"
#include "worker/program/all_reduce_check.h"
#include "worker/program/exit.h"
#include "worker/program/job.h"
#include "worker/program/launch_verdict.h"
#include "worker/program/settings.h"
#include "worker/program/stop_signal.h"

namespace muster::worker {
namespace {

constexpr char kLaunchUsage[] =
    "usage: muster-worker launch [--SETTING=VALUE...] -- COMMAND [ARGUMENT...]\n"
    "Starts COMMAND once for each GPU of this pod, or once if it starts ranks itself (torchrun,\n"
    "accelerate, deepspeed), and says in one sentence why it ended.\n";

// A kill for memory explains what fails within this time after it.
constexpr absl::Duration kKillExplains = absl::Minutes(1);

constexpr absl::Duration kRecorderPatience = absl::Seconds(4);

struct LaunchConfig {
  LaunchOverrides launch;
  std::string start = "auto";
  bool preflight = true;
  std::optional<int> gpus;
  int efa_devices = 0;
  bool all_reduce = true;
  std::string instance_type;
  // NCCL's first start may have to fetch a quarter of a GiB of libraries.
  AllReduceConfig all_reduces = {.timeout = absl::Minutes(2)};
  absl::Duration resolve_timeout = absl::Minutes(5);
  std::string standstill = "auto";
  absl::Duration standstill_after = PaceOptions().least;
  absl::Duration grace = absl::Seconds(30);
  bool prefix_output = true;
  std::string termination_log = kTerminationLog;
};

void AddAllSettings(Settings& settings, LaunchConfig& config) {
  AddLaunchSettings(settings, config.launch);
  settings.Add("start",
               "COMMAND once per GPU (ranks), or once per pod (pod); auto: pod if it is a launcher "
               "itself",
               &config.start);
  settings.Add("preflight", "whether this machine is checked first", &config.preflight);
  settings.Add("gpus", "that this pod must have; default: those that are here", &config.gpus);
  settings.Add("efa-devices", "that this pod must have", &config.efa_devices);
  settings.Add("all-reduce",
               "whether preflight tries all-reduces between this pod's GPUs, by the image's NCCL",
               &config.all_reduce);
  settings.Add("instance-type", "of this pod's node; default: MUSTER_INSTANCE_TYPE, or EC2's",
               &config.instance_type);
  AddNodeAllReduceSettings(settings, config.all_reduces);
  settings.Add("resolve-timeout", "how long to wait until the name of rank 0 is known",
               &config.resolve_timeout);
  settings.Add("standstill",
               "what happens when nobody gets anywhere: end, tell or ignore; auto: end in a job of "
               "one pod, tell in others",
               &config.standstill);
  settings.Add("standstill-after",
               "the least time that counts as one; more where the job has paused longer before",
               &config.standstill_after);
  settings.Add("grace", "from SIGTERM to SIGKILL, for the ranks that outlive a failed one",
               &config.grace);
  settings.Add("prefix-output", "whether lines of standard output begin with the rank",
               &config.prefix_output);
  settings.Add("termination-log", "where the termination message goes, if the file is there",
               &config.termination_log);
}

absl::Status OneOf(absl::string_view name, const std::string& value,
                   const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, "=", value, " is none of ", absl::StrJoin(known, ", ")));
}

void Tell(absl::string_view text, std::ostream& err) {
  err << absl::StrCat("muster-worker: ", text, "\n") << std::flush;
}

// What this machine lacks, as preflight says it; rows that aren't ok go to `err`.
std::optional<Failure> CheckHere(const LaunchConfig& config, const Host& host, std::ostream& err) {
  const Expectations expected = {.gpus = config.gpus.value_or(host.devices),
                                 .efa_devices = config.efa_devices};
  const std::unique_ptr<Machine> machine = ThisMachine();
  std::vector<Row> rows =
      expected.gpus > 0 ? CheckMachine(*machine, expected) : CheckHost(*machine, expected);
  std::erase_if(rows, [](const Row& row) { return row.verdict == Verdict::kOk; });
  err << RowsText(rows) << std::flush;
  const auto failed = std::ranges::find(rows, Verdict::kFailed, &Row::verdict);
  if (failed == rows.end()) return std::nullopt;
  return Failure{.cause = failed->cause,
                 .detail = absl::StrCat(failed->check, ": ", failed->numbers),
                 .host = host.name};
}

// The verdict of an all-reduce between this pod's GPUs; its rows go to `err`, whatever they say.
std::optional<Failure> TryGpus(const LaunchConfig& config, const AllReduceExpectations& expected,
                               const LaunchPlan& plan, const Host& host, const std::string& program,
                               std::ostream& err) {
  PodAllReduceOptions options = {.time = config.all_reduces.time};
  // What a wheel of PyTorch brings, it loads before any other.
  if (std::string own = NcclOfPython(CurrentEnvironment(), program); !own.empty()) {
    options.nccl = std::move(own);
  }
  const PodAllReduce found =
      TryPodAllReduceApart(options, config.all_reduces.timeout, StopRequested);
  const AllReduceVerdict verdict =
      CheckPodAllReduce(found,
                        {.first_rank = plan.first_rank,
                         .node = plan.node_rank,
                         .host = host.name,
                         .links = ReadLinksInNode(*ThisMachine(), config.instance_type)},
                        expected);
  err << RowsText(verdict.rows) << std::flush;
  std::optional<Failure> failure = FailureOf(verdict, plan.node_rank);
  // Whose GPU it would be is for the program to say then.
  if (failure.has_value() && plan.processes_per_node != host.devices) failure->rank.reset();
  return failure;
}

// Rank 0's pod has a name only once it has an address: programs fail on it that would only have to
// wait. Cancelled if this pod is stopped meanwhile.
absl::Status WaitForName(const Endpoint& endpoint, absl::Duration timeout, std::ostream& err) {
  constexpr absl::Duration kBetween = absl::Milliseconds(500);
  const Deadline deadline = DeadlineAfter(timeout);
  for (bool said = false;; said = true) {
    const absl::Status status = Resolve(endpoint).status();
    if (status.ok()) return status;
    if (StopRequested()) return absl::CancelledError("stopped before any rank was started");
    if (TimeLeft(deadline) == absl::ZeroDuration()) return status;
    if (!said) Tell(absl::StrCat(status.message(), "; waiting"), err);
    poll(nullptr, 0,
         static_cast<int>(absl::ToInt64Milliseconds(std::min(kBetween, TimeLeft(deadline))) + 1));
  }
}

class LaunchedPod {
 public:
  LaunchedPod(const LaunchConfig& config, const LaunchPlan& plan, const Host& host,
              const std::vector<std::string>& command, std::ostream& err)
      : config_(config),
        plan_(plan),
        host_(host),
        starts_ranks_(config.start == "auto" ? !IsLauncher(command) : config.start == "ranks"),
        command_(command),
        err_(err),
        diagnosis_(host.name),
        watch_(OptionsOfWatch()) {}

  int Run() {
    Tell(absl::StrCat(plan_.source, ": node ", plan_.node_rank, " of ", plan_.nodes, ", ranks ",
                      plan_.first_rank, " to ", plan_.first_rank + plan_.processes_per_node - 1,
                      " of ", plan_.world_size, ", rank 0 at ", ToText(plan_.store)),
         err_);
    last_memory_ = ReadMemoryEvents();
    const absl::StatusOr<SupervisorResult> result =
        Supervise(Processes(), {.grace = config_.grace,
                                .prefix_output = starts_ranks_ && config_.prefix_output,
                                .prefix_errors = starts_ranks_,
                                .on_line =
                                    [this](int rank, absl::string_view line, bool is_error) {
                                      if (is_error) watch_.Read(rank, line);
                                      diagnosis_.Read({.rank = RankOf(rank), .is_error = is_error},
                                                      absl::Now(),
                                                      std::string_view(line.data(), line.size()));
                                    },
                                .on_stop = [this] { Leave({.cause = CauseId::kTerminated}); },
                                .look =
                                    [this](absl::Span<const StartedRank> running) {
                                      LookAtMemory();
                                      if (config_.standstill == "ignore") return NextLook();
                                      return watch_.Look(running);
                                    }});
    if (!result.ok()) return EndWith(FailureFor(result.status()), config_.termination_log);
    return End(*result);
  }

 private:
  WatchOptions OptionsOfWatch() const {
    const bool end =
        config_.standstill == "end" || (config_.standstill == "auto" && plan_.nodes == 1);
    const Environment environment = CurrentEnvironment();
    return {.starts_ranks = starts_ranks_,
            .world_size = plan_.world_size,
            .uses_gpus = host_.devices > 0,
            .pace = {.least = config_.standstill_after},
            .end_standstill = end,
            .ras = RasEndpoint(environment),
            .recorded = [this] { return WhoIsBehind(recorders_.Ask(kRecorderPatience)); },
            .gpu_use = host_.devices > 0 ? ReadGpuUse : std::function<std::vector<int>()>(),
            .say = [this](const std::string& text) { Tell(text, err_); }};
  }

  std::vector<RankProcess> Processes() const {
    const Environment pod = CurrentEnvironment();
    Environment aids = Aids(plan_, pod, Processors());
    if (host_.devices > 0) aids.merge(recorders_.Variables(pod));
    std::vector<RankProcess> processes;
    if (!starts_ranks_) {
      // How many threads its ranks have is for it to say.
      aids.erase("OMP_NUM_THREADS");
      processes.push_back(
          {.rank = plan_.first_rank, .command = command_, .environment = NodeForms(plan_, pod)});
      processes.back().environment.merge(aids);
      return processes;
    }
    for (int local = 0; local < plan_.processes_per_node; ++local) {
      processes.push_back({.rank = plan_.first_rank + local,
                           .command = command_,
                           .environment = ProcessForms(plan_, local)});
      processes.back().environment.insert(aids.begin(), aids.end());
    }
    return processes;
  }

  // Of a process that was started; none if it is a launcher's.
  std::optional<int> RankOf(int started) const {
    return starts_ranks_ ? std::optional(started) : std::nullopt;
  }

  // Each second, because a kill of hours ago explains nothing.
  void LookAtMemory() {
    const std::optional<MemoryEvents> now = ReadMemoryEvents();
    if (!now.has_value() || !last_memory_.has_value()) return;
    if (now->killed > last_memory_->killed) {
      memory_kill_ = *now;
      memory_kill_->limit_reached -= last_memory_->limit_reached;
      memory_killed_at_ = absl::Now();
    }
    last_memory_ = now;
  }

  void Leave(Failure failure) const {
    if (failure.host.empty()) failure.host = host_.name;
    LeaveTerminationMessage(failure, config_.termination_log);
  }

  int End(const SupervisorResult& result) {
    LookAtMemory();
    LaunchEnd end = {.result = result,
                     .starts_ranks = starts_ranks_,
                     .mismatch = watch_.mismatch(),
                     .standstill = watch_.standstill()};
    if (memory_kill_.has_value() && absl::Now() - memory_killed_at_ < kKillExplains) {
      end.memory_kill = memory_kill_;
    }
    if (const std::optional<RankFailure>& first = result.first_failure) {
      diagnosis_.Ended(RankOf(first->rank),
                       {.exit_code = first->exit_code, .signal = first->signal}, first->at);
      end.told = diagnosis_.Verdict();
    }
    std::optional<Failure> failure = VerdictOn(end);
    if (!failure.has_value()) return 0;
    if (failure->host.empty()) failure->host = host_.name;
    const int code = EndWith(*failure, config_.termination_log);
    return failure->cause == CauseId::kTerminated && result.exit_code != 0 ? result.exit_code
                                                                           : code;
  }

  const LaunchConfig& config_;
  const LaunchPlan& plan_;
  const Host& host_;
  const bool starts_ranks_;
  const std::vector<std::string>& command_;
  std::ostream& err_;
  const FlightRecorders recorders_;
  LiveDiagnosis diagnosis_;
  RankWatch watch_;
  std::optional<MemoryEvents> last_memory_;
  std::optional<MemoryEvents> memory_kill_;
  absl::Time memory_killed_at_;
};

int Refuse(const std::string& what, std::ostream& err) {
  err << "launch: " << what << "\n" << kLaunchUsage;
  return 2;
}

absl::Status Check(const LaunchConfig& config, const LaunchPlan& plan) {
  absl::Status status = OneOf("start", config.start, {"auto", "ranks", "pod"});
  status.Update(OneOf("standstill", config.standstill, {"auto", "end", "tell", "ignore"}));
  if (plan.local_rank.has_value()) {
    status.Update(absl::InvalidArgumentError(absl::StrCat(
        "LOCAL_RANK=", *plan.local_rank,
        " is set, so this is a rank already; launch stands above the ranks of a pod")));
  }
  return status;
}

}  // namespace

bool IsLauncher(const std::vector<std::string>& command) {
  constexpr std::array<absl::string_view, 8> kPrograms = {"torchrun", "accelerate", "deepspeed",
                                                          "mpirun",   "mpiexec",    "horovodrun",
                                                          "composer", "colossalai"};
  constexpr std::array<absl::string_view, 4> kModules = {
      "torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch",
      "deepspeed.launcher.runner"};
  const auto is_program = [&](const std::string& word) {
    const absl::string_view name = absl::string_view(word).substr(word.rfind('/') + 1);
    return std::find(kPrograms.begin(), kPrograms.end(), name) != kPrograms.end();
  };
  if (command.empty() || is_program(command[0])) return !command.empty();
  // python [-u] -m torch.distributed.run, python /opt/bin/torchrun
  for (size_t i = 1; i < command.size(); ++i) {
    if (command[i] == "-m" && i + 1 < command.size()) {
      return std::find(kModules.begin(), kModules.end(), command[i + 1]) != kModules.end();
    }
    if (!absl::StartsWith(command[i], "-")) return is_program(command[i]);
  }
  return false;
}

int RunLaunch(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  LaunchConfig config;
  Settings settings;
  AddAllSettings(settings, config);
  const auto separator = std::find(arguments.begin(), arguments.end(), "--");
  const absl::StatusOr<CommandLine> line = settings.ReadCommandLine({arguments.begin(), separator});
  if (!line.ok()) return Refuse(std::string(line.status().message()), err);
  if (line->help) {
    out << kLaunchUsage << settings.Help();
    return 0;
  }
  if (line->print_config) {
    out << settings.Print();
    return 0;
  }
  if (!line->positional.empty()) {
    return Refuse(absl::StrCat(line->positional[0], " is no setting; COMMAND follows after --"),
                  err);
  }
  if (separator == arguments.end() || separator + 1 == arguments.end()) {
    return Refuse("no COMMAND after --", err);
  }
  const std::vector<std::string> command(separator + 1, arguments.end());

  // As process 1, what isn't caught isn't even delivered.
  CatchStopSignals();
  const Environment environment = CurrentEnvironment();
  const Host host = ThisHost(environment);
  const absl::StatusOr<LaunchPlan> plan = ReadLaunch(environment, host, config.launch);
  absl::Status status = plan.status();
  if (status.ok()) status = Check(config, *plan);
  const absl::StatusOr<AllReduceExpectations> bandwidths = ExpectationsOf(config.all_reduces);
  status.Update(bandwidths.status());
  if (!status.ok())
    return EndWith(FailureFor(status, std::nullopt, host.name), config.termination_log);
  for (const std::string& note : plan->notes) Tell(note, err);
  if (config.preflight) {
    std::optional<Failure> failure = CheckHere(config, host, err);
    if (!failure.has_value() && config.all_reduce && host.devices > 0) {
      failure = TryGpus(config, *bandwidths, *plan, host, command[0], err);
    }
    if (failure.has_value()) return EndWith(*failure, config.termination_log);
  }
  status = WaitForName(plan->store, config.resolve_timeout, err);
  if (!status.ok()) {
    const bool stopped = absl::IsCancelled(status);
    return EndWith({.cause = stopped ? CauseId::kTerminated : CauseId::kNameNotFound,
                    .detail = std::string(status.message()),
                    .rank = plan->first_rank,
                    .host = host.name},
                   config.termination_log);
  }
  if (StopRequested()) {
    return EndWith({.cause = CauseId::kTerminated,
                    .detail = "stopped before any rank was started",
                    .host = host.name},
                   config.termination_log);
  }
  return LaunchedPod(config, *plan, host, command, err).Run();
}

}  // namespace muster::worker
