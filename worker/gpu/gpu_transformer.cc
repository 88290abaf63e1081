#include "worker/gpu/gpu_transformer.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "worker/gpu/cuda_status.h"
#include "worker/gpu/kernels/activation.h"
#include "worker/gpu/kernels/column_sums.h"
#include "worker/gpu/kernels/cross_entropy.h"
#include "worker/gpu/kernels/rotate.h"

namespace muster::worker {
namespace {

// Of logits at once: enough rows for the products to run at full speed.
constexpr int64_t kLogitsBytes = int64_t{2} << 30;

absl::Status CheckSizes(const GpuTransformer::Options& options) {
  const ModelConfig& model = options.model;
  if (absl::Status status = Validate(model); !status.ok()) {
    return status;
  }
  if (options.sequences <= 0 || options.sequence <= 0 || options.sequence > model.context) {
    return absl::InvalidArgumentError(
        fmt::format("{} sequences of {} tokens; there must be at least one, of 1 to {} tokens",
                    options.sequences, options.sequence, model.context));
  }
  const int rotated = model.family == Family::kLlama ? 16 : 8;
  if (model.width % 8 != 0 || model.feed_forward % 8 != 0 || model.padded_vocabulary % 8 != 0 ||
      model.head_size() % rotated != 0 || model.width > kMaxNormChannels) {
    return absl::InvalidArgumentError(fmt::format(
        "width {} (at most {}), feed_forward {} and padded_vocabulary {} must be multiples of 8 on "
        "a GPU, and a head's {} channels of {}",
        model.width, kMaxNormChannels, model.feed_forward, model.padded_vocabulary,
        model.head_size(), rotated));
  }
  constexpr int kFp8Multiple = 16;
  const int64_t rows = int64_t{1} * options.sequences * options.sequence;
  if (options.precision == Precision::kFp8 &&
      (rows % kFp8Multiple != 0 || model.width % kFp8Multiple != 0 ||
       model.feed_forward % kFp8Multiple != 0 ||
       model.key_value_heads * model.head_size() % (kFp8Multiple / 2) != 0)) {
    return absl::InvalidArgumentError(fmt::format(
        "precision=fp8: a micro-batch's {} tokens, width {} and feed_forward {} must be multiples "
        "of {}, and keys' {} channels of {}",
        rows, model.width, model.feed_forward, kFp8Multiple,
        model.key_value_heads * model.head_size(), kFp8Multiple / 2));
  }
  return absl::OkStatus();
}

// Rows of a chunk: as many as fit, in chunks of equal size.
int64_t ChunkRows(int64_t rows, int64_t vocabulary) {
  const int64_t most = std::max<int64_t>(1, kLogitsBytes / (vocabulary * 2));
  const int64_t chunks = (rows + most - 1) / most;
  for (int64_t count = chunks; count < rows; ++count) {
    if (rows % count == 0) return rows / count;
  }
  return 1;
}

const void* AddendFor(Into into, const void* out) { return into == Into::kAdd ? out : nullptr; }

}  // namespace

absl::StatusOr<std::unique_ptr<GpuTransformer>> GpuTransformer::Create(const Options& options,
                                                                       cudaStream_t stream) {
  if (absl::Status status = CheckSizes(options); !status.ok()) {
    return status;
  }
  auto transformer = std::unique_ptr<GpuTransformer>(new GpuTransformer(options, stream));
  int device = 0;
  absl::Status status = CudaStatus(cudaGetDevice(&device), "looking for a GPU");
  status.Update(CudaStatus(cudaDeviceGetAttribute(&transformer->context_.multiprocessors,
                                                  cudaDevAttrMultiProcessorCount, device),
                           "asking for multiprocessors"));
  if (!status.ok()) {
    return status;
  }
  const bool plain = options.attention == AttentionKind::kPlain;
  absl::StatusOr<std::unique_ptr<Attention>> attention =
      plain ? MakePlainAttention(transformer->shape_)
            : MakeCudnnAttention(transformer->shape_, options.deterministic);
  if (!attention.ok()) {
    // Our own in its place would train as well, many times slower, and nobody would notice.
    return plain ? attention.status()
                 : absl::InvalidArgumentError(fmt::format(
                       "attention=cudnn can't be had: {}; mend that, or set attention to plain, "
                       "which is many times slower",
                       std::string(attention.status().message())));
  }
  transformer->attention_ = *std::move(attention);
  return transformer;
}

GpuTransformer::GpuTransformer(const Options& options, cudaStream_t stream)
    : options_(options),
      layout_(options.model),
      shape_{.sequences = options.sequences,
             .sequence = options.sequence,
             .heads = options.model.heads,
             .key_value_heads = options.model.key_value_heads,
             .head_size = options.model.head_size()},
      rows_(int64_t{1} * options.sequences * options.sequence),
      chunk_(ChunkRows(rows_, options.model.padded_vocabulary)),
      context_{.stream = stream},
      blocks_(options.model.layers) {
  if (options.precision == Precision::kFp8) {
    fp8_ = std::make_unique<Fp8Operands>(Fp8Operands::Options{
        .layers = options.model.layers,
        .rows = rows_,
        .sizes = {SizesOf(Linear::kQkv), SizesOf(Linear::kProjection), SizesOf(Linear::kUp),
                  SizesOf(Linear::kDown)},
        .keeps_input = {!options.recompute.norms, true, !options.recompute.norms,
                        !options.recompute.activations}});
  }
}

LinearSizes GpuTransformer::SizesOf(Linear linear) const {
  const int64_t width = options_.model.width;
  switch (linear) {
    case Linear::kQkv:
      return {.inputs = width, .outputs = shape_.row()};
    case Linear::kProjection:
      return {.inputs = width, .outputs = width};
    case Linear::kUp:
      return {.inputs = width, .outputs = up_width()};
    case Linear::kDown:
      break;
  }
  return {.inputs = options_.model.feed_forward, .outputs = width};
}

NormShape GpuTransformer::norm_shape() const {
  return {.kind = llama() ? NormKind::kRmsNorm : NormKind::kLayerNorm,
          .rows = rows_,
          .channels = options_.model.width,
          .epsilon = options_.model.norm_epsilon};
}

void GpuTransformer::TakeMemory(MemoryCutter& cutter, bool weights_stay) {
  const ModelConfig& model = options_.model;
  const int64_t narrow = rows_ * model.width;
  const int64_t inner = rows_ * model.feed_forward;
  const auto take = [&](int64_t count) { return cutter.Take<Bf16>("activations", count); };
  const auto take_statistics = [&] {
    return NormStatistics{.mean = cutter.Take<float>("activations", rows_),
                          .inverse = cutter.Take<float>("activations", rows_)};
  };
  // In FP8 the backward reads what was quantised.
  const bool shares_norms = options_.recompute.norms || fp8();
  const bool shares_inner = options_.recompute.activations || fp8();
  Bf16* shared_norm = shares_norms ? take(narrow) : nullptr;
  Bf16* shared_inner = shares_inner ? take(inner) : nullptr;
  for (BlockActivations& block : blocks_) {
    block = {.input = take(narrow),
             .norm1 = shares_norms ? shared_norm : take(narrow),
             .qkv = take(rows_ * shape_.row()),
             .attention = take(narrow),
             .middle = take(narrow),
             .norm2 = shares_norms ? shared_norm : take(narrow),
             .up = take(rows_ * up_width()),
             .inner = shares_inner ? shared_inner : take(inner),
             .norm1_statistics = take_statistics(),
             .norm2_statistics = take_statistics(),
             .attention_statistics = cutter.Take<float>("activations", rows_ * shape_.heads)};
  }
  final_input_ = take(narrow);
  final_norm_ = take(narrow);
  final_statistics_ = take_statistics();
  losses_ = cutter.Take<float>("activations", rows_);
  // Also what stands for weights and their gradients while plans are made.
  const int64_t weights = model.width * std::max({shape_.row(), up_width(), int64_t{model.width}});
  logits_ = cutter.Take<Bf16>("logits", std::max(LogitsSize(), 2 * weights));
  angles_ = cutter.Take<float2>("scratch", shape_.sequence * shape_.head_size / 2);
  frequencies_ = cutter.Take<float>("scratch", shape_.head_size / 2);
  const auto scratch = [&](int64_t count) { return cutter.Take<Bf16>("scratch", count); };
  gradient_ = scratch(narrow);
  narrow_ = scratch(narrow);
  wide_ = scratch(rows_ * std::max(shape_.row(), up_width()));
  inner_ = scratch(std::max(inner, narrow));
  const int64_t widest = std::max({shape_.row(), up_width(), int64_t{model.width}});
  bias_sum_ = cutter.Take<float>("scratch", widest);
  context_.partials =
      cutter.Take<float>("scratch", PartialFloats(context_.multiprocessors, widest));
  attention_workspace_ = cutter.Take<std::byte>("attention", attention_->workspace_bytes());
  if (fp8()) fp8_->TakeMemory(cutter, weights_stay);
}

absl::Status GpuTransformer::PlanLinear(Gemms& gemms, Linear linear) {
  const auto [inputs, outputs] = SizesOf(linear);
  const bool adds = linear == Linear::kProjection || linear == Linear::kDown;
  LinearPlans& plans = PlansOf(linear);
  const int64_t width = options_.model.width;
  // Any buffers of the right sizes will do: the outcome is thrown away.
  Bf16* of_inputs = inputs > width ? inner_ : narrow_;
  Bf16* of_outputs = outputs > width ? wide_ : narrow_;
  const auto operands = [&](const Bf16* left, const Bf16* right) {
    const auto fp8 = [&](bool columns) { return columns ? fp8_->Column() : fp8_->Row(); };
    if (!this->fp8()) return GemmOperands{.left = left, .right = right};
    const bool weights = right == logits_;
    return GemmOperands{.left = fp8(!weights).data,
                        .right = fp8(weights).data,
                        .left_unit = fp8(!weights).unit,
                        .right_unit = fp8(weights).unit};
  };
  const bool bias = !llama();
  GemmShape shape = {.product = Product::kForward,
                     .epilogue = bias ? Epilogue::kBias : Epilogue::kNone,
                     .rows = rows_,
                     .inputs = inputs,
                     .outputs = outputs,
                     .adds = adds,
                     .precision = options_.precision};
  GemmOperands forward = operands(of_inputs, logits_);
  forward.out = outputs > width ? wide_ : final_norm_;
  forward.addend = adds ? gradient_ : nullptr;
  forward.bias = logits_;
  absl::StatusOr<const GemmPlan*> plan = gemms.Plan(context_.stream, shape, forward);
  if (!plan.ok()) return plan.status();
  plans.forward = *plan;

  shape.epilogue = Epilogue::kNone;
  shape.adds = false;
  shape.product = Product::kInputGradient;
  GemmOperands input_gradient = operands(of_outputs, logits_);
  input_gradient.out = inputs > width ? inner_ : final_norm_;
  plan = gemms.Plan(context_.stream, shape, input_gradient);
  if (!plan.ok()) return plan.status();
  plans.input_gradient = *plan;

  shape.product = Product::kWeightGradient;
  GemmOperands weight_gradient = operands(of_outputs, inputs > width ? inner_ : gradient_);
  weight_gradient.out = logits_;
  weight_gradient.bias_gradient = bias_sum_;
  plan = gemms.Plan(context_.stream, shape, weight_gradient);
  if (!plan.ok()) return plan.status();
  plans.weight_gradient = *plan;
  // Where the norm's backward doesn't sum it on the way, the product itself might be faster.
  if (bias && linear == Linear::kQkv && !options_.deterministic && !fp8()) {
    shape.epilogue = Epilogue::kBiasGradient;
    plan = gemms.Plan(context_.stream, shape, weight_gradient);
    const float apart =
        plans.weight_gradient->milliseconds() +
        gemms.KernelMilliseconds(context_.stream, "column-sums", rows_, outputs, [&] {
          ColumnSums(context_, rows_, outputs, wide_, Into::kAssign, bias_sum_);
        });
    if (plan.ok() && (*plan)->milliseconds() < apart) {
      plans.weight_gradient = *plan;
      plans.bias_in_weight_gradient = true;
    }
  }
  return absl::OkStatus();
}

absl::Status GpuTransformer::PlanGelu(Gemms& gemms) {
  const int64_t width = options_.model.width;
  const int64_t inner = options_.model.feed_forward;
  absl::StatusOr<const GemmPlan*> fused = gemms.Plan(
      context_.stream,
      {.product = Product::kForward,
       .epilogue = Epilogue::kBiasGelu,
       .rows = rows_,
       .inputs = width,
       .outputs = inner},
      {.left = narrow_, .right = logits_, .out = inner_, .bias = logits_, .pre_activation = wide_});
  const float apart = PlansOf(Linear::kUp).forward->milliseconds() +
                      gemms.KernelMilliseconds(context_.stream, "gelu", rows_, inner, [&] {
                        GeluForward(context_, rows_, inner, wide_, inner_);
                      });
  up_gelu_ = fused.ok() && (*fused)->milliseconds() < apart ? *fused : nullptr;
  if (options_.recompute.activations) {
    return absl::OkStatus();  // the backward makes the activation again beside its gradient
  }
  fused = gemms.Plan(context_.stream,
                     {.product = Product::kInputGradient,
                      .epilogue = Epilogue::kGeluGradient,
                      .rows = rows_,
                      .inputs = inner,
                      .outputs = width},
                     {.left = narrow_, .right = logits_, .out = inner_, .pre_activation = wide_});
  const float with_kernel =
      PlansOf(Linear::kDown).input_gradient->milliseconds() +
      gemms.KernelMilliseconds(context_.stream, "gelu-backward", rows_, inner, [&] {
        GeluBackward(context_, rows_, inner, wide_, inner_, inner_, nullptr, Into::kAssign,
                     bias_sum_);
      });
  const float sums = gemms.KernelMilliseconds(context_.stream, "column-sums", rows_, inner, [&] {
    ColumnSums(context_, rows_, inner, inner_, Into::kAssign, bias_sum_);
  });
  if (fused.ok() && (*fused)->milliseconds() + sums < with_kernel) {
    down_gelu_gradient_ = *fused;
  }
  return absl::OkStatus();
}

absl::Status GpuTransformer::PlanHead(Gemms& gemms, DeviceUnits& units) {
  const absl::StatusOr<const Bf16*> weights = units.Acquire(head_unit());
  if (!weights.ok()) return weights.status();
  const absl::StatusOr<DeviceUnits::Gradient> gradient = units.AcquireGradient(head_unit());
  if (!gradient.ok()) return gradient.status();
  const int64_t past_norm = tied() ? 0 : options_.model.width;
  const GemmShape shape = {
      .rows = chunk_, .inputs = options_.model.width, .outputs = options_.model.padded_vocabulary};
  const std::array<std::pair<Product, GemmOperands>, 3> products = {{
      {Product::kForward, {.left = final_norm_, .right = *weights + past_norm, .out = logits_}},
      {Product::kInputGradient, {.left = logits_, .right = *weights + past_norm, .out = narrow_}},
      {Product::kWeightGradient,
       {.left = logits_,
        .right = final_norm_,
        .out = gradient->data + past_norm,
        .addend = gradient->data + past_norm}},
  }};
  const std::array<const GemmPlan**, 3> plans = {&head_.forward, &head_.input_gradient,
                                                 &head_.weight_gradient};
  for (size_t i = 0; i < products.size(); ++i) {
    GemmShape product = shape;
    product.product = products[i].first;
    product.adds = products[i].second.addend != nullptr;
    const absl::StatusOr<const GemmPlan*> plan =
        gemms.Plan(context_.stream, product, products[i].second);
    if (!plan.ok()) return plan.status();
    *plans[i] = *plan;
  }
  units.Release(head_unit());
  return units.ReleaseGradient(head_unit());
}

absl::Status GpuTransformer::MakePlans(Gemms& gemms, DeviceUnits& units) {
  const ModelConfig& model = options_.model;
  // Numbers as in training: products of zeros would run faster.
  for (const auto& [buffer, count] :
       {std::pair(final_norm_, rows_ * model.width), std::pair(narrow_, rows_ * model.width),
        std::pair(gradient_, rows_ * model.width),
        std::pair(wide_, rows_ * std::max(shape_.row(), up_width())),
        std::pair(inner_, rows_ * std::max(model.feed_forward, model.width)),
        std::pair(logits_, LogitsSize())}) {
    FillRandom(context_, count, 1, buffer);
  }
  if (llama()) {
    const std::vector<float> frequencies = RotaryFrequencies(model);
    if (absl::Status status = CudaStatus(
            cudaMemcpyAsync(frequencies_, frequencies.data(), frequencies.size() * sizeof(float),
                            cudaMemcpyHostToDevice, context_.stream),
            "copying rotary frequencies");
        !status.ok()) {
      return status;
    }
    RotationAngles(context_, shape_.sequence, shape_.head_size, frequencies_, angles_);
  }
  absl::Status status = PlanHead(gemms, units);
  if (fp8()) fp8_->FillForTiming(context_, std::max(shape_.row(), up_width()), wide_);
  for (const Linear linear : {Linear::kQkv, Linear::kProjection, Linear::kUp, Linear::kDown}) {
    if (status.ok()) status = PlanLinear(gemms, linear);
  }
  // Products in FP8 have no GELU that gives bf16.
  if (status.ok() && !llama() && !fp8()) status = PlanGelu(gemms);
  status.Update(LaunchStatus("making plans"));
  return status;
}

absl::Status GpuTransformer::Loss(const DeviceBatch& batch, double scale, DeviceUnits& units,
                                  StepSums* sums) {
  absl::Status status = Forward(batch, units);
  return status.ok() ? Finish(batch, scale, false, units, sums) : status;
}

absl::Status GpuTransformer::LossAndGradient(const DeviceBatch& batch, StageOrder stage_order,
                                             double scale, DeviceUnits& units, StepSums* sums) {
  absl::Status status = Forward(batch, units);
  if (status.ok()) {
    status = Finish(batch, scale, true, units, sums);
  }
  for (int layer = options_.model.layers - 1; status.ok() && layer >= 0; --layer) {
    status = BlockBackward(layer, units);
  }
  return status.ok() ? EmbedBackward(stage_order, units) : status;
}

void GpuTransformer::Normalize(const Bf16* x, NormWeights weights, Bf16* y,
                               NormStatistics statistics) {
  NormForward(context_, norm_shape(), x, weights, y, statistics);
  Mark("norm");
}

absl::Status GpuTransformer::Forward(const DeviceBatch& batch, DeviceUnits& units) {
  Mark("between steps");
  const absl::StatusOr<const NormWeights*> norms = units.AcquireNorms();
  if (!norms.ok()) return norms.status();
  norms_ = *norms;
  if (fp8()) fp8_->Begin(context_, units.weights_version());
  const absl::StatusOr<const Bf16*> embedding = units.Acquire(0);
  if (!embedding.ok()) return embedding.status();
  Mark("waiting for weights");
  const int64_t width = options_.model.width;
  const Bf16* positions = llama() ? nullptr : *embedding + options_.model.padded_vocabulary * width;
  if (absl::Status status = units.BeginShared(); !status.ok()) return status;
  EmbedForward(context_, rows_, shape_.sequence, width, batch.tokens, *embedding, positions,
               blocks_.front().input);
  units.Release(0);
  Mark("embedding");
  for (int layer = 0; layer < options_.model.layers; ++layer) {
    if (absl::Status status = BlockForward(layer, units); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status GpuTransformer::BlockForward(int layer, DeviceUnits& units) {
  const absl::StatusOr<const Bf16*> unit = units.Acquire(1 + layer);
  if (!unit.ok()) return unit.status();
  Mark("waiting for weights");
  const auto weights = ViewBlock(layout_, options_.model.family, layer, *unit);
  const BlockActivations& a = blocks_[layer];
  Bf16* next = layer + 1 < options_.model.layers ? blocks_[layer + 1].input : final_input_;
  const cudaStream_t stream = context_.stream;

  Normalize(a.input, norm1(layer), a.norm1, a.norm1_statistics);
  absl::Status status = LinearForward(Linear::kQkv, layer, a.norm1, weights.qkv,
                                      {.out = a.qkv, .bias = weights.qkv_bias});
  Mark("product qkv");
  if (llama()) {
    // Queries and keys; values are not turned.
    RotateHeads(context_, rows_, shape_.sequence, shape_.heads + shape_.key_value_heads,
                shape_.head_size, shape_.row(), angles_, Turn::kForward, a.qkv);
    Mark("rotary");
  }
  status.Update(units.BeginShared());
  status.Update(attention_->Forward(stream, a.qkv, a.attention, a.attention_statistics,
                                    attention_workspace_));
  Mark("attention forward");
  status.Update(
      LinearForward(Linear::kProjection, layer, a.attention, weights.projection,
                    {.out = a.middle, .addend = a.input, .bias = weights.projection_bias}));
  Mark("product projection");
  Normalize(a.middle, norm2(layer), a.norm2, a.norm2_statistics);
  if (up_gelu_ != nullptr) {
    status.Update(up_gelu_->Run(stream, {.left = a.norm2,
                                         .right = weights.up,
                                         .out = a.inner,
                                         .bias = weights.up_bias,
                                         .pre_activation = a.up}));
    Mark("product up");
  } else {
    status.Update(LinearForward(Linear::kUp, layer, a.norm2, weights.up,
                                {.out = a.up, .bias = weights.up_bias}));
    Mark("product up");
    const int64_t inner = options_.model.feed_forward;
    if (llama()) {
      SwigluForward(context_, rows_, inner, a.up, a.inner,
                    fp8() ? fp8_->InputScale(layer, Linear::kDown) : nullptr);
    } else {
      GeluForward(context_, rows_, inner, a.up, a.inner);
    }
    Mark("activation");
  }
  status.Update(LinearForward(Linear::kDown, layer, a.inner, weights.down,
                              {.out = next, .addend = a.middle, .bias = weights.down_bias},
                              /*noted=*/llama()));
  Mark("product down");
  units.Release(1 + layer);
  return status;
}

absl::Status GpuTransformer::Finish(const DeviceBatch& batch, double scale, bool gradient,
                                    DeviceUnits& units, StepSums* sums) {
  const int final_unit = options_.model.layers + 1;
  const int64_t width = options_.model.width;
  const absl::StatusOr<const Bf16*> norm = units.Acquire(final_unit);
  if (!norm.ok()) return norm.status();
  // The head follows the norm in the last unit, unless it is the token embedding.
  const absl::StatusOr<const Bf16*> embedding = tied() ? units.Acquire(0) : *norm + width;
  if (!embedding.ok()) return embedding.status();
  Mark("waiting for weights");
  DeviceUnits::Gradient norm_gradient;
  Head head = {.weights = *embedding, .gradient = {}};
  if (gradient) {
    absl::StatusOr<DeviceUnits::Gradient> acquired = units.AcquireGradient(final_unit);
    if (!acquired.ok()) return acquired.status();
    norm_gradient = *acquired;
    head.gradient = {.data = norm_gradient.data + width, .into = norm_gradient.into};
    if (tied()) {
      acquired = units.AcquireGradient(0);
      if (!acquired.ok()) return acquired.status();
      head.gradient = *acquired;
    }
  }
  Normalize(final_input_, final_norm(), final_norm_, final_statistics_);
  if (absl::Status status = FinishChunks(batch, scale, gradient, head); !status.ok()) {
    return status;
  }
  AddLosses(context_, rows_, losses_, scale, sums);
  Mark("cross-entropy");
  absl::Status status;
  if (gradient) {
    // The last block's output gets its gradient from here alone, and its bias the sum of that.
    const absl::StatusOr<DeviceUnits::Gradient> last = units.AcquireGradient(options_.model.layers);
    if (!last.ok()) return last.status();
    float* down_bias =
        ViewBlock(layout_, options_.model.family, options_.model.layers - 1, last->data).down_bias;
    NormBackward(context_, norm_shape(), final_input_, final_norm(), final_statistics_, narrow_,
                 nullptr, gradient_, nullptr, norm_gradient.into,
                 {.weight = norm_gradient.data,
                  .bias = llama() ? nullptr : norm_gradient.data + width,
                  .stream = down_bias});
    Mark("norm backward");
    // A tied head's gradient isn't complete before the embedding's.
    status = units.ReleaseGradient(final_unit);
  }
  if (tied()) units.Release(0);
  units.Release(final_unit);
  return status;
}

absl::Status GpuTransformer::FinishChunks(const DeviceBatch& batch, double scale, bool gradient,
                                          Head head) {
  const int64_t width = options_.model.width;
  const cudaStream_t stream = context_.stream;
  absl::Status status;
  for (int64_t first = 0; first < rows_ && status.ok(); first += chunk_) {
    const Bf16* x = final_norm_ + first * width;
    status = head_.forward->Run(stream, {.left = x, .right = head.weights, .out = logits_});
    Mark("product head");
    CrossEntropy(context_, chunk_, options_.model.vocabulary, options_.model.padded_vocabulary,
                 batch.targets + first, gradient ? static_cast<float>(scale) : 0, logits_,
                 losses_ + first);
    Mark("cross-entropy");
    if (gradient) {
      const Into into = first == 0 ? head.gradient.into : Into::kAdd;
      status.Update(
          head_.weight_gradient->Run(stream, {.left = logits_,
                                              .right = x,
                                              .out = head.gradient.data,
                                              .addend = AddendFor(into, head.gradient.data)}));
      status.Update(head_.input_gradient->Run(
          stream, {.left = logits_, .right = head.weights, .out = narrow_ + first * width}));
      Mark("product head");
    }
  }
  return status;
}

absl::Status GpuTransformer::LinearForward(Linear linear, int layer, const Bf16* x,
                                           const Bf16* weight, GemmOperands operands, bool noted) {
  operands.left = x;
  operands.right = weight;
  if (fp8()) {
    const Fp8Operand left = fp8_->Input(context_, layer, linear, x, noted);
    const Fp8Operand right = fp8_->Weight(context_, layer, linear, weight);
    operands.left = left.data;
    operands.left_unit = left.unit;
    operands.right = right.data;
    operands.right_unit = right.unit;
    Mark("to FP8");
  }
  return PlansOf(linear).forward->Run(context_.stream, operands);
}

absl::Status GpuTransformer::InputGradient(Linear linear, int layer, const Bf16* dy,
                                           const Bf16* weight, Bf16* dx, bool noted) {
  GemmOperands operands = {.left = dy, .right = weight, .out = dx};
  if (fp8()) {
    const Fp8Operand left = fp8_->Gradient(context_, layer, linear, dy, noted);
    const Fp8Operand right = fp8_->WeightTransposed(context_, layer, linear, weight);
    operands.left = left.data;
    operands.left_unit = left.unit;
    operands.right = right.data;
    operands.right_unit = right.unit;
    Mark("to FP8");
  }
  return PlansOf(linear).input_gradient->Run(context_.stream, operands);
}

absl::Status GpuTransformer::WeightGradient(Linear linear, int layer, const Bf16* dy, const Bf16* x,
                                            Into into, float* weight, float* bias) {
  const LinearPlans& plans = PlansOf(linear);
  const int64_t outputs = SizesOf(linear).outputs;
  const bool fused = bias != nullptr && plans.bias_in_weight_gradient;
  GemmOperands operands = {.left = dy,
                           .right = x,
                           .out = weight,
                           .addend = AddendFor(into, weight),
                           .bias_gradient = into == Into::kAdd ? bias_sum_ : bias};
  if (fp8()) {
    const Fp8Operand left = fp8_->GradientTransposed(layer, linear);
    const Fp8Operand right = fp8_->InputTransposed(layer, linear);
    operands.left = left.data;
    operands.left_unit = left.unit;
    operands.right = right.data;
    operands.right_unit = right.unit;
  }
  absl::Status status = plans.weight_gradient->Run(context_.stream, operands);
  Mark("product weights");
  if (fused && into == Into::kAdd) {
    LaunchContext context = context_;
    context.partials = bias_sum_;
    AddPartials(context, 1, 1, outputs, into, {.rows = {bias}});
  } else if (bias != nullptr && !fused) {
    ColumnSums(context_, rows_, outputs, dy, into, bias);
    Mark("bias sums");
  }
  return status;
}

absl::Status GpuTransformer::BlockBackward(int layer, DeviceUnits& units) {
  const absl::StatusOr<const Bf16*> unit = units.Acquire(1 + layer);
  if (!unit.ok()) return unit.status();
  Mark("waiting for weights");
  const absl::StatusOr<DeviceUnits::Gradient> gradient = units.AcquireGradient(1 + layer);
  if (!gradient.ok()) return gradient.status();
  const auto weights = ViewBlock(layout_, options_.model.family, layer, *unit);
  const auto gradients = ViewBlock(layout_, options_.model.family, layer, gradient->data);
  // The gradient of this block's input is also that of the output of the one before, whose bias
  // gets its sum.
  float* stream_sum = nullptr;
  if (layer > 0) {
    const absl::StatusOr<DeviceUnits::Gradient> before = units.AcquireGradient(layer);
    if (!before.ok()) return before.status();
    stream_sum = ViewBlock(layout_, options_.model.family, layer - 1, before->data).down_bias;
  }
  absl::Status status = MlpBackward(layer, weights, gradients, gradient->into);
  status.Update(AttentionBackward(layer, weights, gradients, gradient->into, stream_sum, units));
  units.Release(1 + layer);
  status.Update(units.ReleaseGradient(1 + layer));
  return status;
}

absl::Status GpuTransformer::MlpBackward(int layer, const BlockView<const Bf16>& weights,
                                         const BlockView<float>& gradients, Into into) {
  const BlockActivations& a = blocks_[layer];
  const cudaStream_t stream = context_.stream;
  const int64_t inner = options_.model.feed_forward;
  Bf16* again = options_.recompute.activations ? a.inner : nullptr;
  Bf16* wide = inner_;  // the gradient of `up`; GELU's takes the place of its output's
  absl::Status status;
  if (down_gelu_gradient_ != nullptr) {
    status = down_gelu_gradient_->Run(
        stream, {.left = gradient_, .right = weights.down, .out = inner_, .pre_activation = a.up});
    Mark("product down");
    ColumnSums(context_, rows_, inner, inner_, into, gradients.up_bias);
    Mark("bias sums");
  } else {
    status = InputGradient(Linear::kDown, layer, gradient_, weights.down, inner_);
    Mark("product down");
    if (llama()) {
      SwigluBackward(context_, rows_, inner, a.up, inner_, wide_, again,
                     fp8() ? fp8_->GradientScale(layer, Linear::kUp) : nullptr);
      wide = wide_;
    } else {
      GeluBackward(context_, rows_, inner, a.up, inner_, inner_, again, into, gradients.up_bias);
    }
    Mark("activation backward");
  }
  if (fp8() && again != nullptr) fp8_->InputAgain(context_, layer, Linear::kDown, again);
  // The bias of `down` was summed by the norm's backward that made gradient_.
  status.Update(
      WeightGradient(Linear::kDown, layer, gradient_, a.inner, into, gradients.down, nullptr));
  status.Update(InputGradient(Linear::kUp, layer, wide, weights.up, narrow_, /*noted=*/llama()));
  Mark("product up");
  Bf16* norm_again = options_.recompute.norms ? a.norm2 : nullptr;
  NormBackward(context_, norm_shape(), a.middle, norm2(layer), a.norm2_statistics, narrow_,
               gradient_, gradient_, norm_again, into,
               {.weight = gradients.norm2,
                .bias = gradients.norm2_bias,
                .stream = gradients.projection_bias});
  if (fp8() && norm_again != nullptr) fp8_->InputAgain(context_, layer, Linear::kUp, norm_again);
  Mark("norm backward");
  status.Update(WeightGradient(Linear::kUp, layer, wide, a.norm2, into, gradients.up, nullptr));
  return status;
}

absl::Status GpuTransformer::AttentionBackward(int layer, const BlockView<const Bf16>& weights,
                                               const BlockView<float>& gradients, Into into,
                                               float* stream_sum, DeviceUnits& units) {
  const BlockActivations& a = blocks_[layer];
  const cudaStream_t stream = context_.stream;
  absl::Status status =
      InputGradient(Linear::kProjection, layer, gradient_, weights.projection, inner_);
  Mark("product projection");
  status.Update(WeightGradient(Linear::kProjection, layer, gradient_, a.attention, into,
                               gradients.projection, nullptr));
  status.Update(units.BeginShared());
  status.Update(attention_->Backward(stream, a.qkv, a.attention, a.attention_statistics, inner_,
                                     wide_, attention_workspace_));
  Mark("attention backward");
  if (llama()) {
    RotateHeads(context_, rows_, shape_.sequence, shape_.heads + shape_.key_value_heads,
                shape_.head_size, shape_.row(), angles_, Turn::kBackward, wide_);
    Mark("rotary");
  }
  status.Update(InputGradient(Linear::kQkv, layer, wide_, weights.qkv, narrow_));
  Mark("product qkv");
  Bf16* norm_again = options_.recompute.norms ? a.norm1 : nullptr;
  NormBackward(context_, norm_shape(), a.input, norm1(layer), a.norm1_statistics, narrow_,
               gradient_, gradient_, norm_again, into,
               {.weight = gradients.norm1, .bias = gradients.norm1_bias, .stream = stream_sum});
  if (fp8() && norm_again != nullptr) fp8_->InputAgain(context_, layer, Linear::kQkv, norm_again);
  Mark("norm backward");
  status.Update(
      WeightGradient(Linear::kQkv, layer, wide_, a.norm1, into, gradients.qkv, gradients.qkv_bias));
  return status;
}

absl::Status GpuTransformer::EmbedBackward(StageOrder stage_order, DeviceUnits& units) {
  const absl::StatusOr<DeviceUnits::Gradient> unit = units.AcquireGradient(0);
  if (!unit.ok()) return unit.status();
  const int64_t width = options_.model.width;
  const int64_t embedding = options_.model.padded_vocabulary * width;
  absl::Status status = units.BeginShared();
  // A tied head has written all rows already.
  if (!tied() && unit->into == Into::kAssign) {
    status.Update(CudaStatus(
        cudaMemsetAsync(unit->data, 0, embedding * sizeof(float), context_.stream), "clearing"));
  }
  if (!llama()) {
    float* positions = unit->data + embedding;
    if (unit->into == Into::kAssign) {
      status.Update(
          CudaStatus(cudaMemsetAsync(positions, 0, options_.model.context * width * sizeof(float),
                                     context_.stream),
                     "clearing"));
    }
    PositionsBackward(context_, rows_, shape_.sequence, width, gradient_, Into::kAdd, positions);
  }
  const absl::StatusOr<TokenOrder> order = stage_order();
  if (!order.ok()) return order.status();
  muster::worker::EmbedBackward(context_, width, *order, gradient_, unit->data);
  Mark("embedding");
  status.Update(units.ReleaseGradient(0));
  status.Update(LaunchStatus("a step"));
  return status;
}

}  // namespace muster::worker
