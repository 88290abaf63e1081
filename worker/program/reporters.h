// Rank 0's word to the world while it trains: lines of progress, JSON lines, metrics.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "worker/checkpoint/file.h"
#include "worker/program/metrics_server.h"
#include "worker/program/train_config.h"
#include "worker/training/observer.h"

namespace muster::worker {

// "resuming after step 40", ProgressLine, and what became of checkpoints, each a line.
class ProgressReporter : public TrainingObserver {
 public:
  ProgressReporter(double peak_flops, std::function<void(absl::string_view)> write_line)
      : peak_flops_(peak_flops), write_line_(std::move(write_line)) {}

  void OnEngine(std::string_view description) override;
  void OnStep(const StepReport& report) override;
  void OnSkip(const SkipReport& report) override;
  void OnValidation(int64_t step, double loss) override;
  void OnCheckpoint(int64_t step, const absl::Status& status) override;
  void OnStart(int64_t step) override;

 private:
  const double peak_flops_;
  const std::function<void(absl::string_view)> write_line_;
};

// A line of JSON for each event, at the end of a file; each is there as soon as it has happened.
class EventLog : public TrainingObserver {
 public:
  static absl::StatusOr<std::unique_ptr<EventLog>> Open(const std::string& path);

  void OnStep(const StepReport& report) override { Write(StepJson(report)); }
  void OnSkip(const SkipReport& report) override { Write(SkipJson(report)); }
  void OnValidation(int64_t step, double loss) override { Write(ValidationJson(step, loss)); }
  void OnCheckpoint(int64_t step, const absl::Status& status) override {
    Write(CheckpointJson(step, status));
  }
  void OnStart(int64_t step) override { Write(StartJson(step)); }

 private:
  EventLog(std::string path, FileDescriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}
  void Write(std::string json);

  const std::string path_;
  FileDescriptor file_;
};

// All that the configuration asks for, from one generation to the next. What can't be had is told
// and left out: no training ends because nobody can watch it.
class Reporters {
 public:
  Reporters(const NodeConfig& config, std::function<void(absl::string_view)> write_line);
  Reporters(const Reporters&) = delete;
  Reporters& operator=(const Reporters&) = delete;

  std::vector<TrainingObserver*> observers();

 private:
  const std::function<void(absl::string_view)> write_line_;
  ProgressReporter progress_;
  TrainingMetrics metrics_;
  std::unique_ptr<MetricsServer> metrics_server_;  // of metrics_
  std::unique_ptr<EventLog> events_;
};

}  // namespace muster::worker
