#pragma once

#include <cuda_runtime.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/communicator/communicator.h"
#include "worker/gpu/device_state.h"
#include "worker/gpu/gpu_transformer.h"
#include "worker/gpu/nccl_communicator.h"
#include "worker/model/optimizer.h"
#include "worker/training/engine.h"
#include "worker/training/sharding_choice.h"

namespace muster::worker {

// The engine for NVIDIA GPUs: GpuTransformer over a DeviceState, a GPU to each rank. All its memory
// is taken in Create, or refused there.
//
// A step is put on one stream whole, what ranks do together on another. The host waits for loss and
// norm only, which are there before AdamW runs, so it prepares the next step meanwhile.
class GpuEngine : public Engine {
 public:
  struct Options {
    ModelConfig model;
    OptimizerConfig optimizer;
    int sequences = 1;                      // of a micro-batch
    int sequence = 0;                       // tokens
    int device = 0;                         // CUDA's number of the GPU
    std::optional<Sharding> sharding = {};  // default: the first that fits all ranks
    GradientReduction gradient_reduction = GradientReduction::kFp32;
    NcclCommunicator::Options communication = {};
    Recompute recompute = {};
    Precision precision = Precision::kBf16;
    AttentionKind attention = AttentionKind::kCudnn;
    bool deterministic = false;
    bool copies_state = false;  // takes the memory for CopyState at once
    std::string plan_cache =
        {};  // where plans of products are kept for the next start; empty: nowhere
  };

  // A collective. InvalidArgument if options don't fit the model or the GPU, NotFound if there is
  // no GPU, no cuBLAS or, for several ranks, no NCCL; ResourceExhausted with the plan of its memory
  // if that doesn't fit. What one rank meets, all return. The state is zero until Load. The
  // communicator must outlive this.
  static absl::StatusOr<std::unique_ptr<GpuEngine>> Create(const Options& options,
                                                           Communicator& communicator);
  // What that many ranks would choose, had each of them this process's GPU; of `options.sharding`
  // and the model's state nothing is allocated. As Create.
  static absl::StatusOr<ShardingChoice> PreviewSharding(const Options& options, int world_size);
  ~GpuEngine() override;

  const ParameterLayout& layout() const override { return transformer_->layout(); }
  const ModelConfig& model() const override { return transformer_->config(); }
  absl::StatusOr<StepResult> Step(int64_t step, std::span<const Batch> batches) override;
  absl::StatusOr<double> Loss(std::span<const Batch> batches) override;
  absl::Status Load(const StateSource& source) override;
  absl::StatusOr<std::unique_ptr<StateCopy>> CopyState() override;
  std::string Description() const override;
  int64_t memory_bytes() const override;
  double peak_flops() const override { return peak_flops_; }

  Sharding sharding() const { return choice_.sharding; }
  int64_t planned_bytes() const { return planned_bytes_; }
  // Turns events between the parts of a step on or off. They cost time, so not while measuring a
  // whole step.
  void MeasureParts(bool on);
  // Milliseconds of each part since the last call.
  std::map<std::string, double> Parts();

 private:
  // A micro-batch on its way to the device. Two of them, so that one can be filled while the other
  // is copied.
  struct Staging {
    int32_t* host = nullptr;
    int32_t* device = nullptr;
    cudaEvent_t copied = nullptr;
  };

  GpuEngine(const Options& options, Communicator& ranks) : options_(options), ranks_(ranks) {}
  // One after the other, each after all ranks have done the one before: what needs no memory to
  // speak of; the choice of the sharding; the memory; plans of products; NCCL.
  absl::Status Prepare();
  absl::Status Choose();
  absl::Status Allocate();
  absl::Status MakePlans();
  absl::Status Connect();
  std::unique_ptr<DeviceState> MakeState(Sharding sharding, int rank, int world_size) const;
  // Of the shardings that may be chosen, the preferred first.
  std::vector<ShardingNeed> Needs(int world_size);
  static absl::StatusOr<DeviceRoom> Room(int world_size);
  void TakeMemory(MemoryCutter& cutter, DeviceState& state);
  absl::StatusOr<DeviceBatch> Stage(const Batch& batch);
  // Of the batch that was staged last.
  absl::StatusOr<TokenOrder> StageTokenOrder();
  absl::Status CopyToDevice(const Staging& staging, int64_t first, int64_t count);
  absl::Status Begin();
  double MeanFactor(size_t batches) const;
  // Waits for it, and for what may keep it from coming.
  absl::Status WaitFor(cudaEvent_t event, std::string_view doing);
  // Puts what has been added up on its way to the host.
  absl::Status SendSums();
  absl::StatusOr<StepSums> Sums();  // waits for it
  void Mark(std::string_view part) {
    if (timeline_ != nullptr) timeline_->Mark(part);
  }

  Options options_;
  Communicator& ranks_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t summed_ = nullptr;
  double peak_flops_ = 0;
  std::unique_ptr<GpuTransformer> transformer_;
  std::string gpu_name_;
  ShardingChoice choice_;
  std::string memory_text_;
  int64_t planned_bytes_ = 0;
  DeviceMemory memory_;
  PinnedMemory pinned_;
  std::unique_ptr<Gemms> gemms_;
  std::unique_ptr<DeviceState> state_;
  std::unique_ptr<NcclCommunicator> nccl_;  // null for one rank
  std::unique_ptr<Timeline> timeline_;

  // On the device.
  void* gemm_workspace_ = nullptr;
  StepSums* sums_ = nullptr;

  std::array<Staging, 2> staging_;
  int next_staging_ = 0;
  StepSums* host_sums_ = nullptr;      // pinned
  std::vector<int32_t> token_counts_;  // of the vocabulary, for sorting
};

}  // namespace muster::worker
