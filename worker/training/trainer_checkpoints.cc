// How the training loop writes checkpoints and resumes from them.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "fmt/format.h"
#include "worker/checkpoint/hugging_face_config.h"
#include "worker/training/trainer.h"

namespace muster::worker {
namespace {

constexpr absl::Duration kWritingPause = absl::Milliseconds(5);

}  // namespace

absl::Status Trainer::BeginCheckpoint(int64_t step) {
  // Slower than the steps between two: the loop waits rather than skip one.
  if (absl::Status status = FinishCheckpoint(); !status.ok()) {
    return status;
  }
  absl::StatusOr<std::unique_ptr<StateCopy>> copy = engine_.CopyState();
  if (!copy.ok()) {
    return copy.status();
  }
  checkpoint_under_way_ = true;
  checkpoint_step_ = step;
  return writer_->Begin({.step = step,
                         .parameters = engine_.layout().size(),
                         .world_size = communicator_.world_size(),
                         .identity = Identity(),
                         .course = Course(),
                         .config = HuggingFaceConfigText(engine_.model(), "float32")},
                        *std::move(copy));
}

absl::Status Trainer::FinishCheckpoint() {
  if (!checkpoint_under_way_) {
    return absl::OkStatus();
  }
  // Some gigabytes take longer to write than a lost rank may take to be noticed.
  while (writer_->under_way() && !writer_->Written()) {
    if (absl::Status lost = communicator_.status(); !lost.ok()) {
      writer_->GiveUp();
      return lost;
    }
    absl::SleepFor(kWritingPause);
  }
  absl::Status result = writer_->Wait();
  if (absl::Status status = AgreeOnResult(communicator_, result, config_.timeout); !status.ok()) {
    return status;
  }
  checkpoint_under_way_ = false;
  if (result.ok()) {
    if (leads()) {
      result = writer_->Commit();
    }
    if (absl::Status status = AgreeOnResult(communicator_, result, config_.timeout); !status.ok()) {
      return status;
    }
  }
  if (!result.ok() && leads()) {
    // What can't be removed either is the next checkpoint's error, if it is one.
    writer_->Drop().IgnoreError();
  }
  checkpoint_status_ = result;
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
  const bool gpt2 = model.family == Family::kGpt2;
  // What version 0.1 didn't tell apart is left out where it is as it was then.
  std::string text = fmt::format(
      "{} layers={} width={} heads={}/{} feed_forward={} vocabulary={}/{} context={}",
      gpt2 ? "gpt2" : "llama3", model.layers, model.width, model.heads, model.key_value_heads,
      model.feed_forward, model.vocabulary, model.padded_vocabulary, model.context);
  const ModelConfig then;
  if (model.norm_epsilon != then.norm_epsilon) {
    text += fmt::format(" epsilon={}", model.norm_epsilon);
  }
  if (gpt2) {
    return text;
  }
  if (model.tied_head) {
    text += " tied";
  }
  if (model.rope_theta != then.rope_theta) {
    text += fmt::format(" theta={}", model.rope_theta);
  }
  if (const RopeScaling& scaling = model.rope_scaling; scaling.factor > 1) {
    text += fmt::format(" rope={}/{}/{}/{}", scaling.factor, scaling.low_frequency_factor,
                        scaling.high_frequency_factor, scaling.original_context);
  }
  return text;
}

std::string Trainer::Course() const {
  return fmt::format("seed={} batch={} sequence={} data={}", config_.seed,
                     config_.sequences_per_step, config_.sequence, training_.Fingerprint());
}

absl::Status Trainer::CheckSameRun(const CheckpointInfo& info) const {
  if (info.identity != Identity()) {
    return absl::FailedPreconditionError(
        fmt::format("{}: holds checkpoints of another model ({}), this one is {}; name another "
                    "directory",
                    config_.checkpoint_directory, info.identity, Identity()));
  }
  if (config_.resume_anyway || info.course.empty() || info.course == Course()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(fmt::format(
      "{}: the checkpoint of step {} is of another run ({}), this one has {}: its next steps would "
      "take other sequences than were left. Give it what it had, name another directory, or set "
      "resume-anyway",
      config_.checkpoint_directory, info.step, info.course, Course()));
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
    const absl::Status agreed = AgreeOnResult(communicator_, status, config_.timeout);
    if (!agreed.ok() || !status.ok()) {
      return agreed.ok() ? status : agreed;
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
  const absl::Status agreed = AgreeOnResult(communicator_, status, config_.timeout);
  if (!agreed.ok() || !status.ok()) {
    return agreed.ok() ? status : agreed;
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
  if (reader.ok()) {
    status = CheckSameRun(reader->info());
  }
  if (status.ok()) {
    status = engine_.Load([&reader](StateKind kind, int64_t offset, std::span<float> values) {
      return reader->Read(kind, offset, values);
    });
  }
  if (absl::Status agreed = AgreeOnResult(communicator_, status, config_.timeout); !agreed.ok()) {
    return agreed;
  }
  if (absl::IsFailedPrecondition(status)) {
    return status;
  }
  if (!status.ok()) {
    for (TrainingObserver* observer : observers_) {
      observer->OnCheckpoint(step, status);
    }
  }
  return status.ok();
}

}  // namespace muster::worker
