#include "worker/model/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>
#include <utility>

#include "fmt/format.h"

namespace muster::worker {

absl::Status Validate(const OptimizerConfig& config) {
  const std::array<std::pair<std::string_view, double>, 6> not_negative = {{
      {"learning_rate", config.learning_rate},
      {"min_learning_rate", config.min_learning_rate},
      {"warmup_steps", static_cast<double>(config.warmup_steps)},
      {"total_steps", static_cast<double>(config.total_steps)},
      {"weight_decay", config.weight_decay},
      {"clip_norm", config.clip_norm},
  }};
  for (const auto& [name, value] : not_negative) {
    if (value < 0 || !std::isfinite(value)) {
      return absl::InvalidArgumentError(
          fmt::format("{} is {}; it must be a number not below 0", name, value));
    }
  }
  for (const auto& [name, value] :
       {std::pair("beta1", config.beta1), std::pair("beta2", config.beta2)}) {
    const bool valid = value >= 0 && value < 1;  // NaN isn't
    if (!valid) {
      return absl::InvalidArgumentError(
          fmt::format("{} is {}; it must be at least 0 and below 1", name, value));
    }
  }
  if (!(config.epsilon > 0)) {
    return absl::InvalidArgumentError(
        fmt::format("epsilon is {}; it must be above 0", config.epsilon));
  }
  return absl::OkStatus();
}

double LearningRate(const OptimizerConfig& config, int64_t step) {
  if (step < config.warmup_steps) {
    return config.learning_rate * static_cast<double>(step + 1) /
           static_cast<double>(config.warmup_steps);
  }
  if (step >= config.total_steps) {
    return config.min_learning_rate;
  }
  const double progress = static_cast<double>(step - config.warmup_steps) /
                          static_cast<double>(config.total_steps - config.warmup_steps);
  return config.min_learning_rate + 0.5 * (1 + std::cos(std::numbers::pi * progress)) *
                                        (config.learning_rate - config.min_learning_rate);
}

double SquaredNorm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) {
    sum += static_cast<double>(value) * value;
  }
  return sum;
}

double ClipFactor(const OptimizerConfig& config, double norm) {
  return config.clip_norm == 0 ? 1 : std::min(1.0, config.clip_norm / (norm + 1e-6));
}

void UpdateAdamW(const OptimizerConfig& config, const ParameterLayout& layout, int64_t step,
                 double gradient_factor, const OptimizerRange& range) {
  const double rate = LearningRate(config, step);
  const auto count = static_cast<double>(step + 1);
  const auto beta1 = static_cast<float>(config.beta1);
  const auto beta2 = static_cast<float>(config.beta2);
  const auto factor = static_cast<float>(gradient_factor);
  const auto step_size = static_cast<float>(rate / (1 - std::pow(config.beta1, count)));
  const auto correction = static_cast<float>(std::sqrt(1 - std::pow(config.beta2, count)));
  const auto epsilon = static_cast<float>(config.epsilon);
  const int64_t end = range.offset + static_cast<int64_t>(range.parameters.size());
  for (const Parameter& parameter : layout.parameters()) {
    const int64_t first = std::max(range.offset, parameter.offset) - range.offset;
    const int64_t last = std::min(end, parameter.offset + parameter.size()) - range.offset;
    const auto keep = static_cast<float>(parameter.decays ? 1 - rate * config.weight_decay : 1);
    for (int64_t i = first; i < last; ++i) {
      const float gradient = factor * range.gradients[i];
      float& m = range.first_moment[i];
      float& v = range.second_moment[i];
      m = beta1 * m + (1 - beta1) * gradient;
      v = beta2 * v + (1 - beta2) * gradient * gradient;
      range.parameters[i] =
          keep * range.parameters[i] - step_size * m / (std::sqrt(v) / correction + epsilon);
    }
  }
}

}  // namespace muster::worker
