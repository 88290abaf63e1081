// Tokens to the residual stream, and back.
#pragma once

#include "worker/gpu/kernels/launch.h"

namespace muster::worker {

// x[N][C] = embedding[token], plus positions[row modulo T] unless that is null.
void EmbedForward(const LaunchContext& context, int64_t rows, int64_t sequence, int64_t channels,
                  const int32_t* tokens, const Bf16* embedding, const Bf16* positions, Bf16* x);

// The rows of a micro-batch in the order of their tokens: row order[i] holds token
// distinct[j] for first[j] <= i < first[j + 1].
struct TokenOrder {
  const int32_t* order = nullptr;     // [N]
  const int32_t* distinct = nullptr;  // [tokens]
  const int32_t* first = nullptr;     // [tokens + 1]
  int64_t tokens = 0;
};
// Adds to the gradients of the tokens' rows of the embedding.
void EmbedBackward(const LaunchContext& context, int64_t channels, const TokenOrder& order,
                   const Bf16* dx, float* dembedding_add);
// dpositions[T][C] = or += the sums of dx[N][C] over sequences.
void PositionsBackward(const LaunchContext& context, int64_t rows, int64_t sequence,
                       int64_t channels, const Bf16* dx, Into into, float* dpositions);

}  // namespace muster::worker
