#include "worker/training/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "fmt/format.h"

namespace muster::worker {

absl::Status Validate(const TrainingConfig& config, int world_size) {
  if (config.steps < 1 || config.sequence < 1 || config.micro_batch < 1 ||
      config.sequences_per_step < 1) {
    return absl::InvalidArgumentError(
        fmt::format("{} steps of {} sequences of {} tokens, {} at a time; each must be at least 1",
                    config.steps, config.sequences_per_step, config.sequence, config.micro_batch));
  }
  const int64_t at_once = int64_t{1} * world_size * config.micro_batch;
  for (const auto& [what, sequences] :
       {std::pair<const char*, int64_t>("a step", config.sequences_per_step),
        std::pair<const char*, int64_t>(
            "validation", config.validate_every > 0 ? config.validation_sequences : at_once)}) {
    if (sequences < 1 || sequences % at_once != 0) {
      return absl::InvalidArgumentError(fmt::format(
          "{} takes {} sequences, which can't be divided among {} ranks in micro-batches of {}; "
          "take a multiple of {}",
          what, sequences, world_size, config.micro_batch, at_once));
    }
  }
  return absl::OkStatus();
}

Trainer::Trainer(TrainingConfig config, Engine& engine, Communicator& communicator,
                 const Dataset& training, const Dataset* validation,
                 std::vector<TrainingObserver*> observers)
    : config_(std::move(config)),
      engine_(engine),
      communicator_(communicator),
      training_(training),
      validation_(validation),
      observers_(std::move(observers)) {}

absl::StatusOr<TrainingEnd> Trainer::Run(std::optional<StateSource> initial) {
  if (absl::Status status = Validate(config_, communicator_.world_size()); !status.ok()) {
    return status;
  }
  const absl::StatusOr<int64_t> start = Resume(std::move(initial));
  if (!start.ok()) {
    return start.status();
  }
  end_ = {.step = *start};
  ahead_ = {};
  reported_step_ = *start;
  reported_at_ = absl::Now();
  while (end_.step < config_.steps) {
    if (absl::Status status = OneStep(end_.step); !status.ok()) {
      return status;
    }
    const absl::StatusOr<bool> stop = AgreeToStop();
    if (!stop.ok()) {
      return stop.status();
    }
    if (*stop && end_.step < config_.steps) {
      end_.stopped = true;
      break;
    }
  }
  if (skipped_in_a_row_ > 0) {
    if (absl::Status status = CheckParameters(); !status.ok()) {
      return status;
    }
  }
  if (absl::Status status = LastCheckpoint(end_.step); !status.ok()) {
    return status;
  }
  return end_;
}

Trainer::Batches Trainer::Read(const Dataset& data, int64_t first, int sequences) const {
  const int own = sequences / communicator_.world_size();
  const size_t tokens = size_t{1} * own * config_.sequence;
  Batches read = {.tokens = std::vector<int32_t>(tokens),
                  .targets = std::vector<int32_t>(tokens),
                  .batches = {}};
  data.Samples(first + int64_t{1} * communicator_.rank() * own, read.tokens, read.targets);
  const size_t size = size_t{1} * config_.micro_batch * config_.sequence;
  for (size_t at = 0; at < tokens; at += size) {
    read.batches.push_back({.tokens = std::span(read.tokens).subspan(at, size),
                            .targets = std::span(read.targets).subspan(at, size)});
  }
  return read;
}

Trainer::Batches Trainer::TakeBatches(int64_t step) {
  const auto read = [this](int64_t of_step) {
    return Read(training_, of_step * config_.sequences_per_step, config_.sequences_per_step);
  };
  Batches batches = ahead_.valid() ? ahead_.get() : read(step);
  if (step + 1 < config_.steps) {
    ahead_ = std::async(std::launch::async, read, step + 1);
  }
  return batches;
}

absl::Status Trainer::Skip(int64_t step, const StepResult& result) {
  ++skipped_;
  ++skipped_in_a_row_;
  for (TrainingObserver* observer : observers_) {
    observer->OnSkip({.step = step + 1,
                      .loss = result.loss,
                      .gradient_norm = result.gradient_norm,
                      .in_a_row = skipped_in_a_row_,
                      .total = skipped_});
  }
  if (skipped_in_a_row_ <= config_.most_skipped_steps) {
    return absl::OkStatus();
  }
  // The last checkpoint before them may still be on its way to disk.
  if (absl::Status status = FinishCheckpoint(); !status.ok()) {
    return status;
  }
  return NotFinite(fmt::format("{} may be skipped in a row", config_.most_skipped_steps));
}

absl::Status Trainer::NotFinite(std::string_view why) const {
  return absl::FailedPreconditionError(fmt::format(
      "step {}: the loss is {} and the gradient's norm {}; the parameters were not updated, nor in "
      "the {} steps before ({}). Resume from the last checkpoint with a lower learning rate (now "
      "{:.3g}) or a longer warm-up, and look at the data of these steps",
      end_.step - 1, last_result_.loss, last_result_.gradient_norm, skipped_in_a_row_ - 1, why,
      last_result_.learning_rate));
}

absl::Status Trainer::CheckParameters() {
  const Batches others = Read(training_, 0, config_.sequences_per_step);
  const absl::StatusOr<double> loss = engine_.Loss(others.batches);
  if (!loss.ok()) {
    return loss.status();
  }
  return std::isfinite(*loss) ? absl::OkStatus()
                              : NotFinite("and other sequences have no loss either");
}

absl::Status Trainer::OneStep(int64_t step) {
  const Batches read = TakeBatches(step);
  const absl::StatusOr<StepResult> result = engine_.Step(step, read.batches);
  if (!result.ok()) {
    return result.status();
  }
  end_.step = step + 1;
  end_.loss = result->loss;
  last_result_ = *result;
  if (!result->skipped) {
    skipped_in_a_row_ = 0;
  } else if (absl::Status status = Skip(step, *result); !status.ok()) {
    return status;
  }
  if (end_.step % std::max<int64_t>(1, config_.report_every) == 0 || end_.step == config_.steps) {
    Report(end_.step, *result);
  }
  if (validation_ != nullptr && config_.validate_every > 0 &&
      end_.step % config_.validate_every == 0) {
    if (absl::Status status = ValidateLoss(end_.step); !status.ok()) {
      return status;
    }
  }
  // The last step's is written by LastCheckpoint. While steps are skipped the parameters may be
  // what is broken, and such a checkpoint would push out one that isn't.
  if (writer_ != nullptr && !result->skipped && config_.checkpoint_every > 0 &&
      end_.step % config_.checkpoint_every == 0 && end_.step < config_.steps) {
    return BeginCheckpoint(end_.step);
  }
  return absl::OkStatus();
}

absl::Status Trainer::ValidateLoss(int64_t step) {
  // Always the same sequences, so that losses can be compared.
  const Batches read = Read(*validation_, 0, config_.validation_sequences);
  const absl::StatusOr<double> loss = engine_.Loss(read.batches);
  if (!loss.ok()) {
    return loss.status();
  }
  for (TrainingObserver* observer : observers_) {
    observer->OnValidation(step, *loss);
  }
  return absl::OkStatus();
}

void Trainer::Report(int64_t step, const StepResult& result) {
  const absl::Time now = absl::Now();
  const double seconds = absl::ToDoubleSeconds(now - reported_at_);
  const auto steps = static_cast<double>(step - reported_step_);
  const double seconds_per_step =
      steps > 0 ? seconds / steps : std::numeric_limits<double>::infinity();
  const StepReport report = {
      .step = step,
      .total_steps = config_.steps,
      .loss = result.loss,
      .gradient_norm = result.gradient_norm,
      .learning_rate = result.learning_rate,
      .tokens_per_second = 1.0 * config_.sequences_per_step * config_.sequence / seconds_per_step,
      .flops_per_token = FlopsPerToken(engine_.model(), config_.sequence),
      .peak_flops = engine_.peak_flops() * communicator_.world_size(),
      .memory_bytes = engine_.memory_bytes(),
      .seconds_left = seconds_per_step * static_cast<double>(config_.steps - step)};
  reported_at_ = now;
  reported_step_ = step;
  for (TrainingObserver* observer : observers_) {
    observer->OnStep(report);
  }
}

absl::StatusOr<bool> Trainer::AgreeToStop() {
  if (!checkpoint_under_way_) {
    return AgreeOnAny(communicator_, stop_requested_(), config_.timeout);
  }
  std::array<float, 2> any = {stop_requested_() ? 1.0F : 0.0F, writer_->Written() ? 0.0F : 1.0F};
  if (absl::Status status = communicator_.AllReduce(any, Reduction::kMax, config_.timeout);
      !status.ok()) {
    return status;
  }
  if (any[1] == 0) {
    if (absl::Status status = FinishCheckpoint(); !status.ok()) {
      return status;
    }
  }
  return any[0] != 0;
}

}  // namespace muster::worker
