#include "worker/program/train.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker/checkpoint/file.h"
#include "worker/checkpoint/hugging_face.h"
#include "worker/data/dataset.h"
#include "worker/launch/environment.h"
#include "worker/launch/host.h"
#include "worker/preflight/checks.h"
#include "worker/preflight/preflight_command.h"
#include "worker/program/engine_choice.h"
#include "worker/program/exit.h"
#include "worker/program/reporters.h"
#include "worker/program/stop_signal.h"

namespace muster::worker {
namespace {

std::string SettingsText(TrainConfig config) {
  Settings settings;
  AddTrainSettings(settings, config);
  return settings.Print();
}

// OK if `mine` is what rank 0 has; otherwise the first line that differs.
absl::Status CompareSettings(const std::string& mine, const std::string& rank_0s) {
  const std::vector<std::string> own = absl::StrSplit(mine, '\n');
  const std::vector<std::string> others = absl::StrSplit(rank_0s, '\n');
  const auto [at, other] = std::ranges::mismatch(own, others);
  if (at == own.end() || other == others.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("it was started with \"", *at,
                                                 "\", rank 0 with \"", *other,
                                                 "\"; give all pods of the job the same settings"));
}

// Checkpoints of ranks that write into directories of one name, but not into one directory, would
// never be whole.
absl::Status AgreeOnFolder(const TrainingConfig& config, Communicator& communicator) {
  constexpr size_t kIdSize = 64;
  absl::StatusOr<std::string> id = FolderId(config.checkpoint_directory);
  absl::Status result = id.status();
  absl::Status status = AgreeOnResult(communicator, result, config.timeout);
  if (!status.ok() || !result.ok()) return status.ok() ? result : status;
  id->resize(kIdSize);
  std::string ids(kIdSize * communicator.world_size(), '\0');
  status = communicator.AllGather(std::as_bytes(std::span(*id)),
                                  std::as_writable_bytes(std::span(ids)), config.timeout);
  if (!status.ok()) return status;
  for (int rank = 1; rank < communicator.world_size(); ++rank) {
    if (ids.compare(rank * kIdSize, kIdSize, ids, 0, kIdSize) == 0) continue;
    return absl::PermissionDeniedError(
        absl::StrCat("rank ", rank, ": ", config.checkpoint_directory,
                     " isn't the directory that rank 0 sees there: mount one shared volume "
                     "(ReadWriteMany) in all pods"));
  }
  return absl::OkStatus();
}

// What a rank reads before the first step.
struct Inputs {
  std::optional<Dataset> training, validation;
  std::optional<HuggingFaceWeights> weights;
};

absl::Status Open(const TrainConfig& config, const TrainPlan& plan, const ParameterLayout& layout,
                  Inputs& inputs) {
  const auto open = [&](const std::vector<std::string>& paths, std::optional<Dataset>& dataset) {
    if (paths.empty()) return absl::OkStatus();
    absl::StatusOr<Dataset> opened =
        Dataset::Open(paths, plan.training.sequence, plan.model.vocabulary, plan.training.seed);
    if (opened.ok()) dataset = *std::move(opened);
    return opened.status();
  };
  absl::Status status = open(config.data, inputs.training);
  if (status.ok()) status = open(config.validation_data, inputs.validation);
  if (!status.ok()) return status;
  if (!config.weights.has_value()) return absl::OkStatus();
  absl::StatusOr<HuggingFaceWeights> weights = HuggingFaceWeights::Open(layout, *config.weights);
  if (weights.ok()) inputs.weights.emplace(*std::move(weights));
  return weights.status();
}

int64_t CheckpointBytes(const ParameterLayout& layout, int parts) {
  constexpr int64_t kBytesPerParameter = 12;  // the parameter and both moments
  return layout.size() * kBytesPerParameter / parts;
}

Expectations ExpectationsOf(const TrainSettings& settings, const TrainPlan& train,
                            const LaunchPlan& plan) {
  const ParameterLayout layout(train.model);
  const bool checkpoints = !train.training.checkpoint_directory.empty();
  // What is being written is a copy.
  const int64_t copy = checkpoints ? CheckpointBytes(layout, plan.world_size) : 0;
  const Sharding on_cpus = train.sharding.value_or(Sharding::kDataParallel);
  const int64_t rank_bytes =
      copy + (UsesGpu(settings.train.engine) ? 0 : StateBytes(layout, on_cpus, plan.world_size));
  return {.gpus = settings.node.gpus,
          .efa_devices = settings.node.efa_devices,
          .host_bytes = rank_bytes * plan.processes_per_node,
          .checkpoint_folder = train.training.checkpoint_directory,
          .grace_period = settings.node.grace_period,
          .checkpoint_bytes = checkpoints ? CheckpointBytes(layout, plan.nodes) : 0,
          .checkpoint_bytes_per_second = settings.node.checkpoint_speed};
}

absl::Status Validate(const NodeConfig& config) {
  constexpr int kMostPort = 65'535;
  if (config.metrics_port < 0 || config.metrics_port > kMostPort) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics-port=", config.metrics_port, " isn't a port"));
  }
  return absl::OkStatus();
}

// What this process can tell of a sharding that is not set.
std::string ShardingAsPlanned(const TrainSettings& settings) {
  if (!UsesGpu(settings.train.engine)) {
    return settings.train.engine.name == "cpu"
               ? "ddp, on CPUs"
               : "the first of ddp, zero1 and zero3 that fits the GPUs, none of which is here; or "
                 "ddp, on CPUs";
  }
  const Environment environment = CurrentEnvironment();
  const absl::StatusOr<LaunchPlan> launch =
      ReadLaunch(environment, ThisHost(environment), settings.job.launch);
  if (!launch.ok()) return std::string(launch.status().message());
  const absl::StatusOr<TrainPlan> plan = PlanOf(settings.train, launch->world_size);
  if (!plan.ok()) return std::string(plan.status().message());
  const absl::StatusOr<ShardingChoice> choice =
      PreviewSharding(settings.train.engine, *plan, launch->world_size);
  if (!choice.ok()) return std::string(choice.status().message());
  return absl::StrCat(std::string(ShardingName(choice->sharding)), " on ", launch->world_size,
                      " GPUs like this one: ", choice->reason);
}

void AddSettings(Settings& settings, TrainSettings& values) {
  AddTrainSettings(settings, values.train);
  AddNodeSettings(settings, values.node);
  AddJobSettings(settings, values.job);
}

}  // namespace

