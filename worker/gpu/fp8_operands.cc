#include "worker/gpu/fp8_operands.h"

#include <algorithm>

namespace muster::worker {

Fp8Operands::Fp8Operands(const Options& options)
    : options_(options),
      quantized_versions_(options.layers * kLinears, -1),
      inputs_(quantized_versions_.size()),
      weights_(quantized_versions_.size()),
      weights_transposed_(quantized_versions_.size()) {}

void Fp8Operands::TakeMemory(MemoryCutter& cutter, bool weights_stay) {
  weights_stay_ = weights_stay;
  int64_t widest = 0;
  int64_t largest = 0;
  for (const LinearSizes& sizes : options_.sizes) {
    widest = std::max({widest, sizes.inputs, sizes.outputs});
    largest = std::max(largest, sizes.inputs * sizes.outputs);
  }
  const auto count = static_cast<int64_t>(quantized_versions_.size());
  // One range: Begin() clears the first two.
  input_scales_ = cutter.Take<Fp8Scale>("scratch", 3 * count);
  gradient_scales_ = input_scales_ + count;
  weight_scales_ = gradient_scales_ + count;
  // Weights as well, while products are timed.
  const int64_t scratch = std::max(options_.rows * widest, largest);
  row_major_ = cutter.Take<Fp8>("scratch", scratch);
  column_major_ = cutter.Take<Fp8>("scratch", scratch);
  Fp8* used_weight = weights_stay_ ? nullptr : cutter.Take<Fp8>("scratch", largest);
  std::array<Fp8*, kLinears> again = {};
  for (int i = 0; i < kLinears; ++i) {
    if (!options_.keeps_input[i]) {
      again[i] = cutter.Take<Fp8>("scratch", options_.rows * options_.sizes[i].inputs);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    const int linear = static_cast<int>(i % kLinears);
    const LinearSizes& sizes = options_.sizes[linear];
    inputs_[i] = options_.keeps_input[linear]
                     ? cutter.Take<Fp8>("activations", options_.rows * sizes.inputs)
                     : again[linear];
    weights_[i] = used_weight;
    weights_transposed_[i] = used_weight;
    if (weights_stay_) {
      weights_[i] = cutter.Take<Fp8>("FP8 weights", sizes.inputs * sizes.outputs);
      weights_transposed_[i] = cutter.Take<Fp8>("FP8 weights", sizes.inputs * sizes.outputs);
    }
  }
}

void Fp8Operands::Begin(const LaunchContext& context, int64_t weights_version) {
  weights_version_ = weights_version;
  cudaMemsetAsync(input_scales_, 0, 2 * quantized_versions_.size() * sizeof(Fp8Scale),
                  context.stream);
}

Fp8Operand Fp8Operands::Input(const LaunchContext& context, int layer, Linear linear, const Bf16* x,
                              bool noted) {
  const int64_t columns = SizesOf(linear).inputs;
  Fp8Scale* scale = InputScale(layer, linear);
  if (!noted) {
    FindLargest(context, options_.rows * columns, x, scale);
  }
  Fp8* transposed =
      options_.keeps_input[static_cast<int>(linear)] ? inputs_[At(layer, linear)] : nullptr;
  Quantize(context, options_.rows, columns, x, Fp8Format::kE4M3, scale, row_major_, transposed);
  return {.data = row_major_, .unit = &scale->unit};
}

void Fp8Operands::InputAgain(const LaunchContext& context, int layer, Linear linear,
                             const Bf16* x) {
  // The scale is still there.
  Quantize(context, options_.rows, SizesOf(linear).inputs, x, Fp8Format::kE4M3,
           InputScale(layer, linear), nullptr, inputs_[At(layer, linear)]);
}

Fp8Operand Fp8Operands::InputTransposed(int layer, Linear linear) const {
  const int64_t at = At(layer, linear);
  return {.data = inputs_[at], .unit = &input_scales_[at].unit};
}

Fp8Operand Fp8Operands::Gradient(const LaunchContext& context, int layer, Linear linear,
                                 const Bf16* dy, bool noted) {
  const int64_t columns = SizesOf(linear).outputs;
  Fp8Scale* scale = GradientScale(layer, linear);
  if (!noted) {
    FindLargest(context, options_.rows * columns, dy, scale);
  }
  Quantize(context, options_.rows, columns, dy, Fp8Format::kE5M2, scale, row_major_, column_major_);
  return {.data = row_major_, .unit = &scale->unit};
}

Fp8Operand Fp8Operands::GradientTransposed(int layer, Linear linear) const {
  return {.data = column_major_, .unit = &gradient_scales_[At(layer, linear)].unit};
}

void Fp8Operands::QuantizeWeight(const LaunchContext& context, int layer, Linear linear,
                                 const Bf16* weight, bool transposed) {
  const int64_t at = At(layer, linear);
  const LinearSizes& sizes = SizesOf(linear);
  Fp8Scale* scale = weight_scales_ + at;
  const bool changed = quantized_versions_[at] != weights_version_;
  if (changed) {
    cudaMemsetAsync(scale, 0, sizeof(Fp8Scale), context.stream);
    FindLargest(context, sizes.inputs * sizes.outputs, weight, scale);
    quantized_versions_[at] = weights_version_;
  }
  const bool both = weights_stay_;
  if (changed || !both) {
    Quantize(context, sizes.outputs, sizes.inputs, weight, Fp8Format::kE4M3, scale,
             both || !transposed ? weights_[at] : nullptr,
             both || transposed ? weights_transposed_[at] : nullptr);
  }
}

Fp8Operand Fp8Operands::Weight(const LaunchContext& context, int layer, Linear linear,
                               const Bf16* weight) {
  QuantizeWeight(context, layer, linear, weight, false);
  const int64_t at = At(layer, linear);
  return {.data = weights_[at], .unit = &weight_scales_[at].unit};
}

Fp8Operand Fp8Operands::WeightTransposed(const LaunchContext& context, int layer, Linear linear,
                                         const Bf16* weight) {
  QuantizeWeight(context, layer, linear, weight, true);
  const int64_t at = At(layer, linear);
  return {.data = weights_transposed_[at], .unit = &weight_scales_[at].unit};
}

void Fp8Operands::FillForTiming(const LaunchContext& context, int64_t columns, const Bf16* x) {
  Begin(context, weights_version_);
  FindLargest(context, options_.rows * columns, x, input_scales_);
  Quantize(context, options_.rows, columns, x, Fp8Format::kE4M3, input_scales_, row_major_,
           column_major_);
}

}  // namespace muster::worker
