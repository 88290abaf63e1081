// What a run tells while it goes on: to people, to programs, to Prometheus.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace muster::worker {

// One step, or the last of several.
struct StepReport {
  int64_t step = 0;  // steps done, from 1 on
  int64_t total_steps = 0;
  double loss = 0;
  double gradient_norm = 0;
  double learning_rate = 0;
  double tokens_per_second = 0;  // of all ranks
  double flops_per_token = 0;
  double peak_flops = 0;     // of all ranks, as the engine knows it; 0: it doesn't
  int64_t memory_bytes = 0;  // of this rank
  double seconds_left = 0;
};

// A step whose loss or gradient was no number, and which changed nothing.
struct SkipReport {
  int64_t step = 0;  // steps done with it
  double loss = 0;
  double gradient_norm = 0;
  int64_t in_a_row = 0;
  int64_t total = 0;  // since this process began or resumed
};

// Called by the training loop's thread, between steps; should return soon.
class TrainingObserver {
 public:
  TrainingObserver() = default;
  TrainingObserver(const TrainingObserver&) = delete;
  TrainingObserver& operator=(const TrainingObserver&) = delete;
  virtual ~TrainingObserver() = default;

  // Before all others: Engine::Description.
  virtual void OnEngine(std::string_view /*description*/) {}
  virtual void OnStep(const StepReport& report) = 0;
  virtual void OnSkip(const SkipReport& /*report*/) {}
  virtual void OnValidation(int64_t step, double loss) = 0;
  // The checkpoint of that step counts from now on, or could not be written.
  virtual void OnCheckpoint(int64_t step, const absl::Status& status) = 0;
  // Training begins after that step; 0: from the start.
  virtual void OnStart(int64_t step) = 0;
};

// "step 120/1000 [#         ]  loss 4.0312  grad norm 0.87  12.4k tokens/s  MFU 41.2 %  0.8 GiB
// 3m20s left", MFU only where a peak is known (above 0 FLOP/s, of all ranks): this one, or else the
// report's.
std::string ProgressLine(const StepReport& report, double peak_flops);

// One JSON object: event ("step", "skip", "validation", "checkpoint", "start"), step, and what
// belongs to it. A number that JSON can't hold is null.
std::string StepJson(const StepReport& report);
std::string SkipJson(const SkipReport& report);
std::string ValidationJson(int64_t step, double loss);
std::string CheckpointJson(int64_t step, const absl::Status& status);
std::string StartJson(int64_t step);

// The latest values, for a Prometheus endpoint. May be read by any thread meanwhile.
class TrainingMetrics : public TrainingObserver {
 public:
  void OnStep(const StepReport& report) override;
  void OnSkip(const SkipReport& report) override;
  void OnValidation(int64_t step, double loss) override;
  void OnCheckpoint(int64_t step, const absl::Status& status) override;
  void OnStart(int64_t step) override;

  // In the text exposition format; what isn't known yet is left out.
  std::string Text() const;

 private:
  mutable std::mutex mutex_;
  std::optional<StepReport> last_;  // guarded by mutex_, as are those below
  std::optional<double> validation_loss_;
  std::optional<int64_t> checkpoint_step_;
  int64_t checkpoint_failures_ = 0;
  int64_t skipped_steps_ = 0;
};

}  // namespace muster::worker
