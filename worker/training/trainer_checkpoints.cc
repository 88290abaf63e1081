// How the training loop writes checkpoints and resumes from them.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "fmt/format.h"
#include "worker/training/trainer.h"

namespace muster::worker {

absl::Status Trainer::BeginCheckpoint(int64_t step) {
  // Slower than the steps between two: the loop waits rather than skip one.
  if (absl::Status status = FinishCheckpoint(); !status.ok()) {
    return status;
  }
  checkpoint_under_way_ = true;
  checkpoint_step_ = step;
  return writer_->Begin({.step = step,
                         .parameters = engine_.layout().size(),
                         .world_size = communicator_.world_size(),
                         .identity = Identity()},
                        engine_.OwnedState());
}

absl::Status Trainer::FinishCheckpoint() {
  if (!checkpoint_under_way_) {
    return absl::OkStatus();
  }
  const absl::Status written = writer_->Wait();
  const absl::StatusOr<bool> failed = AgreeOnAny(communicator_, !written.ok(), config_.timeout);
  if (!failed.ok()) {
    return failed.status();
  }
  checkpoint_under_way_ = false;
  checkpoint_status_ = written;
  if (!*failed && leads()) {
    checkpoint_status_ = writer_->Commit();
  }
  // What rank 0 met in Commit is everyone's result.
  const absl::StatusOr<bool> lost =
      AgreeOnAny(communicator_, !checkpoint_status_.ok(), config_.timeout);
  if (!lost.ok()) {
    return lost.status();
  }
  if (*lost && checkpoint_status_.ok()) {
    checkpoint_status_ = absl::UnavailableError(fmt::format(
        "the checkpoint of step {} could not be written by another rank", checkpoint_step_));
  }
  for (TrainingObserver* observer : observers_) {
    observer->OnCheckpoint(checkpoint_step_, checkpoint_status_);
  }
  return absl::OkStatus();
}

absl::Status Trainer::LastCheckpoint(int64_t step) {
  if (writer_ == nullptr) {
    return absl::OkStatus();
  }
  if (absl::Status status = FinishCheckpoint(); !status.ok()) {
    return status;
  }
  if (checkpoint_step_ == step && checkpoint_status_.ok()) {
    return absl::OkStatus();
  }
  if (absl::Status status = BeginCheckpoint(step); !status.ok()) {
    return status;
  }
  absl::Status status = FinishCheckpoint();
  return status.ok() ? checkpoint_status_ : status;
}

std::string Trainer::Identity() const {
  const ModelConfig& model = engine_.model();
  return fmt::format(
      "{} layers={} width={} heads={}/{} feed_forward={} vocabulary={}/{} context={}",
      FamilyName(model.family), model.layers, model.width, model.heads, model.key_value_heads,
      model.feed_forward, model.vocabulary, model.padded_vocabulary, model.context);
}

absl::StatusOr<int64_t> Trainer::Resume(std::optional<StateSource> initial) {
  int64_t start = 0;
  if (!config_.checkpoint_directory.empty()) {
    const absl::StatusOr<std::vector<int64_t>> steps = StepsToResume();
    if (!steps.ok()) {
      return steps.status();
    }
    for (auto step = steps->rbegin(); start == 0 && step != steps->rend(); ++step) {
      const absl::StatusOr<bool> loaded = LoadCheckpoint(*step);
      if (!loaded.ok()) {
        return loaded.status();
      }
      start = *loaded ? *step : 0;
    }
    if (start == 0 && !steps->empty()) {
      return absl::DataLossError(fmt::format(
          "{}: none of {} checkpoints can be loaded, the last of step {}; move them away to start "
          "anew",
          config_.checkpoint_directory, steps->size(), steps->back()));
    }
  }
  if (start == 0) {
    const StateSource source =
        initial.has_value() ? *std::move(initial) : InitialState(engine_.layout(), config_.seed);
    if (absl::Status status = engine_.Load(source); !status.ok()) {
      return status;
    }
  }
  checkpoint_step_ = start;
  for (TrainingObserver* observer : observers_) {
    observer->OnStart(start);
  }
  return start;
}

// As rank 0 sees them: a directory shared over a network may look different elsewhere for a while.
absl::StatusOr<std::vector<int64_t>> Trainer::StepsToResume() {
  // Rank 0 first, because it removes what crashes left.
  absl::Status status;
  for (const bool turn_of_leader : {true, false}) {
    if (turn_of_leader == leads()) {
      absl::StatusOr<std::unique_ptr<CheckpointWriter>> writer =
          CheckpointWriter::Create({.directory = config_.checkpoint_directory,
                                    .rank = communicator_.rank(),
                                    .world_size = communicator_.world_size(),
                                    .keep = config_.keep_checkpoints});
      status = writer.status();
      if (writer.ok()) {
        writer_ = *std::move(writer);
      }
    }
    const absl::StatusOr<bool> failed = AgreeOnAny(communicator_, !status.ok(), config_.timeout);
    if (!failed.ok()) {
      return failed.status();
    }
    if (*failed) {
      return status.ok() ? absl::UnavailableError(
                               fmt::format("{}: another rank can't write checkpoints there",
                                           config_.checkpoint_directory))
                         : status;
    }
  }
  std::vector<int64_t> steps;
  if (leads()) {
    absl::StatusOr<std::vector<int64_t>> committed = CommittedSteps(config_.checkpoint_directory);
    status = committed.status();
    if (committed.ok()) {
      steps = *std::move(committed);
    }
  }
  // Not to be taken for an empty directory.
  const absl::StatusOr<bool> unreadable = AgreeOnAny(communicator_, !status.ok(), config_.timeout);
  if (!unreadable.ok() || *unreadable) {
    status.Update(unreadable.status());
    return status.ok() ? absl::UnavailableError(
                             fmt::format("{}: rank 0 can't list it", config_.checkpoint_directory))
                       : status;
  }
  return BroadcastSteps(std::move(steps));
}

absl::StatusOr<std::vector<int64_t>> Trainer::BroadcastSteps(std::vector<int64_t> steps) {
  auto count = static_cast<int64_t>(steps.size());
  absl::Status status =
      communicator_.Broadcast(std::as_writable_bytes(std::span(&count, 1)), 0, config_.timeout);
  if (!status.ok()) {
    return status;
  }
  steps.resize(count);
  if (count > 0) {
    status = communicator_.Broadcast(std::as_writable_bytes(std::span(steps)), 0, config_.timeout);
  }
  return status.ok() ? absl::StatusOr<std::vector<int64_t>>(std::move(steps)) : status;
}

absl::StatusOr<bool> Trainer::LoadCheckpoint(int64_t step) {
  absl::StatusOr<CheckpointReader> reader =
      CheckpointReader::Open(config_.checkpoint_directory, step);
  absl::Status status = reader.status();
  const bool of_another_run = reader.ok() && reader->info().identity != Identity();
  if (reader.ok() && !of_another_run) {
    status = engine_.Load([&reader](StateKind kind, int64_t offset, std::span<float> values) {
      return reader->Read(kind, offset, values);
    });
  }
  const absl::StatusOr<bool> other = AgreeOnAny(communicator_, of_another_run, config_.timeout);
  if (!other.ok() || *other) {
    return !other.ok() ? other.status()
                       : absl::FailedPreconditionError(fmt::format(
                             "{}: holds checkpoints of another model ({}), this one is {}; name "
                             "another directory",
                             config_.checkpoint_directory,
                             of_another_run ? reader->info().identity : "as another rank sees",
                             Identity()));
  }
  if (!status.ok()) {
    for (TrainingObserver* observer : observers_) {
      observer->OnCheckpoint(step, status);
    }
  }
  const absl::StatusOr<bool> failed = AgreeOnAny(communicator_, !status.ok(), config_.timeout);
  if (!failed.ok()) {
    return failed.status();
  }
  return !*failed;
}

}  // namespace muster::worker
