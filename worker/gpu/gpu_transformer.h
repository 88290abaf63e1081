// GPT-2 and Llama on one GPU in bf16: the same layers in the same order as worker/model's
// Transformer, which is the reference. The residual stream, activations and their gradients are
// bf16; sums, statistics and the gradients of parameters are fp32. The products of blocks are bf16
// or FP8.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/gpu/attention.h"
#include "worker/gpu/device_memory.h"
#include "worker/gpu/device_units.h"
#include "worker/gpu/fp8_operands.h"
#include "worker/gpu/gemm.h"
#include "worker/gpu/kernels/embedding.h"
#include "worker/gpu/kernels/norm.h"
#include "worker/gpu/kernels/optimizer.h"
#include "worker/gpu/timeline.h"
#include "worker/model/block_view.h"
#include "worker/model/model_config.h"
#include "worker/model/parameter_layout.h"

namespace muster::worker {

// What the forward doesn't keep for the backward, which makes it again from what it reads anyway.
struct Recompute {
  bool norms = false;        // costs a tenth of the norms' backward
  bool activations = false;  // of the MLP
};

// One micro-batch, on the device.
struct DeviceBatch {
  const int32_t* tokens = nullptr;   // [N]
  const int32_t* targets = nullptr;  // [N]
};

// Puts the order of the batch's tokens on the device. Asked for when all other work of a step is on
// the stream already, so that sorting costs the device no time.
using StageOrder = absl::FunctionRef<absl::StatusOr<TokenOrder>()>;

class GpuTransformer {
 public:
  struct Options {
    ModelConfig model;
    int sequences = 1;
    int sequence = 0;
    Recompute recompute = {};
    AttentionKind attention = AttentionKind::kCudnn;
    bool deterministic = false;  // equal inputs give equal bits
    Precision precision = Precision::kBf16;
  };

  // InvalidArgument if sizes don't fit the model or this engine's kernels: the width, the MLP's
  // inner width and the padded vocabulary are multiples of 8, a rotated head of 16; in FP8 all
  // sizes of blocks' products are multiples of 16.
  static absl::StatusOr<std::unique_ptr<GpuTransformer>> Create(const Options& options,
                                                                cudaStream_t stream);

  const ParameterLayout& layout() const { return layout_; }
  const ModelConfig& config() const { return options_.model; }
  int64_t tokens() const { return rows_; }  // of a micro-batch
  const LaunchContext& context() const { return context_; }

  // Takes what it needs (twice: device_memory.h); then, once, makes its plans with what is there.
  // `weights_stay`: every unit's weights are always there whole, so what FP8 makes of them may be
  // kept; where they come and go, so does that.
  void TakeMemory(MemoryCutter& cutter, bool weights_stay);
  // `units` and what they hold are used to time products, so gradients hold anything afterwards.
  absl::Status MakePlans(Gemms& gemms, DeviceUnits& units);

  // Put all work on the stream and return. Adds scale * the sum of the tokens' losses to
  // sums.loss; `LossAndGradient` also leaves the gradient of that in `units`.
  absl::Status Loss(const DeviceBatch& batch, double scale, DeviceUnits& units, StepSums* sums);
  absl::Status LossAndGradient(const DeviceBatch& batch, StageOrder stage_order, double scale,
                               DeviceUnits& units, StepSums* sums);

  // Marks the parts of each step from now on; null: none.
  void SetTimeline(Timeline* timeline) { timeline_ = timeline; }

 private:
  // What the forward of one block leaves for its backward; names as in worker/model/layers.h.
  struct BlockActivations {
    Bf16 *input, *norm1, *qkv, *attention, *middle, *norm2, *up, *inner;
    NormStatistics norm1_statistics, norm2_statistics;
    float* attention_statistics;
  };
  // The three products of a linear layer.
  struct LinearPlans {
    const GemmPlan* forward = nullptr;
    const GemmPlan* input_gradient = nullptr;
    const GemmPlan* weight_gradient = nullptr;
    bool bias_in_weight_gradient = false;
  };
  struct Head {
    const Bf16* weights;
    DeviceUnits::Gradient gradient;
  };

  GpuTransformer(const Options& options, cudaStream_t stream);

