#include "worker/program/eval_command.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fmt/format.h"
#include "worker/checkpoint/hugging_face.h"
#include "worker/communicator/communicator.h"
#include "worker/data/dataset.h"
#include "worker/program/engine_choice.h"
#include "worker/program/exit.h"
#include "worker/program/job.h"
#include "worker/program/saved_run.h"
#include "worker/program/settings.h"
#include "worker/program/train.h"
#include "worker/program/train_config.h"

namespace muster::worker {
namespace {

// Of a rank between two exchanges: enough that these take no time.
constexpr int64_t kBatchesAtOnce = 16;

struct EvalConfig {
  EngineConfig engine;
  ModelChoice model;
  std::optional<std::string> weights;
  std::optional<std::string> checkpoints;
  std::optional<int64_t> step;
  std::vector<std::string> data;
  std::optional<int> sequence;
  std::optional<int64_t> sequences;
  int micro_batch = 1;
  std::optional<std::string> sharding;
  absl::Duration timeout = TrainingConfig().timeout;
  JobConfig job;
};

void AddEvalSettings(Settings& settings, EvalConfig& config) {
  settings.Add("weights",
               "Hugging Face's safetensors, with their config.json: a directory, or a file in one",
               &config.weights);
  settings.Add("checkpoints", "instead: a directory of checkpoints", &config.checkpoints);
  settings.Add("step", "of the checkpoint; default: the last one", &config.step);
  settings.Add("data", "token files, as `convert` writes them", &config.data);
  settings.Add("sequence", "tokens of a sequence; default: the model's context", &config.sequence);
  settings.Add("sequences", "how many; default: all of the data", &config.sequences);
  settings.Add("micro-batch", "sequences that a rank computes at a time", &config.micro_batch);
  settings.Add("sharding", "as of training: ddp, zero1 or zero3", &config.sharding);
  settings.Add("collective-timeout", "after which ranks that don't come are at fault",
               &config.timeout);
  AddModelSettings(settings, config.model);
  AddEngineSettings(settings, config.engine);
}

std::string SettingsText(EvalConfig config) {
  Settings settings;
  AddEvalSettings(settings, config);
  return settings.Print();
}

// Where the parameters come from. What isn't one of them is zero: nothing is trained.
struct Subject {
  ModelConfig model;
  std::shared_ptr<const ParameterLayout> layout;
  StateSource source;
};

absl::StatusOr<Subject> OpenWeights(const EvalConfig& config) {
  const absl::StatusOr<HuggingFaceConfig> said = ModelOfWeights(config.model, *config.weights);
  if (!said.ok()) return said.status();
  auto layout = std::make_shared<const ParameterLayout>(said->model);
  absl::StatusOr<HuggingFaceWeights> opened = HuggingFaceWeights::Open(*layout, *config.weights);
  if (!opened.ok()) return opened.status();
  const auto weights = std::make_shared<const HuggingFaceWeights>(*std::move(opened));
  return Subject{
      .model = said->model,
      .layout = layout,
      .source = [layout, weights](StateKind kind, int64_t offset, std::span<float> values) {
        return WeightsState(*weights)(kind, offset, values);
      }};
}

absl::StatusOr<Subject> OpenCheckpoint(const EvalConfig& config) {
  absl::StatusOr<SavedRun> opened = OpenSavedRun(*config.checkpoints, config.step, config.model);
  if (!opened.ok()) return opened.status();
  const auto run = std::make_shared<SavedRun>(*std::move(opened));
  return Subject{.model = run->model,
                 .layout = std::make_shared<const ParameterLayout>(run->model),
                 .source = [run](StateKind kind, int64_t offset, std::span<float> values) {
                   if (kind == StateKind::kParameters)
                     return run->reader.Read(kind, offset, values);
                   std::ranges::fill(values, 0.0F);
                   return absl::OkStatus();
                 }};
}

absl::Status Check(const EvalConfig& config) {
  if (config.weights.has_value() == config.checkpoints.has_value()) {
    return absl::InvalidArgumentError("set either weights or checkpoints: what is evaluated");
  }
  if (config.data.empty()) {
    return absl::InvalidArgumentError(
        "no data: set data to token files; `muster-worker convert` makes them");
  }
  if (config.micro_batch < 1 || config.sequences.value_or(1) < 1) {
    return absl::InvalidArgumentError("micro-batch and sequences must be at least 1");
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainPlan> PlanOf(const EvalConfig& config, const ModelConfig& model) {
  const absl::StatusOr<Precision> precision = PrecisionOf(config.engine);
  if (!precision.ok()) return precision.status();
  TrainPlan plan;
  plan.model = model;
  plan.precision = *precision;
  plan.training.sequence = config.sequence.value_or(model.context);
  plan.training.micro_batch = config.micro_batch;
  plan.training.timeout = config.timeout;
  if (config.sharding.has_value()) {
    const absl::StatusOr<Sharding> sharding = ParseSharding(*config.sharding);
    if (!sharding.ok()) return sharding.status();
    plan.sharding = *sharding;
  }
  return plan;
}

struct Loss {
  double sum = 0;  // nats
  int64_t tokens = 0;
};

// Over the first `sequences` of the data, in as many exchanges as it takes.
absl::StatusOr<Loss> LossOf(Engine& engine, const Communicator& communicator, const Dataset& data,
                            const TrainingConfig& shape, int64_t sequences) {
  const int64_t at_once = int64_t{1} * communicator.world_size() * shape.micro_batch;
  const int64_t batch_tokens = int64_t{1} * shape.micro_batch * shape.sequence;
  Loss loss;
  std::vector<int32_t> tokens, targets;
  for (int64_t first = 0; first + at_once <= sequences;) {
    const int64_t batches = std::min(kBatchesAtOnce, (sequences - first) / at_once);
    tokens.resize(batches * batch_tokens);
    targets.resize(tokens.size());
    data.Samples(first + communicator.rank() * batches * shape.micro_batch, tokens, targets);
    std::vector<Batch> read;
    for (int64_t i = 0; i < batches; ++i) {
      read.push_back({.tokens = std::span(tokens).subspan(i * batch_tokens, batch_tokens),
                      .targets = std::span(targets).subspan(i * batch_tokens, batch_tokens)});
    }
    const absl::StatusOr<double> mean = engine.Loss(read);
    if (!mean.ok()) return mean.status();
    const int64_t counted = batches * batch_tokens * communicator.world_size();
    loss.sum += *mean * static_cast<double>(counted);
    loss.tokens += counted;
    first += batches * at_once;
  }
  return loss;
}

absl::Status Evaluate(const EvalConfig& config, Communicator& communicator, std::ostream& out) {
  if (absl::Status status = AgreeOnSettings(SettingsText(config), config.timeout, communicator);
      !status.ok()) {
    return status;
  }
  const absl::StatusOr<Subject> subject =
      config.weights.has_value() ? OpenWeights(config) : OpenCheckpoint(config);
  if (!subject.ok()) return subject.status();
  const absl::StatusOr<TrainPlan> plan = PlanOf(config, subject->model);
  if (!plan.ok()) return plan.status();
  const absl::StatusOr<Dataset> data = Dataset::Open(config.data, plan->training.sequence,
                                                     plan->model.vocabulary, plan->training.seed);
  if (!data.ok()) return data.status();
  const int64_t sequences = std::min(data->windows(), config.sequences.value_or(data->windows()));
  const int64_t at_once = int64_t{1} * communicator.world_size() * config.micro_batch;
  if (sequences < at_once) {
    return absl::InvalidArgumentError(fmt::format(
        "{} sequences of {} tokens for {} ranks with micro-batches of {}; take fewer "
        "ranks, a smaller micro-batch or a shorter sequence",
        sequences, plan->training.sequence, communicator.world_size(), config.micro_batch));
  }
  const absl::StatusOr<std::unique_ptr<Engine>> engine =
      MakeEngine(config.engine, *plan, communicator);
  if (!engine.ok()) return engine.status();
  if (absl::Status status = (*engine)->Load(subject->source); !status.ok()) return status;
  const absl::StatusOr<Loss> loss =
      LossOf(**engine, communicator, *data, plan->training, sequences);
  if (!loss.ok()) return loss.status();
  if (communicator.rank() == 0) {
    const double mean = loss->sum / static_cast<double>(loss->tokens);
    out << fmt::format("loss {:.6f}  perplexity {:.4f}  {} tokens of {}\n", mean, std::exp(mean),
                       loss->tokens, data->tokens())
        << std::flush;
  }
  return absl::OkStatus();
}

}  // namespace

int RunEval(const std::vector<std::string>& arguments, const std::string& version,
            std::ostream& out) {
  EvalConfig config;
  Settings settings;
  AddEvalSettings(settings, config);
  AddJobSettings(settings, config.job);
  const absl::StatusOr<CommandLine> line =
      settings.ReadCommandLine({arguments.begin() + 1, arguments.end()});
  absl::Status status = line.status();
  if (status.ok() && line->help) {
    out << "usage: muster-worker eval (--weights=DIRECTORY | --checkpoints=DIRECTORY) "
           "--data=FILE,... [--SETTING=VALUE...]\n"
        << settings.Help();
    return 0;
  }
  if (status.ok() && line->print_config) {
    out << settings.Print();
    return 0;
  }
  if (status.ok() && !line->positional.empty()) {
    status = absl::InvalidArgumentError(
        absl::StrCat(line->positional[0], " is no setting; they are given as --NAME=VALUE"));
  }
  if (status.ok()) status = Check(config);
  if (!status.ok()) return EndWith(FailureFor(status), config.job.termination_log);
  return RunJob(
      {.config = config.job,
       .arguments = arguments,
       .versions = [&] { return VersionsOf(config.engine, version); },
       .gpu_uuids = [&] { return UsesGpu(config.engine) ? OwnGpus() : std::vector<std::string>(); },
       .check_node = nullptr,
       .prefix_output = false,
       .body = [&](Communicator& communicator) { return Evaluate(config, communicator, out); }});
}

}  // namespace muster::worker
