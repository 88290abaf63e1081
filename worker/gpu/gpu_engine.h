#pragma once

#include <cuda_runtime.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/communicator/communicator.h"
#include "worker/gpu/gpu_transformer.h"
#include "worker/model/optimizer.h"
#include "worker/training/engine.h"

namespace muster::worker {

// The engine for NVIDIA GPUs: GpuTransformer, bf16 weights beside fp32 parameters, and AdamW, on
// one GPU. All its memory is taken in Create, or refused there.
//
// A step is put on one stream whole. The host waits for loss and norm only, which are there before
// AdamW runs, so it prepares the next step meanwhile.
class GpuEngine : public Engine {
 public:
  struct Options {
    ModelConfig model;
    OptimizerConfig optimizer;
    int sequences = 1;  // of a micro-batch
    int sequence = 0;   // tokens
    int device = 0;     // CUDA's number of the GPU
    Recompute recompute = {};
    bool plain_attention = false;
    bool deterministic = false;
    std::string plan_cache =
        {};  // where plans of products are kept for the next start; empty: nowhere
  };

  // InvalidArgument if options don't fit, NotFound if there is no GPU or no cuBLAS,
  // ResourceExhausted with the plan of its memory if that doesn't fit. Unimplemented for more than
  // one rank. The state is zero until Load. The communicator must outlive this.
  static absl::StatusOr<std::unique_ptr<GpuEngine>> Create(const Options& options,
                                                           Communicator& communicator);
  ~GpuEngine() override;

  const ParameterLayout& layout() const override { return transformer_->layout(); }
  const ModelConfig& model() const override { return transformer_->config(); }
  absl::StatusOr<StepResult> Step(int64_t step, std::span<const Batch> batches) override;
  absl::StatusOr<double> Loss(std::span<const Batch> batches) override;
  absl::Status Load(const StateSource& source) override;
  std::vector<StateRange> OwnedState() const override;
  int64_t memory_bytes() const override { return memory_bytes_; }

  // What its memory is for.
  std::string memory() const { return memory_text_; }
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

  explicit GpuEngine(const Options& options) : options_(options) {}
  absl::Status Initialize();
  void TakeMemory(MemoryCutter& cutter);
  absl::StatusOr<DeviceBatch> Stage(const Batch& batch);
  // Of the batch that was staged last.
  absl::StatusOr<TokenOrder> StageTokenOrder();
  absl::Status CopyToDevice(const Staging& staging, int64_t first, int64_t count);
  absl::Status Begin();
  absl::Status Update(int64_t step);
  // Waits for what the step has added up.
  absl::StatusOr<StepSums> Sums();
  float* StateOf(StateKind kind) const;

  Options options_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t summed_ = nullptr;
  std::unique_ptr<GpuTransformer> transformer_;
  std::string memory_text_;
  int64_t memory_bytes_ = 0;
  DeviceMemory memory_;
  PinnedMemory pinned_;
  std::unique_ptr<Gemms> gemms_;
  std::unique_ptr<ResidentDeviceUnits> units_;
  std::unique_ptr<Timeline> timeline_;

  // On the device, each as large as the flat buffer.
  float *parameters_ = nullptr, *gradients_ = nullptr;
  float *first_moment_ = nullptr, *second_moment_ = nullptr;
  Bf16* weights_ = nullptr;
  void* gemm_workspace_ = nullptr;
  StepSums* sums_ = nullptr;
  double* norm_partials_ = nullptr;
  DecayRun* decay_runs_ = nullptr;
  std::vector<DecayRun> host_decay_runs_;

  std::array<Staging, 2> staging_;
  int next_staging_ = 0;
  StepSums* host_sums_ = nullptr;      // pinned
  std::vector<int32_t> token_counts_;  // of the vocabulary, for sorting
  mutable PinnedMemory host_state_;    // what OwnedState last returned
};

}  // namespace muster::worker