  absl::Status PlanLinear(Gemms& gemms, Linear linear);
  absl::Status PlanHead(Gemms& gemms, DeviceUnits& units);
  absl::Status PlanGelu(Gemms& gemms);

  absl::Status Forward(const DeviceBatch& batch, DeviceUnits& units);
  absl::Status BlockForward(int layer, DeviceUnits& units);
  absl::Status Finish(const DeviceBatch& batch, double scale, bool gradient, DeviceUnits& units,
                      StepSums* sums);
  absl::Status FinishChunks(const DeviceBatch& batch, double scale, bool gradient, Head head);
  absl::Status BlockBackward(int layer, DeviceUnits& units);
  absl::Status MlpBackward(int layer, const BlockView<const Bf16>& weights,
                           const BlockView<float>& gradients, Into into);
  absl::Status AttentionBackward(int layer, const BlockView<const Bf16>& weights,
                                 const BlockView<float>& gradients, Into into, float* stream_sum,
                                 DeviceUnits& units);
  absl::Status EmbedBackward(StageOrder stage_order, DeviceUnits& units);

  // The products of a block's linear layer. In FP8 `noted` says that the kernel which made x, or
  // dy, has noted its largest value; the operands are quantised on the way, dy in InputGradient,
  // which comes first.
  absl::Status LinearForward(Linear linear, int layer, const Bf16* x, const Bf16* weight,
                             GemmOperands operands, bool noted = false);
  absl::Status InputGradient(Linear linear, int layer, const Bf16* dy, const Bf16* weight, Bf16* dx,
                             bool noted = false);
  // dw and db; `bias` may be null. x as the forward had it, or, where it isn't kept, made again.
  absl::Status WeightGradient(Linear linear, int layer, const Bf16* dy, const Bf16* x, Into into,
                              float* weight, float* bias);
  void Normalize(const Bf16* x, NormWeights weights, Bf16* y, NormStatistics statistics);

  bool llama() const { return options_.model.family == Family::kLlama; }
  bool tied() const { return options_.model.tied_head; }
  int head_unit() const { return tied() ? 0 : options_.model.layers + 1; }
  int64_t up_width() const {
    return (llama() ? int64_t{2} : int64_t{1}) * options_.model.feed_forward;
  }
  bool fp8() const { return fp8_ != nullptr; }
  LinearSizes SizesOf(Linear linear) const;
  LinearPlans& PlansOf(Linear linear) { return linears_[static_cast<int>(linear)]; }
  int64_t LogitsSize() const { return chunk_ * options_.model.padded_vocabulary; }
  NormShape norm_shape() const;
  void Mark(std::string_view part) {
    if (timeline_ != nullptr) timeline_->Mark(part);
  }

  NormWeights norm1(int layer) const { return norms_[2 * layer]; }
  NormWeights norm2(int layer) const { return norms_[2 * layer + 1]; }
  NormWeights final_norm() const { return norms_[2 * options_.model.layers]; }

  Options options_;
  ParameterLayout layout_;
  AttentionShape shape_;
  int64_t rows_;   // N
  int64_t chunk_;  // rows of logits that are there at once
  LaunchContext context_;
  std::unique_ptr<Attention> attention_;
  Timeline* timeline_ = nullptr;
  const NormWeights* norms_ = nullptr;  // of the pass under way

  std::array<LinearPlans, kLinears> linears_;
  LinearPlans head_;
  std::unique_ptr<Fp8Operands> fp8_;  // null: products of blocks are bf16
  // GPT-2's GELU within the products beside it, where that was faster.
  const GemmPlan* up_gelu_ = nullptr;
  const GemmPlan* down_gelu_gradient_ = nullptr;

  std::vector<BlockActivations> blocks_;
  Bf16* final_input_ = nullptr;
  Bf16* final_norm_ = nullptr;
  NormStatistics final_statistics_;
  Bf16* logits_ = nullptr;  // [chunk][padded vocabulary]
  float* losses_ = nullptr;
  float2* angles_ = nullptr;
  float* frequencies_ = nullptr;  // of rotary positions
  // For the backward.
  Bf16 *gradient_ = nullptr, *narrow_ = nullptr, *wide_ = nullptr, *inner_ = nullptr;
  float* bias_sum_ = nullptr;
  void* attention_workspace_ = nullptr;
};

}  // namespace muster::worker
