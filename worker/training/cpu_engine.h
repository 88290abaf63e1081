#pragma once

#include <memory>

#include "worker/model/optimizer.h"
#include "worker/training/engine.h"
#include "worker/training/sharding.h"

namespace muster::worker {

// The reference engine: worker/model's Transformer over a ShardedState.
class CpuEngine : public Engine {
 public:
  struct Options {
    ModelConfig model;
    OptimizerConfig optimizer;
    Sharding sharding = Sharding::kDataParallel;
    int sequences = 1;                          // of a micro-batch
    int sequence = 0;                           // tokens
    absl::Duration timeout = absl::Minutes(5);  // of each collective
  };

  // InvalidArgument if options don't fit. The state is zero until Load. The communicator must
  // outlive this.
  static absl::StatusOr<std::unique_ptr<CpuEngine>> Create(const Options& options,
                                                           Communicator& communicator);

  const ParameterLayout& layout() const override { return transformer_.layout(); }
  // Of the whole process, at its highest.
  int64_t memory_bytes() const override;
  const ModelConfig& model() const override { return transformer_.config(); }
  std::string Description() const override;
  absl::StatusOr<StepResult> Step(int64_t step, std::span<const Batch> batches) override;
  absl::StatusOr<double> Loss(std::span<const Batch> batches) override;
  absl::Status Load(const StateSource& source) override { return state_.Load(source); }
  absl::StatusOr<std::unique_ptr<StateCopy>> CopyState() override {
    return muster::worker::CopyState(state_.OwnedState());
  }
  // The same where it lies. Valid until the next Step or Load.
  std::vector<StateRange> OwnedState() const { return state_.OwnedState(); }

 private:
  CpuEngine(const Options& options, Transformer transformer, Communicator& communicator);
  double MeanFactor(size_t batches) const;

  Options options_;
  Communicator& communicator_;
  Transformer transformer_;
  ShardedState state_;  // refers to the transformer's layout
};

}  // namespace muster::worker
