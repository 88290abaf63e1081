// AdamW, its learning rate over time, and clipping by global norm. The optimizer works on ranges of
// the flat buffer (parameter_layout.h), so a rank may own any part of it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "worker/model/parameter_layout.h"

namespace muster::worker {

struct OptimizerConfig {
  double learning_rate = 3e-4;      // the highest
  double min_learning_rate = 3e-5;  // at the end
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;  // the cosine ends there
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;  // 0: no clipping
  bool operator==(const OptimizerConfig&) const = default;
};

// InvalidArgument, naming the field.
absl::Status Validate(const OptimizerConfig& config);

// Of step 0, 1, ...: rises linearly to learning_rate at step warmup_steps - 1, then falls along
// half a cosine to min_learning_rate at total_steps and stays there.
double LearningRate(const OptimizerConfig& config, int64_t step);

// The sum of squares, added up in double precision.
double SquaredNorm(std::span<const float> values);

// What to multiply gradients of that global norm by: clip_norm / (norm + 1e-6), at most 1.
double ClipFactor(const OptimizerConfig& config, double norm);

// The range of the flat buffer from `offset` on: parameters, their gradients and both moments, all
// of one size.
struct OptimizerRange {
  int64_t offset = 0;
  std::span<float> parameters;
  std::span<const float> gradients;
  std::span<float> first_moment;
  std::span<float> second_moment;
};

// One step (0, 1, ...) of AdamW with decoupled decay of those parameters that decay. Gradients are
// multiplied by `gradient_factor` first.
void UpdateAdamW(const OptimizerConfig& config, const ParameterLayout& layout, int64_t step,
                 double gradient_factor, const OptimizerRange& range);

}  // namespace muster::worker
