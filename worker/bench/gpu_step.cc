// How fast the GPU engine trains: tokens per second over steps, and the time of each part of a
// step, on as many GPUs of this machine as are asked for. Prints one JSON object.
//
//   gpu_step --model=gpt2 --sequences=128 --steps=50
//
// Without --data every step has a text of its own, in which each token follows from the one before.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "worker/data/token_file.h"
#include "worker/gpu/gpu_engine.h"
#include "worker/program/settings.h"
#include "worker/program/train_config.h"
#include "worker/training/on_ranks.h"

namespace muster::worker {
namespace {

constexpr int kMeasuredParts = 5;
constexpr int kCheckpoints = 3;
constexpr uint64_t kTextSeed = 5;

struct StepSettings {
  ModelChoice model;
  int ranks = 1;
  std::optional<std::string> sharding;
  std::string gradient_reduction = "fp32";
  int sequences = 1;
  int sequence = 1024;
  int micro_batches = 1;
  int steps = 50;
  int untimed = 10;
  std::optional<std::string> data;
  std::optional<std::string> checkpoints;
  std::string plan_cache;
  bool recompute_norms = false;
  bool recompute_activations = false;
  bool deterministic = false;
  std::string precision = "bf16";
  int most_blocks = NcclCommunicator::Options().most_blocks;
  OptimizerConfig optimizer = {.learning_rate = 6e-4, .warmup_steps = 100, .total_steps = 10'000};
};

void AddSettings(Settings& settings, StepSettings& values) {
  AddModelSettings(settings, values.model);
  settings.Add("ranks", "GPUs, a thread each", &values.ranks);
  settings.Add("sharding", "ddp, zero1 or zero3; default: the first that fits", &values.sharding);
  settings.Add("gradient-reduction", "fp32 or bf16", &values.gradient_reduction);
  settings.Add("sequences", "of a micro-batch", &values.sequences);
  settings.Add("sequence", "tokens", &values.sequence);
  settings.Add("micro-batches", "of a step, on each rank", &values.micro_batches);
  settings.Add("steps", "that are timed", &values.steps);
  settings.Add("untimed", "steps before them", &values.untimed);
  settings.Add("data", "token file, read from its start on", &values.data);
  settings.Add("checkpoints", "directory for some, whose cost is measured", &values.checkpoints);
  settings.Add("plan-cache", "file of plans of products", &values.plan_cache);
  settings.Add("recompute-norms", "in the backward", &values.recompute_norms);
  settings.Add("recompute-activations", "of the MLP, in the backward",
               &values.recompute_activations);
  settings.Add("deterministic", "equal bits from equal inputs", &values.deterministic);
  settings.Add("precision", "bf16 or fp8", &values.precision);
  settings.Add("most-blocks", "that NCCL takes", &values.most_blocks);
  settings.Add("learning-rate", "at its highest", &values.optimizer.learning_rate);
  settings.Add("warmup-steps", "until then", &values.optimizer.warmup_steps);
}

// A micro-batch: sequence `first` of all that are read, and those after it.
struct Text {
  Text(const StepSettings& settings, int64_t first, int vocabulary, const TokenFile* data) {
    std::vector<int32_t> ids(settings.sequence + 1);
    for (int i = 0; i < settings.sequences; ++i) {
      if (data == nullptr) {
        MakeUp(first + i, vocabulary, ids);
      } else {
        const int64_t windows = (data->tokens() - 1) / settings.sequence;
        data->Read((first + i) % windows * settings.sequence, ids);
      }
      tokens.insert(tokens.end(), ids.begin(), ids.end() - 1);
      targets.insert(targets.end(), ids.begin() + 1, ids.end());
    }
  }

  static void MakeUp(int64_t sequence, int vocabulary, std::vector<int32_t>& ids) {
    const double start = HashedUniform(kTextSeed, sequence);
    auto token = static_cast<int64_t>((start + 1) / 2 * vocabulary);
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(token);
      token = (token * 3 + 7) % vocabulary;
    }
  }

  std::vector<int32_t> tokens, targets;
};

int64_t UsedBytes() {
  size_t free = 0;
  size_t total = 0;
  cudaMemGetInfo(&free, &total);
  return static_cast<int64_t>(total - free);
}

// What the settings' names stand for.
struct Choices {
  ModelConfig model;
  std::optional<Sharding> sharding;
  Precision precision = Precision::kBf16;
  GradientReduction gradient_reduction = GradientReduction::kFp32;
};

class Run {
 public:
  Run(const StepSettings& settings, const Choices& choices, const TokenFile* data,
      Communicator& ranks)
      : settings_(settings), choices_(choices), data_(data), ranks_(ranks) {}