absl::Status AgreeOnSettings(const std::string& mine, absl::Duration timeout,
                             Communicator& communicator) {
  auto size = static_cast<int64_t>(mine.size());
  absl::Status status =
      communicator.Broadcast(std::as_writable_bytes(std::span(&size, 1)), 0, timeout);
  if (!status.ok()) return status;
  std::string rank_0s = mine;
  rank_0s.resize(static_cast<size_t>(size));
  status = communicator.Broadcast(std::as_writable_bytes(std::span(rank_0s)), 0, timeout);
  if (!status.ok()) return status;
  absl::Status result = CompareSettings(mine, rank_0s);
  status = AgreeOnResult(communicator, result, timeout);
  return status.ok() ? result : status;
}

absl::Status CheckGpusTogether(const TrainSettings& settings, Communicator& communicator,
                               std::ostream& err) {
  const AllReduceConfig& config = settings.train.all_reduce;
  if (!settings.train.check_all_reduce || communicator.world_size() == 1 ||
      communicator.generation() > 1) {
    return absl::OkStatus();
  }
  const absl::StatusOr<bool> on_gpus =
      GpuIsMeant(settings.train.engine, communicator, config.timeout);
  if (!on_gpus.ok() || !*on_gpus) return on_gpus.status();
  const Environment environment = CurrentEnvironment();
  const Host host = ThisHost(environment);
  const absl::StatusOr<LaunchPlan> plan = ReadLaunch(environment, host, settings.job.launch);
  const absl::StatusOr<AllReduceReport> report =
      CheckAllReduces(config, settings.node.instance_type, plan.ok() ? plan->node_rank : 0,
                      host.name, /*on_gpus=*/true, communicator);
  if (!report.ok()) return report.status();
  if (communicator.rank() == 0) err << RowsText(report->rows);
  return report->verdict;
}

