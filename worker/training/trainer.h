// The training loop: steps, validation, checkpoints, and a stop that all ranks agree on.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/communicator/communicator.h"
#include "worker/data/dataset.h"
#include "worker/training/engine.h"
#include "worker/training/observer.h"

namespace muster::worker {

struct TrainingConfig {
  int64_t steps = 0;
  int sequences_per_step = 0;          // of all ranks together
  int micro_batch = 1;                 // sequences at a time on a rank
  int sequence = 0;                    // tokens
  uint64_t seed = 1;                   // of initial parameters, and of the data's order
  int64_t report_every = 10;           // steps
  int64_t validate_every = 0;          // steps; 0: never
  int validation_sequences = 0;        // of all ranks together
  std::string checkpoint_directory{};  // empty: none are written or resumed
  int64_t checkpoint_every = 0;        // steps; 0: only at the end
  int keep_checkpoints = 3;
  bool resume_anyway = false;  // also from checkpoints of another seed, batch or data
  // In a row, whose loss or gradient is no number, before that is the end; 0: the first one is.
  int most_skipped_steps = 10;
  absl::Duration timeout = absl::Minutes(5);  // of each collective of the loop
};

// InvalidArgument, with the numbers, if batches can't be divided among that many ranks.
absl::Status Validate(const TrainingConfig& config, int world_size);

struct TrainingEnd {
  int64_t step = 0;      // steps done
  bool stopped = false;  // because a rank asked for it, before the last step
  double loss = 0;       // of the last step
};

// One run on one rank, used by one thread. Every rank makes the same calls.
class Trainer {
 public:
  // All must outlive it. `validation` may be null.
  Trainer(TrainingConfig config, Engine& engine, Communicator& communicator,
          const Dataset& training, const Dataset* validation,
          std::vector<TrainingObserver*> observers);

  // True if this rank has been asked to end, for example by SIGTERM; read at every step's end.
  void set_stop_requested(std::function<bool()> stop_requested) {
    stop_requested_ = std::move(stop_requested);
  }

  // Resumes from the last committed checkpoint, or from the one before if that is damaged on any
  // rank, or starts with InitialState or `initial`; trains to the last step or until a rank asks to
  // stop; and leaves a committed checkpoint of where it ended.
  //
  // A periodic checkpoint that can't be written is told to the observers, and training goes on; one
  // at the end is an error. FailedPrecondition if there are checkpoints of another model or, unless
  // the configuration allows it, of another seed, batch or data; or if the loss is no number in
  // more steps in a row than may be skipped, or still isn't one at the end.
  absl::StatusOr<TrainingEnd> Run(std::optional<StateSource> initial = std::nullopt);

 private:
  // One rank's part of the sequences from `first` on, as micro-batches.
  struct Batches {
    std::vector<int32_t> tokens, targets;
    std::vector<Batch> batches;
  };

  Batches Read(const Dataset& data, int64_t first, int sequences) const;
  // Those of that step, which may have been read while the one before was computed.
  Batches TakeBatches(int64_t step);
  absl::StatusOr<int64_t> Resume(std::optional<StateSource> initial);
  absl::StatusOr<std::vector<int64_t>> StepsToResume();
  absl::StatusOr<std::vector<int64_t>> BroadcastSteps(std::vector<int64_t> steps);
  // Whether all ranks could load that step.
  absl::StatusOr<bool> LoadCheckpoint(int64_t step);
  absl::Status OneStep(int64_t step);
  absl::Status Skip(int64_t step, const StepResult& result);
  // After steps that were skipped: whether the parameters still have a loss, on other sequences.
  absl::Status CheckParameters();
  absl::Status NotFinite(std::string_view why) const;
  absl::Status ValidateLoss(int64_t step);
  void Report(int64_t step, const StepResult& result);

  absl::Status BeginCheckpoint(int64_t step);
  // At a step's end: what ranks agree on. Commits the checkpoint under way if all have written.
  absl::StatusOr<bool> AgreeToStop();
  absl::Status FinishCheckpoint();  // waits for it
  absl::Status LastCheckpoint(int64_t step);
  std::string Identity() const;
  std::string Course() const;
  absl::Status CheckSameRun(const CheckpointInfo& info) const;
  bool leads() const { return communicator_.rank() == 0; }

  const TrainingConfig config_;
  Engine& engine_;
  Communicator& communicator_;
  const Dataset& training_;
  const Dataset* validation_;
  const std::vector<TrainingObserver*> observers_;
  std::function<bool()> stop_requested_ = [] { return false; };

  std::unique_ptr<CheckpointWriter> writer_;
  int64_t checkpoint_step_ = -1;       // under way, or committed last
  bool checkpoint_under_way_ = false;  // begun, and neither committed nor given up
  absl::Status checkpoint_status_;     // of the last one
  TrainingEnd end_;
  absl::Time reported_at_;
  int64_t reported_step_ = 0;
  StepResult last_result_;
  int64_t skipped_in_a_row_ = 0;
  int64_t skipped_ = 0;
  std::future<Batches> ahead_;  // of the next step; last, because its thread uses the others
};

}  // namespace muster::worker