  absl::StatusOr<nlohmann::json> Measure() {
    absl::StatusOr<std::unique_ptr<GpuEngine>> engine = GpuEngine::Create(
        {.model = choices_.model,
         .optimizer = settings_.optimizer,
         .sequences = settings_.sequences,
         .sequence = settings_.sequence,
         .device = ranks_.rank(),
         .sharding = choices_.sharding,
         .gradient_reduction = choices_.gradient_reduction,
         .communication = {.timeout = absl::Minutes(1), .most_blocks = settings_.most_blocks},
         .recompute = {.norms = settings_.recompute_norms,
                       .activations = settings_.recompute_activations},
         .precision = choices_.precision,
         .deterministic = settings_.deterministic,
         .copies_state = settings_.checkpoints.has_value(),
         .plan_cache = settings_.plan_cache},
        ranks_);
    if (!engine.ok()) return engine.status();
    engine_ = *std::move(engine);
    if (ranks_.rank() == 0) std::cerr << engine_->Description() << "\n";
    absl::Status status = engine_->Load(InitialState(engine_->layout(), 1));
    if (!status.ok()) return status;
    const absl::StatusOr<double> untimed = Steps(settings_.untimed);
    if (!untimed.ok()) return untimed.status();
    const absl::StatusOr<double> seconds = Steps(settings_.steps);
    if (!seconds.ok()) return seconds.status();
    nlohmann::json stalls;
    for (int i = 0; settings_.checkpoints.has_value() && i < kCheckpoints; ++i) {
      const absl::StatusOr<double> stall = CheckpointStall(*seconds);
      if (!stall.ok()) return stall.status();
      stalls.push_back(*stall);
    }
    engine_->MeasureParts(true);
    const absl::StatusOr<double> measured = Steps(kMeasuredParts);
    if (!measured.ok()) return measured.status();
    losses_.resize(settings_.untimed + settings_.steps);
    nlohmann::json report = Report(*seconds);
    if (!stalls.empty()) report["checkpoint_stall_seconds"] = stalls;
    return report;
  }

 private:
  // The seconds that each of them takes.
  absl::StatusOr<double> Steps(int count) {
    std::vector<Text> texts;
    const int64_t batches = int64_t{1} * settings_.micro_batches * ranks_.world_size();
    for (int64_t i = 0; i < int64_t{1} * count * settings_.micro_batches; ++i) {
      const int64_t batch = (step_ + i / settings_.micro_batches) * batches +
                            ranks_.rank() * settings_.micro_batches + i % settings_.micro_batches;
      texts.emplace_back(settings_, batch * settings_.sequences, choices_.model.vocabulary, data_);
    }
    cudaDeviceSynchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
      std::vector<Batch> of_step;
      for (int k = 0; k < settings_.micro_batches; ++k) {
        const Text& text = texts[i * settings_.micro_batches + k];
        of_step.push_back({.tokens = text.tokens, .targets = text.targets});
      }
      const absl::StatusOr<StepResult> result = engine_->Step(step_++, of_step);
      if (!result.ok()) return result.status();
      losses_.push_back(result->loss);
    }
    cudaDeviceSynchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
           std::max(1, count);
  }

  // The seconds that a checkpoint adds to training, while it is copied and written.
  absl::StatusOr<double> CheckpointStall(double seconds_per_step) {
    constexpr int kStepsMeanwhile = 10;
    absl::StatusOr<std::unique_ptr<CheckpointWriter>> writer = CheckpointWriter::Create(
        {.directory = absl::StrCat(*settings_.checkpoints, "/", ranks_.rank()), .keep = 1});
    if (!writer.ok()) return writer.status();
    const auto begin = std::chrono::steady_clock::now();
    absl::StatusOr<std::unique_ptr<StateCopy>> copy = engine_->CopyState();
    if (!copy.ok()) return copy.status();
    absl::Status status = (*writer)->Begin(
        {.step = step_, .parameters = engine_->layout().size(), .identity = "gpu_step"},
        *std::move(copy));
    const double begun =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const absl::StatusOr<double> with = Steps(kStepsMeanwhile);
    status.Update(with.status());
    status.Update((*writer)->Wait());
    status.Update((*writer)->Commit());
    if (!status.ok()) return status;
    return begun + kStepsMeanwhile * (*with - seconds_per_step);
  }