absl::Status TrainOneGeneration(const TrainConfig& config, Communicator& communicator,
                                const std::function<absl::Status(Communicator&)>& check_gpus,
                                const std::function<std::vector<TrainingObserver*>()>& observers) {
  const absl::Duration timeout = config.training.timeout;
  absl::Status status = AgreeOnSettings(SettingsText(config), timeout, communicator);
  if (!status.ok()) return status;
  const absl::StatusOr<TrainPlan> plan = PlanOf(config, communicator.world_size());
  if (!plan.ok()) return plan.status();
  // By the weights' config.json, if there are some, which may be another one elsewhere.
  status = AgreeOnSettings(HuggingFaceConfigText(plan->model, "float32"), timeout, communicator);
  if (!status.ok()) return status;
  const ParameterLayout layout(plan->model);
  Inputs inputs;
  absl::Status result = Open(config, *plan, layout, inputs);
  status = AgreeOnResult(communicator, result, timeout);
  if (!status.ok() || !result.ok()) return status.ok() ? result : status;
  if (!plan->training.checkpoint_directory.empty()) {
    status = AgreeOnFolder(plan->training, communicator);
    if (!status.ok()) return status;
  }
  status = check_gpus(communicator);
  if (!status.ok()) return status;
  // After what is sooner found wrong: a GPU's takes a while.
  const absl::StatusOr<std::unique_ptr<Engine>> engine =
      MakeEngine(config.engine, *plan, communicator);
  if (!engine.ok()) return engine.status();
  const auto told = communicator.rank() == 0 ? observers() : std::vector<TrainingObserver*>();
  for (TrainingObserver* observer : told) observer->OnEngine((*engine)->Description());
  Trainer trainer(plan->training, **engine, communicator, *inputs.training,
                  inputs.validation.has_value() ? &*inputs.validation : nullptr, told);
  trainer.set_stop_requested(StopRequested);
  std::optional<StateSource> initial;
  if (inputs.weights.has_value()) initial = WeightsState(*inputs.weights);
  const absl::StatusOr<TrainingEnd> end = trainer.Run(std::move(initial));
  if (!end.ok()) return end.status();
  if (!end->stopped) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat(
      "stopped after step ", end->step, " of ", plan->training.steps,
      plan->training.checkpoint_directory.empty() ? ", without a checkpoint"
                                                  : ", whose checkpoint is committed"));
}

std::optional<Failure> CheckNode(const TrainSettings& settings, const LaunchPlan& plan,
                                 std::ostream& err) {
  absl::Status status = Validate(settings.node);
  const absl::StatusOr<TrainPlan> train = PlanOf(settings.train, plan.world_size);
  status.Update(train.status());
  if (!status.ok()) return FailureFor(status);
  for (const std::string& note : train->notes) err << "muster-worker: " << note << "\n";
  const Expectations expected = ExpectationsOf(settings, *train, plan);
  // What can't be made is what the check of the folder finds.
  if (!expected.checkpoint_folder.empty()) {
    MakeDirectory(expected.checkpoint_folder).IgnoreError();
  }
  const std::unique_ptr<Machine> machine = ThisMachine();
  std::vector<Row> rows =
      expected.gpus > 0 ? CheckMachine(*machine, expected) : CheckHost(*machine, expected);
  std::erase_if(rows, [](const Row& row) { return row.verdict == Verdict::kOk; });
  err << RowsText(rows);
  const auto failed = std::ranges::find(rows, Verdict::kFailed, &Row::verdict);
  if (failed == rows.end()) {
    status = CheckEngine(settings.train.engine, settings.node.gpus);
    return status.ok() ? std::nullopt : std::optional(FailureFor(status));
  }
  return Failure{.cause = failed->cause,
                 .detail = absl::StrCat(failed->check, ": ", failed->numbers)};
}

int RunTrain(const std::vector<std::string>& arguments, const std::string& version,
             std::ostream& out, std::ostream& err) {
  TrainSettings values;
  Settings settings;
  AddSettings(settings, values);
  const absl::StatusOr<CommandLine> line =
      settings.ReadCommandLine({arguments.begin() + 1, arguments.end()});
  if (!line.ok()) return EndWith(FailureFor(line.status()), values.job.termination_log);
  if (line->help) {
    out << "usage: muster-worker train [--config=FILE] [--SETTING=VALUE...] [--print-config]\n"
           "Each setting is a flag, and a line NAME: VALUE of the file; flags win.\n"
        << settings.Help();
    return 0;
  }
  if (line->print_config) {
    out << settings.Print();
    if (!values.train.sharding.has_value()) {
      out << "# sharding: " << ShardingAsPlanned(values) << "\n";
    }
    return 0;
  }
  if (!line->positional.empty()) {
    return EndWith(FailureFor(absl::InvalidArgumentError(absl::StrCat(
                       line->positional[0], " is no setting; they are given as --NAME=VALUE"))),
                   values.job.termination_log);
  }
  std::optional<Reporters> reporters;
  const auto observers = [&] {
    if (!reporters.has_value()) {
      reporters.emplace(values.node, [&out](absl::string_view text) {
        out << std::string_view(text.data(), text.size()) << std::endl;
      });
    }
    return reporters->observers();
  };
  return RunJob(
      {.config = values.job,
       .arguments = arguments,
       .versions = [&] { return VersionsOf(values.train.engine, version); },
       .gpu_uuids =
           [&] { return UsesGpu(values.train.engine) ? OwnGpus() : std::vector<std::string>(); },
       .check_node = [&](const LaunchPlan& plan) { return CheckNode(values, plan, err); },
       .body =
           [&](Communicator& communicator) {
             return TrainOneGeneration(
                 values.train, communicator,
                 [&](Communicator& ranks) { return CheckGpusTogether(values, ranks, err); },
                 observers);
           }});
}

}  // namespace muster::worker
