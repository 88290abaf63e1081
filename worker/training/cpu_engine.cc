#include "worker/training/cpu_engine.h"

#include <sys/resource.h>

#include <cmath>
#include <utility>

#include "fmt/format.h"

namespace muster::worker {

absl::StatusOr<std::unique_ptr<CpuEngine>> CpuEngine::Create(const Options& options,
                                                             Communicator& communicator) {
  if (absl::Status status = Validate(options.optimizer); !status.ok()) {
    return status;
  }
  absl::StatusOr<Transformer> transformer =
      Transformer::Create(options.model, options.sequences, options.sequence);
  if (!transformer.ok()) {
    return transformer.status();
  }
  // Not make_unique: the constructor is private.
  return std::unique_ptr<CpuEngine>(new CpuEngine(options, *std::move(transformer), communicator));
}

CpuEngine::CpuEngine(const Options& options, Transformer transformer, Communicator& communicator)
    : options_(options),
      communicator_(communicator),
      transformer_(std::move(transformer)),
      state_(transformer_.layout(), options.sharding, communicator, options.timeout) {}

double CpuEngine::MeanFactor(size_t batches) const {
  return 1.0 / (static_cast<double>(batches) * static_cast<double>(transformer_.tokens()) *
                communicator_.world_size());
}

int64_t CpuEngine::memory_bytes() const {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{1024} * usage.ru_maxrss;
}

std::string CpuEngine::Description() const {
  return fmt::format("CPU engine, fp32, {}", ShardingName(options_.sharding));
}

absl::StatusOr<StepResult> CpuEngine::Step(int64_t step, std::span<const Batch> batches) {
  const double factor = MeanFactor(batches.size());
  state_.ZeroGradients();
  double own_loss = 0;
  for (const Batch& batch : batches) {
    const absl::StatusOr<double> loss =
        transformer_.LossAndGradient(batch, static_cast<float>(factor), state_);
    if (!loss.ok()) {
      return loss.status();
    }
    own_loss += *loss * factor;
  }
  if (absl::Status status = state_.ReduceGradients(); !status.ok()) {
    return status;
  }
  const absl::StatusOr<double> loss = SumOverRanks(communicator_, own_loss, options_.timeout);
  if (!loss.ok()) {
    return loss.status();
  }
  const absl::StatusOr<double> norm = state_.GradientNorm();
  if (!norm.ok()) {
    return norm.status();
  }
  const StepResult result = {.loss = *loss,
                             .gradient_norm = *norm,
                             .learning_rate = LearningRate(options_.optimizer, step),
                             .skipped = !std::isfinite(*loss) || !std::isfinite(*norm)};
  absl::Status status;
  if (!result.skipped) {
    status = state_.Update(options_.optimizer, step, ClipFactor(options_.optimizer, *norm));
  }
  return status.ok() ? absl::StatusOr<StepResult>(result) : status;
}

absl::StatusOr<double> CpuEngine::Loss(std::span<const Batch> batches) {
  double own = 0;
  for (const Batch& batch : batches) {
    const absl::StatusOr<double> loss = transformer_.Loss(batch, state_);
    if (!loss.ok()) {
      return loss;
    }
    own += *loss * MeanFactor(batches.size());
  }
  return SumOverRanks(communicator_, own, options_.timeout);
}

}  // namespace muster::worker
