#include "worker/program/reporters.h"

#include <iostream>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::worker {

void ProgressReporter::OnEngine(std::string_view description) {
  write_line_(absl::string_view(description.data(), description.size()));
}

void ProgressReporter::OnStep(const StepReport& report) {
  write_line_(ProgressLine(report, peak_flops_));
}

void ProgressReporter::OnSkip(const SkipReport& report) {
  write_line_(absl::StrCat("step ", report.step, " skipped: its loss is ", report.loss,
                           " and the gradient's norm ", report.gradient_norm, " (", report.in_a_row,
                           " in a row, ", report.total, " in all)"));
}

void ProgressReporter::OnValidation(int64_t step, double loss) {
  write_line_(absl::StrCat("step ", step, "  validation loss ", loss));
}

void ProgressReporter::OnCheckpoint(int64_t step, const absl::Status& status) {
  write_line_(status.ok() ? absl::StrCat("checkpoint of step ", step, " is committed")
                          : absl::StrCat("checkpoint of step ", step,
                                         " doesn't count: ", status.message()));
}

void ProgressReporter::OnStart(int64_t step) {
  write_line_(step == 0 ? "training from the start"
                        : absl::StrCat("resuming after step ", step, ", the last committed"));
}

absl::StatusOr<std::unique_ptr<EventLog>> EventLog::Open(const std::string& path) {
  absl::StatusOr<FileDescriptor> file = OpenForAppending(path);
  if (!file.ok()) return file.status();
  // Not make_unique: the constructor is private.
  return std::unique_ptr<EventLog>(new EventLog(path, *std::move(file)));
}

void EventLog::Write(std::string json) {
  json += '\n';
  const absl::Status status = WriteAll(file_, path_, std::as_bytes(std::span(json)));
  if (!status.ok()) std::cerr << "muster-worker: " << std::string(status.message()) << "\n";
}

Reporters::Reporters(const NodeConfig& config, std::function<void(absl::string_view)> write_line)
    : write_line_(std::move(write_line)), progress_(config.peak_flops, write_line_) {
  if (config.metrics_port > 0) {
    auto server = MetricsServer::Start(static_cast<uint16_t>(config.metrics_port),
                                       [this] { return metrics_.Text(); });
    if (server.ok()) {
      metrics_server_ = *std::move(server);
    } else {
      write_line_(absl::StrCat("no metrics: ", server.status().message()));
    }
  }
  if (config.events.has_value()) {
    auto events = EventLog::Open(*config.events);
    if (events.ok()) {
      events_ = *std::move(events);
    } else {
      write_line_(absl::StrCat("no events: ", events.status().message()));
    }
  }
}

std::vector<TrainingObserver*> Reporters::observers() {
  std::vector<TrainingObserver*> observers = {&progress_, &metrics_};
  if (events_ != nullptr) observers.push_back(events_.get());
  return observers;
}

}  // namespace muster::worker