  nlohmann::json Report(double seconds) const {
    const double tokens = 1.0 * settings_.sequences * settings_.sequence * settings_.micro_batches;
    nlohmann::json parts;
    double floor = 0;
    for (const auto& [part, milliseconds] : engine_->Parts()) {
      parts[part] = milliseconds / kMeasuredParts;
      if (part.starts_with("product") || part.starts_with("attention")) {
        floor += milliseconds / kMeasuredParts;
      }
    }
    constexpr double kGiB = 1 << 30;
    const double flops = FlopsPerToken(choices_.model, settings_.sequence) * tokens / seconds;
    return {{"model", settings_.model.name.value_or("gpt2")},
            {"config",
             {{"family", FamilyName(choices_.model.family)},
              {"layers", choices_.model.layers},
              {"width", choices_.model.width},
              {"heads", choices_.model.heads},
              {"key_value_heads", choices_.model.key_value_heads},
              {"feed_forward", choices_.model.feed_forward},
              {"vocabulary", choices_.model.vocabulary},
              {"padded_vocabulary", choices_.model.padded_vocabulary},
              {"context", choices_.model.context}}},
            {"learning_rate", settings_.optimizer.learning_rate},
            {"min_learning_rate", settings_.optimizer.min_learning_rate},
            {"warmup_steps", settings_.optimizer.warmup_steps},
            {"total_steps", settings_.optimizer.total_steps},
            {"ranks", ranks_.world_size()},
            {"sharding", ShardingName(engine_->sharding())},
            {"gradient_reduction", settings_.gradient_reduction},
            {"deterministic", settings_.deterministic},
            {"precision", settings_.precision},
            {"sequences", settings_.sequences},
            {"sequence", settings_.sequence},
            {"micro_batches", settings_.micro_batches},
            {"tokens_per_second", tokens / seconds},  // of one rank
            {"step_milliseconds", seconds * 1e3},
            {"mfu", engine_->peak_flops() > 0 ? flops / engine_->peak_flops() : 0},
            {"planned_gib", static_cast<double>(engine_->planned_bytes()) / kGiB},
            {"used_gib", static_cast<double>(UsedBytes()) / kGiB},
            {"losses", losses_},
            {"share_of_floor", floor / (seconds * 1e3)},
            {"parts", parts}};
  }

  const StepSettings& settings_;
  const Choices& choices_;
  const TokenFile* data_;
  Communicator& ranks_;
  std::unique_ptr<GpuEngine> engine_;
  int64_t step_ = 0;
  std::vector<double> losses_;
};

absl::StatusOr<Choices> ChoicesOf(const StepSettings& settings) {
  const absl::StatusOr<ModelConfig> model = ModelOf(settings.model);
  if (!model.ok()) return model.status();
  const absl::StatusOr<Precision> precision = ParsePrecision(settings.precision);
  if (!precision.ok()) return precision.status();
  const absl::StatusOr<GradientReduction> reduction =
      ParseGradientReduction(settings.gradient_reduction);
  if (!reduction.ok()) return reduction.status();
  Choices choices = {.model = *model,
                     .sharding = std::nullopt,
                     .precision = *precision,
                     .gradient_reduction = *reduction};
  choices.model.context = std::max(choices.model.context, settings.sequence);
  if (settings.sharding.has_value()) {
    const absl::StatusOr<Sharding> sharding = ParseSharding(*settings.sharding);
    if (!sharding.ok()) return sharding.status();
    choices.sharding = *sharding;
  }
  return choices;
}

absl::Status MeasureAll(const StepSettings& settings) {
  const absl::StatusOr<Choices> choices = ChoicesOf(settings);
  if (!choices.ok()) return choices.status();
  std::optional<TokenFile> data;
  if (settings.data.has_value()) {
    absl::StatusOr<TokenFile> opened = TokenFile::Open(*settings.data);
    if (!opened.ok()) return opened.status();
    data = *std::move(opened);
  }
  absl::Status first;
  for (const absl::Status& status : OnRanks(settings.ranks, [&](Communicator& ranks) {
         const absl::StatusOr<nlohmann::json> report =
             Run(settings, *choices, data.has_value() ? &*data : nullptr, ranks).Measure();
         if (!report.ok()) ranks.Abort(report.status());
         if (report.ok() && ranks.rank() == 0) std::cout << report->dump(1) << std::endl;
         return report.status();
       })) {
    first.Update(status);
  }
  return first;
}

}  // namespace
}  // namespace muster::worker

int main(int argc, char** argv) {
  muster::worker::StepSettings values;
  muster::worker::Settings settings;
  muster::worker::AddSettings(settings, values);
  const auto line = settings.ReadCommandLine({argv + 1, argv + argc});
  if (line.ok() && line->help) {
    std::cout << settings.Help();
    return 0;
  }
  absl::Status status = line.status();
  if (status.ok()) status = muster::worker::MeasureAll(values);
  if (!status.ok()) std::cerr << status.ToString() << "\n";
  return status.ok() ? 0 : 1;
}
