// What the FP8 products of blocks multiply: inputs, gradients and weights, each quantised with a
// scale of its own (kernels/quantize.h), in the two orders that products take (gemm.h).
//
// Scales are of the very values that are quantised ("current"), not of those of steps before
// ("delayed"): there is no history then that a checkpoint would have to hold, a resumed training
// has the same bits, and no value is cut off where activations grow. It costs another pass over a
// matrix where the kernel that made it doesn't note its largest value.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "worker/gpu/device_memory.h"
#include "worker/gpu/kernels/quantize.h"

namespace muster::worker {

// The linear layers of a block.
enum class Linear { kQkv, kProjection, kUp, kDown };
constexpr int kLinears = 4;

struct LinearSizes {
  int64_t inputs = 0;
  int64_t outputs = 0;
};

struct Fp8Operand {
  const Fp8* data = nullptr;
  const float* unit = nullptr;
};

// Used by one thread; all work is put on the context's stream.
class Fp8Operands {
 public:
  struct Options {
    int layers = 0;
    int64_t rows = 0;  // N
    std::array<LinearSizes, kLinears> sizes = {};
    // Whether an input is kept for the backward, or made again there (InputAgain).
    std::array<bool, kLinears> keeps_input = {true, true, true, true};
  };

  explicit Fp8Operands(const Options& options);

  // Takes what it needs (twice: device_memory.h). Where weights stay, what is made of them is kept
  // until they change; otherwise there is room for one, which is quantised at each use.
  void TakeMemory(MemoryCutter& cutter, bool weights_stay);
  // Before a forward. `weights_version` is another one after each change of the weights.
  void Begin(const LaunchContext& context, int64_t weights_version);

  // What notes the largest value of an input or gradient that is quantised next; given to kernels
  // that do so on the way, who then pass `noted`.
  Fp8Scale* InputScale(int layer, Linear linear) { return input_scales_ + At(layer, linear); }
  Fp8Scale* GradientScale(int layer, Linear linear) { return gradient_scales_ + At(layer, linear); }

  // x[N][I], valid until the next Input or Gradient; and [I][N] for the backward.
  Fp8Operand Input(const LaunchContext& context, int layer, Linear linear, const Bf16* x,
                   bool noted = false);
  void InputAgain(const LaunchContext& context, int layer, Linear linear, const Bf16* x);
  Fp8Operand InputTransposed(int layer, Linear linear) const;

  // dy[N][O], and [O][N]; both valid until the next Gradient.
  Fp8Operand Gradient(const LaunchContext& context, int layer, Linear linear, const Bf16* dy,
                      bool noted = false);
  Fp8Operand GradientTransposed(int layer, Linear linear) const;

  // w[O][I], and [I][O]. Where weights don't stay, valid until the next of either.
  Fp8Operand Weight(const LaunchContext& context, int layer, Linear linear, const Bf16* weight);
  Fp8Operand WeightTransposed(const LaunchContext& context, int layer, Linear linear,
                              const Bf16* weight);

  // Quantises `x`, N rows of the widest kind, for timing products with what Row() and Column()
  // then return.
  void FillForTiming(const LaunchContext& context, int64_t columns, const Bf16* x);
  Fp8Operand Row() const { return {.data = row_major_, .unit = &input_scales_->unit}; }
  Fp8Operand Column() const { return {.data = column_major_, .unit = &input_scales_->unit}; }

 private:
  static int64_t At(int layer, Linear linear) {
    return int64_t{layer} * kLinears + static_cast<int>(linear);
  }
  const LinearSizes& SizesOf(Linear linear) const {
    return options_.sizes[static_cast<int>(linear)];
  }
  // Both orders where weights stay, or the one asked for.
  void QuantizeWeight(const LaunchContext& context, int layer, Linear linear, const Bf16* weight,
                      bool transposed);

  const Options options_;
  bool weights_stay_ = true;
  int64_t weights_version_ = 0;
  std::vector<int64_t> quantized_versions_;  // of each weight; its scale is of that version

  // On the device.
  Fp8Scale *input_scales_ = nullptr, *gradient_scales_ = nullptr, *weight_scales_ = nullptr;
  Fp8 *row_major_ = nullptr, *column_major_ = nullptr;
  std::vector<Fp8*> inputs_;  // transposed
  std::vector<Fp8*> weights_, weights_transposed_;
};

}  // namespace muster::worker
