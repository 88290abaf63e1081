#include "worker/training/observer.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/time/time.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace muster::worker {
namespace {

// "950", "12.4k", "1.3M"
std::string Short(double number) {
  if (number >= 1e6) {
    return fmt::format("{:.1f}M", number / 1e6);
  }
  return number >= 1e3 ? fmt::format("{:.1f}k", number / 1e3) : fmt::format("{:.0f}", number);
}

std::string Left(double seconds) {
  return std::isfinite(seconds) ? absl::FormatDuration(absl::Seconds(std::ceil(seconds))) : "?";
}

void AddMetric(std::string& text, std::string_view name, std::string_view type,
               std::string_view help, double value) {
  text += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n{0} {3}\n", name, type, help,
                      std::isnan(value) ? "NaN" : fmt::format("{}", value));
}

}  // namespace

std::string ProgressLine(const StepReport& report, double peak_flops) {
  constexpr int kBar = 10;
  const auto done =
      static_cast<size_t>(kBar * report.step / std::max<int64_t>(1, report.total_steps));
  std::string line =
      fmt::format("step {}/{} [{:<{}}]  loss {:.4f}  grad norm {:.2f}  {} tokens/s", report.step,
                  report.total_steps, std::string(done, '#'), kBar, report.loss,
                  report.gradient_norm, Short(report.tokens_per_second));
  const double peak = peak_flops > 0 ? peak_flops : report.peak_flops;
  if (peak > 0) {
    line += fmt::format("  MFU {:.1f} %",
                        100 * report.tokens_per_second * report.flops_per_token / peak);
  }
  constexpr double kGiB = 1 << 30;
  return line + fmt::format("  {:.1f} GiB  {} left",
                            static_cast<double>(report.memory_bytes) / kGiB,
                            Left(report.seconds_left));
}

std::string StepJson(const StepReport& report) {
  return nlohmann::json{{"event", "step"},
                        {"step", report.step},
                        {"total_steps", report.total_steps},
                        {"loss", report.loss},
                        {"gradient_norm", report.gradient_norm},
                        {"learning_rate", report.learning_rate},
                        {"memory_bytes", report.memory_bytes},
                        {"tokens_per_second", report.tokens_per_second},
                        {"seconds_left", report.seconds_left}}
      .dump();
}

std::string SkipJson(const SkipReport& report) {
  return nlohmann::json{{"event", "skip"},
                        {"step", report.step},
                        {"loss", report.loss},
                        {"gradient_norm", report.gradient_norm},
                        {"in_a_row", report.in_a_row},
                        {"total", report.total}}
      .dump();
}

std::string ValidationJson(int64_t step, double loss) {
  return nlohmann::json{{"event", "validation"}, {"step", step}, {"loss", loss}}.dump();
}

std::string CheckpointJson(int64_t step, const absl::Status& status) {
  nlohmann::json json = {{"event", "checkpoint"}, {"step", step}, {"committed", status.ok()}};
  if (!status.ok()) {
    json["error"] = std::string(status.message());
  }
  // A path in the message may be no UTF-8.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string StartJson(int64_t step) {
  return nlohmann::json{{"event", "start"}, {"step", step}}.dump();
}

void TrainingMetrics::OnStep(const StepReport& report) {
  const std::scoped_lock lock(mutex_);
  last_ = report;
}

void TrainingMetrics::OnSkip(const SkipReport& /*report*/) {
  const std::scoped_lock lock(mutex_);
  ++skipped_steps_;
}

void TrainingMetrics::OnValidation(int64_t /*step*/, double loss) {
  const std::scoped_lock lock(mutex_);
  validation_loss_ = loss;
}

void TrainingMetrics::OnCheckpoint(int64_t step, const absl::Status& status) {
  const std::scoped_lock lock(mutex_);
  if (status.ok()) {
    checkpoint_step_ = step;
  } else {
    ++checkpoint_failures_;
  }
}

void TrainingMetrics::OnStart(int64_t step) {
  const std::scoped_lock lock(mutex_);
  if (step > 0) {
    checkpoint_step_ = step;
  }
}

std::string TrainingMetrics::Text() const {
  const std::scoped_lock lock(mutex_);
  std::string text;
  if (last_.has_value()) {
    AddMetric(text, "muster_worker_steps", "gauge", "Steps done.",
              static_cast<double>(last_->step));
    AddMetric(text, "muster_worker_loss", "gauge", "Training loss of the last step, in nats.",
              last_->loss);
    AddMetric(text, "muster_worker_gradient_norm", "gauge",
              "Global norm of the gradient before clipping.", last_->gradient_norm);
    AddMetric(text, "muster_worker_learning_rate", "gauge", "Learning rate of the last step.",
              last_->learning_rate);
    AddMetric(text, "muster_worker_tokens_per_second", "gauge", "Tokens a second, of all ranks.",
              last_->tokens_per_second);
    AddMetric(text, "muster_worker_memory_bytes", "gauge", "Memory that rank 0 holds.",
              static_cast<double>(last_->memory_bytes));
    AddMetric(text, "muster_worker_seconds_left", "gauge",
              "Seconds to the last step, as estimated.", last_->seconds_left);
  }
  if (validation_loss_.has_value()) {
    AddMetric(text, "muster_worker_validation_loss", "gauge", "Last validation loss, in nats.",
              *validation_loss_);
  }
  if (checkpoint_step_.has_value()) {
    AddMetric(text, "muster_worker_checkpoint_step", "gauge", "Step of the last checkpoint.",
              static_cast<double>(*checkpoint_step_));
  }
  AddMetric(text, "muster_worker_checkpoint_failures_total", "counter",
            "Checkpoints that could not be written.", static_cast<double>(checkpoint_failures_));
  AddMetric(text, "muster_worker_skipped_steps_total", "counter",
            "Steps that changed nothing, because the loss or the gradient was no number.",
            static_cast<double>(skipped_steps_));
  return text;
}

}  // namespace muster::worker
