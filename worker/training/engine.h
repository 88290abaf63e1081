// What the training loop needs of a machine that trains: a step, a loss, and the state. The CPU
// engine is the reference; faster ones stand behind the same interface.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/hugging_face.h"
#include "worker/model/parameter_layout.h"
#include "worker/model/transformer.h"

namespace muster::worker {

struct StepResult {
  double loss = 0;           // mean over all tokens of all ranks, before the update
  double gradient_norm = 0;  // global, before clipping
  double learning_rate = 0;
  // The loss or the norm is no number, on all ranks: the state stayed as it was.
  bool skipped = false;
};

// Where to take a part of the training state from: fills in the floats of that kind from `offset`
// of the flat buffer on.
using StateSource =
    std::function<absl::Status(StateKind kind, int64_t offset, std::span<float> values)>;

// Used by one thread. Every rank makes the same calls in the same order; an error of one rank's
// communication is an error of all.
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  virtual const ParameterLayout& layout() const = 0;
  virtual const ModelConfig& model() const = 0;

  // For the log: what trains, in which numbers, how the state is spread and why, and what its
  // memory is for, as far as that is known.
  virtual std::string Description() const = 0;

  // One optimizer step (0, 1, ...) on the mean of all ranks' micro-batches, of which every rank has
  // as many. One whose loss or gradient is not a number is skipped.
  virtual absl::StatusOr<StepResult> Step(int64_t step, std::span<const Batch> batches) = 0;

  // What is in use of the memory where this rank holds its state: its GPU's, or its process's.
  virtual int64_t memory_bytes() const = 0;

  // What this rank's device could do at best, FLOP/s in the precision of its products; 0: not
  // known.
  virtual double peak_flops() const { return 0; }

  // The mean loss over all tokens of all ranks' micro-batches.
  virtual absl::StatusOr<double> Loss(std::span<const Batch> batches) = 0;

  // Replaces the whole state. After an error it is undefined until a Load succeeds.
  virtual absl::Status Load(const StateSource& source) = 0;

  // This rank's part of the state as it is now; all ranks' together are all of it, once. Step may
  // be called while it is on its way. The one before must be gone, and this one must be before the
  // engine is.
  virtual absl::StatusOr<std::unique_ptr<StateCopy>> CopyState() = 0;
};

// Initial values by seed (ParameterLayout::Initialize), moments zero. The layout must outlive it.
StateSource InitialState(const ParameterLayout& layout, uint64_t seed);

// Weights to start from, moments zero. They must outlive it.
StateSource WeightsState(const HuggingFaceWeights& weights);

}  // namespace muster::worker
