// The end of a step: loss and gradient norm, then AdamW, with nothing for the host to wait for in
// between.
#pragma once

#include "worker/gpu/kernels/launch.h"

namespace muster::worker {

// What a step adds up.
struct StepSums {
  double loss;          // mean over the tokens so far
  double squared_norm;  // of the gradients so far
};

// How many doubles SquaredNormOf leaves, whatever the size.
constexpr int kNormPartials = 512;

// sums.loss += scale * the sum of losses[N].
void AddLosses(const LaunchContext& context, int64_t rows, const float* losses, double scale,
               StepSums* sums);

// Leaves in partials[kNormPartials] what adds up to the sum of values[size] squared.
void SquaredNormOf(const LaunchContext& context, int64_t size, const float* values,
                   double* partials);
// sums.squared_norm += the sum of partials[count].
void AddSquaredNorm(const LaunchContext& context, int64_t count, const double* partials,
                    StepSums* sums);

// A run of the flat buffer that decays or doesn't: up to `end`, from where the one before ends.
struct DecayRun {
  int64_t end;
  bool decays;
};

struct AdamWFactors {
  float beta1, beta2;
  float step_size;   // learning rate / (1 - beta1^steps)
  float correction;  // sqrt(1 - beta2^steps)
  float epsilon;
  float keep;       // 1 - learning rate * weight decay
  float clip_norm;  // 0: no clipping
};

// The flat range from `offset` on: `size` of each, both multiples of 8.
struct AdamWRange {
  int64_t offset = 0;
  int64_t size = 0;
  const float* gradients = nullptr;
  float* parameters = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
  Bf16* weights = nullptr;  // the parameters as the model reads them
};

// One step of AdamW as UpdateAdamW in worker/model/optimizer.h does it, with the gradients clipped
// by the norm in `sums`. Does nothing if the loss or the norm is not a finite number.
// runs[run_count] end where `range` does or later.
void AdamW(const LaunchContext& context, const AdamWFactors& factors, const StepSums* sums,
           int run_count, const DecayRun* runs, const AdamWRange& range);

// A run of parameters that don't decay, and where it goes in a buffer of its own.
struct ParameterRun {
  int64_t parameter;  // where it begins in the buffers of parameters and moments
  int64_t gradient;   // in that of gradients
  int64_t to;         // in the other one
  int64_t size;
};
// out[to + i] = parameters[parameter + i] for each of runs[count].
void CopyRuns(const LaunchContext& context, int count, const ParameterRun* runs,
              const float* parameters, float* out);

// The buffers that runs lie in.
struct AdamWBuffers {
  const float* gradients = nullptr;
  const float* parameters = nullptr;
  const float* first_moment = nullptr;
  const float* second_moment = nullptr;
};
// The same with the parameters that AdamW is about to leave there, to the bit; it may run
// afterwards. For what is wanted before all else.
void CopyRunsAhead(const LaunchContext& context, const AdamWFactors& factors, const StepSums* sums,
                   int count, const ParameterRun* runs, const AdamWBuffers& buffers, float* out);

// sums += values; `size` is a multiple of 4.
void AddTo(const LaunchContext& context, int64_t size, const float* values, float* sums);

// rounded = values, to the nearest; `size` is a multiple of 8.
void RoundToBf16(const LaunchContext& context, int64_t size, const float* values, Bf16* rounded);
// floats = or += values; `size` is a multiple of 8.
void FromBf16(const LaunchContext& context, int64_t size, const Bf16* values, Into into,
              float* floats);

// Values around zero with about that deviation, from a hash of their place.
void FillRandom(const LaunchContext& context, int64_t size, float deviation, Bf16* values);

}  // namespace muster::worker
