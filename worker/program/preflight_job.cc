#include "worker/program/preflight_job.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "worker/launch/environment.h"
#include "worker/launch/host.h"
#include "worker/preflight/preflight_command.h"
#include "worker/program/all_reduce_check.h"
#include "worker/program/engine_choice.h"
#include "worker/program/exit.h"
#include "worker/program/job.h"

namespace muster::worker {
namespace {

constexpr absl::Duration kForTheReport = absl::Seconds(2);

struct Config {
  PreflightOptions machine;
  JobConfig job;
  std::optional<bool> all_reduce;
  std::string instance_type;
  AllReduceConfig all_reduces;
};

void AddSettings(Settings& settings, Config& config) {
  settings.Add(
      "all-reduce",
      "try all-reduces between the job's ranks; default: where there are several, and GPUs",
      &config.all_reduce);
  settings.Add("instance-type", "of this pod's node; default: MUSTER_INSTANCE_TYPE, or EC2's",
               &config.instance_type);
  AddAllReduceSettings(settings, config.all_reduces);
  AddJobSettings(settings, config.job);
}

// One rank's part. The first rank of a pod speaks for it, about verdicts alone, and about errors
// before the others.
class RankPreflight {
 public:
  RankPreflight(const Config& config, const LaunchPlan& plan, std::string host, std::ostream& out)
      : config_(config), plan_(plan), host_(std::move(host)), out_(out) {
    if (speaks()) machine_rows_ = CheckMachine(*ThisMachine(), config.machine.expected);
  }

  absl::Status Try(Communicator& communicator) {
    const absl::StatusOr<bool> on_gpus = GpuIsMeant({}, communicator, config_.all_reduces.timeout);
    if (!on_gpus.ok()) return on_gpus.status();
    absl::StatusOr<AllReduceReport> report = CheckAllReduces(
        config_.all_reduces, config_.instance_type, plan_.node_rank, host_, *on_gpus, communicator);
    if (!report.ok()) return report.status();
    report_ = *std::move(report);
    return absl::OkStatus();
  }

  // Prints the report; what this rank ends with.
  absl::Status End(const absl::Status& status) {
    if (!speaks()) {
      // The first failure of a pod is the end of its other ranks, and of the report. Unless that
      // rank is the one that is lost.
      if (!status.ok()) absl::SleepFor(kForTheReport);
      return status;
    }
    std::vector<Row> rows = machine_rows_;
    rows.insert(rows.end(), report_.rows.begin(), report_.rows.end());
    if (!status.ok() && report_.rows.empty()) {
      const Failure failure = FailureFor(status);
      rows.push_back(FailedRow("all-reduce", failure.cause, failure.detail));
    }
    out_ << (config_.machine.json ? RowsJson(rows) : RowsText(rows)) << std::flush;
    const auto failed = std::ranges::find(machine_rows_, Verdict::kFailed, &Row::verdict);
    if (failed == machine_rows_.end()) return status.ok() ? report_.verdict : status;
    return StatusOf({.cause = failed->cause,
                     .detail = absl::StrCat(failed->check, ": ", failed->numbers),
                     .rank = plan_.first_rank,
                     .host = host_});
  }

 private:
  bool speaks() const { return plan_.local_rank.value_or(1) == 0; }

  const Config& config_;
  const LaunchPlan& plan_;
  const std::string host_;
  std::ostream& out_;
  std::vector<Row> machine_rows_;
  AllReduceReport report_;
};

}  // namespace

int RunPreflightJob(const std::vector<std::string>& arguments, const std::string& version,
                    std::ostream& out, std::ostream& err) {
  Config config;
  // A rank that is lost is what is to be found.
  config.job.replace_timeout = absl::ZeroDuration();
  Settings settings;
  AddSettings(settings, config);
  std::vector<std::string> others(arguments.begin() + 1, arguments.end());
  std::string error = TakePreflightOptions(&others, &config.machine);
  if (error.empty()) {
    const absl::StatusOr<CommandLine> line = settings.ReadCommandLine(others);
    if (!line.ok()) {
      error = std::string(line.status().message());
    } else if (!line->positional.empty()) {
      error = absl::StrCat("unknown argument ", line->positional[0]);
    }
  }
  if (!error.empty()) {
    err << "preflight: " << error << "\n" << PreflightUsage();
    return 2;
  }
  if (config.machine.help) {
    out << PreflightUsage() << "\nAs a pod of a job it tries all-reduces:\n" << settings.Help();
    return 0;
  }
  const Environment environment = CurrentEnvironment();
  const Host host = ThisHost(environment);
  const absl::StatusOr<LaunchPlan> plan = ReadLaunch(environment, host, config.job.launch);
  if (!plan.ok()) return EndWith(FailureFor(plan.status()), config.job.termination_log);
  const bool several = plan->world_size > 1;
  if (!several || !config.all_reduce.value_or(UsableGpus() > 0)) {
    const std::vector<Row> rows = CheckMachine(*ThisMachine(), config.machine.expected);
    out << (config.machine.json ? RowsJson(rows) : RowsText(rows));
    return ExitCodeOf(rows);
  }
  std::optional<RankPreflight> rank;
  if (plan->local_rank.has_value()) rank.emplace(config, *plan, host.name, out);
  return RunJob({.config = config.job,
                 .arguments = arguments,
                 .versions = [&] { return VersionsOf({}, version); },
                 .gpu_uuids = OwnGpus,
                 .check_node = nullptr,
                 .on_end = [&](const absl::Status& status) { return rank->End(status); },
                 .prefix_output = false,
                 .body = [&](Communicator& communicator) { return rank->Try(communicator); }});
}

}  // namespace muster::worker
