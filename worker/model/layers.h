// Forward and backward of a transformer's layers in single precision, written to be read: the
// reference for faster versions. Tensors are dense and row-major, with their shapes named once:
//   N rows (tokens), C channels, B sequences of T tokens, H heads of S channels, K of them with
//   keys and values, F the MLP's inner width, V the vocabulary.
// A backward function adds to the gradients of parameters; the gradient of an input is added to
// where the name says `add`, and overwritten otherwise. Outputs don't overlap inputs unless said.
#pragma once

#include <cstdint>

namespace muster::worker {

// y[N][C] = (x - mean) / deviation * weight + bias for each row; `mean` and `inverse` (1 /
// deviation), [N] each, are kept for the backward.
void LayerNormForward(int64_t rows, int64_t channels, float epsilon, const float* x,
                      const float* weight, const float* bias, float* y, float* mean,
                      float* inverse);
void LayerNormBackward(int64_t rows, int64_t channels, const float* x, const float* weight,
                       const float* mean, const float* inverse, const float* dy, float* dx_add,
                       float* dweight_add, float* dbias_add);

// y[N][C] = x / root mean square * weight.
void RmsNormForward(int64_t rows, int64_t channels, float epsilon, const float* x,
                    const float* weight, float* y, float* inverse);
void RmsNormBackward(int64_t rows, int64_t channels, const float* x, const float* weight,
                     const float* inverse, const float* dy, float* dx_add, float* dweight_add);

// y[N][outputs] = x[N][inputs] * weight[outputs][inputs] transposed, plus bias unless that is null.
void LinearForward(int64_t rows, int64_t inputs, int64_t outputs, const float* x,
                   const float* weight, const float* bias, float* y);
// dx is overwritten; dbias_add may be null.
void LinearBackward(int64_t rows, int64_t inputs, int64_t outputs, const float* x,
                    const float* weight, const float* dy, float* dx, float* dweight_add,
                    float* dbias_add);

// GELU by its tanh approximation, as GPT-2 has it.
void GeluForward(int64_t size, const float* x, float* y);
void GeluBackward(int64_t size, const float* x, const float* dy, float* dx);

// x[N][2F] holds gate, then up: y[N][F] = silu(gate) * up.
void SwigluForward(int64_t rows, int64_t inner, const float* x, float* y);
void SwigluBackward(int64_t rows, int64_t inner, const float* x, const float* dy, float* dx);

// Turns, in place, channel i of each head together with channel i + S/2 by position *
// frequencies[i]; `heads` heads from the start of each of the N rows, which lie `stride` apart. The
// position is the row modulo T. The backward turns back.
enum class Turn { kForward, kBackward };
void Rotate(int64_t rows, int64_t sequence, int64_t heads, int64_t head_size, int64_t stride,
            const float* frequencies, Turn turn, float* x);

struct AttentionShape {
  int64_t sequences = 0;        // B
  int64_t sequence = 0;         // T
  int64_t heads = 0;            // H
  int64_t key_value_heads = 0;  // K
  int64_t head_size = 0;        // S

  int64_t row() const { return (heads + 2 * key_value_heads) * head_size; }
  int64_t probabilities() const { return sequences * heads * sequence * sequence; }
};
// Causal attention. qkv[B*T][(H + 2K) * S] holds queries, keys, values; y[B*T][H * S];
// probabilities[B][H][T][T] are kept for the backward.
void AttentionForward(const AttentionShape& shape, const float* qkv, float* y,
                      float* probabilities);
// `scratch` holds T * T floats.
void AttentionBackward(const AttentionShape& shape, const float* qkv, const float* probabilities,
                       const float* dy, float* dqkv, float* scratch);

// Sum of -log softmax(logits[N][V])[target]; with `scale` != 0 the logits are replaced by the
// gradient of scale times that sum.
double CrossEntropy(int64_t rows, int64_t vocabulary, const int32_t* targets, float scale,
                    float* logits);

}  // namespace muster::worker
