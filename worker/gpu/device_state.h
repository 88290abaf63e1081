// What one rank's GPU keeps of the training state, and how it is spread over ranks: the chunks of
// worker/training/shard_layout.h, the same as the CPU's ShardedState.
//
//                  weights (bf16)     gradients (fp32)   parameters, moments (fp32)
//   data parallel  all                all                all
//   ZeRO-1         all                all                own chunks
//   ZeRO-3         own chunks, and    own chunks, and    own chunks
//                  units in use       units in use
//
// The weights of norms are kept by every rank in fp32 as well. Gradients are fp32 also where they
// travel in bf16: each rank's is rounded on the communicator's stream, and the sum widened.
//
// It communicates beside the model's work, and as far as possible beside that part of it which
// shares multiprocessors well: a unit's gradient is reduced while attention's backward of the next
// one goes on, and its weights are gathered while AdamW goes on and, where that is over sooner,
// while the next forward begins (ZeRO-1), or while attention of the unit before it does (ZeRO-3).
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <optional>
#include <vector>

#include "worker/gpu/device_memory.h"
#include "worker/gpu/device_units.h"
#include "worker/gpu/kernels/optimizer.h"
#include "worker/gpu/nccl_communicator.h"
#include "worker/training/engine.h"
#include "worker/training/precision.h"
#include "worker/training/shard_layout.h"
#include "worker/training/sharding.h"
#include "worker/training/unit_slots.h"

namespace muster::worker {

// Used by one thread, as DeviceUnits.
class DeviceState : public DeviceUnits {
 public:
  struct Options {
    Sharding sharding = Sharding::kDataParallel;
    GradientReduction gradient_reduction = GradientReduction::kFp32;
    bool tied = false;  // the head is the first unit's embedding
  };

  // The layout must outlive this. With one rank all shardings are the same.
  DeviceState(const ParameterLayout& layout, const Options& options, int rank, int world_size);
  ~DeviceState() override;

  // Whether all units' weights are always there whole.
  bool weights_stay() const { return !partitioned(); }
  // Takes what it needs (twice: device_memory.h).
  void TakeMemory(MemoryCutter& cutter);
  // Fills weights with numbers as in training, so that products can be timed with them. Nothing is
  // communicated before Start().
  void FillForTiming(const LaunchContext& context);
  // The state is zero from here on, until Load. `communicator`, null for one rank, must outlive
  // this.
  absl::Status Start(const LaunchContext& context, NcclCommunicator* communicator);

  // Before the work of a step or of a loss is put on the stream.
  absl::Status Begin();
  // Before each micro-batch's backward: whether it is a step's first, and its last.
  void BeginMicroBatch(bool first, bool last);

  absl::StatusOr<const Bf16*> Acquire(int unit) override;
  absl::StatusOr<const NormWeights*> AcquireNorms() override;
  void Release(int unit) override;
  int64_t weights_version() const override { return weights_version_; }
  absl::StatusOr<Gradient> AcquireGradient(int unit) override;
  absl::Status ReleaseGradient(int unit) override;
  absl::Status BeginShared() override;

  // After the last micro-batch: the stream goes on when gradients are sums over all ranks.
  absl::Status FinishGradients();
  // Adds what this rank owns of those sums' squared norm.
  void AddSquaredNorm(StepSums* sums);
  // `sums` becomes the sum of all ranks'.
  absl::Status SumOverRanks(StepSums* sums);
  // AdamW on what this rank updates, by the sums of all.
  absl::Status Update(const AdamWFactors& factors, const StepSums* sums);

  // As Engine's. A copy travels on a stream of its own; only the next change of the state waits for
  // it.
  absl::Status Load(const StateSource& source);
  absl::StatusOr<std::unique_ptr<StateCopy>> CopyState();
  // Takes the host's memory for copies, which the first of them does otherwise: seconds for some
  // gigabytes.
  absl::Status PrepareCopies();

 private:
  // A range of the flat buffer, and where it lies in the buffers that hold it.
  struct Range {
    int64_t offset = 0;
    int64_t size = 0;
    int64_t kept = 0;     // in weights_ and gradients_
    int64_t updated = 0;  // in parameters_ and the moments
    int unit = 0;
  };
  // Of one norm, in norm_values_.
  struct NormPlace {
    int64_t weight = 0;
    std::optional<int64_t> bias;
  };
  // One of ZeRO-3's places for a unit.
  struct Slot {
    Bf16* weights = nullptr;
    cudaEvent_t gathered = nullptr;
    cudaEvent_t released = nullptr;
  };
  struct GradientSlot {
    float* data = nullptr;
    cudaEvent_t reduced = nullptr;
    bool in_use = false;
  };

  // Whether gradients travel in bf16.
  bool rounds() const { return rounded_size_ > 0; }
  // Sums over ranks of a unit's gradient `whole`: all of it in its own place, or this rank's chunk,
  // which `own` becomes or gets added.
  absl::Status ReduceWhole(const ShardLayout::Unit& place, float* whole);
  absl::Status ReduceChunk(const ShardLayout::Unit& place, const float* whole, Into into,
                           float* own);
  bool partitioned() const { return sharding_ == Sharding::kZero3; }
  void MakeRanges(int world_size);
  // Which parts of the norms' parameters this rank updates, and where they go in norm_values_.
  void MakeNormRuns();
  // Before this rank's are written there: the sum over ranks of what each has, and zero elsewhere,
  // is all of it.
  absl::Status ClearNorms();
  // Brings all ranks' to norm_values_.
  absl::Status ShareNorms();
  bool communicates_weights() const {
    return communicator_ != nullptr && sharding_ != Sharding::kDataParallel;
  }
  absl::Status MakeEvents();
  absl::Status Clear();
  // Puts what waits for BeginShared on the communicator's stream, at the latest before what is
  // there is needed.
  absl::Status CommunicateWaiting();
  absl::Status ReduceGradient(int unit);
  // ZeRO-1: all ranks' chunks of a unit's weights.
  absl::Status GatherWeights(int unit);
  // ZeRO-3: puts the unit into its slot.
  absl::Status Fetch(int unit);

  const ParameterLayout& layout_;
  const Sharding sharding_;
  const ShardLayout shards_;
  std::vector<Range> owned_;    // by this rank, once among all
  std::vector<Range> updated_;  // by this rank
  std::vector<DecayRun> host_decay_runs_;
  std::vector<ParameterRun> host_norm_runs_;
  std::vector<NormPlace> norm_places_;
  int64_t norm_size_ = 0;
  std::vector<NormWeights> norms_;
  LaunchContext context_;
  NcclCommunicator* communicator_ = nullptr;
  bool first_ = true, last_ = true;  // micro-batch
  std::vector<int> unreduced_;       // units whose gradient waits for BeginShared
  std::optional<int> unfetched_;     // the one whose weights do
  bool weights_changed_ = false;     // by Load; Begin shares them
  int64_t weights_version_ = 0;
  std::vector<cudaEvent_t> gathered_;  // ZeRO-1: of each unit
  cudaEvent_t norms_shared_ = nullptr;

  // On the device.
  Bf16* weights_ = nullptr;
  float *gradients_ = nullptr, *parameters_ = nullptr;
  float *first_moment_ = nullptr, *second_moment_ = nullptr;
  double* norm_partials_ = nullptr;
  DecayRun* decay_runs_ = nullptr;
  ParameterRun* norm_runs_ = nullptr;
  float* norm_values_ = nullptr;

  // ZeRO-3's.
  UnitSlots weight_slots_, gradient_slots_;
  std::vector<Slot> slots_;
  std::vector<GradientSlot> slot_gradients_;
  float* chunk_sum_ = nullptr;  // of later micro-batches

  int64_t rounded_size_ = 0;  // of the largest unit, where gradients travel in bf16
  Bf16* rounded_ = nullptr;   // used by the communicator's stream

  // Of copies of the state.
  cudaStream_t copy_stream_ = nullptr;
  cudaEvent_t state_ready_ = nullptr;  // to be copied
  cudaEvent_t state_copied_ = nullptr;
  PinnedMemory host_state_;
};

}  // namespace muster::worker
