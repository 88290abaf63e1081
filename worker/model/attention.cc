#include <algorithm>
#include <cmath>

#include "worker/model/gemm.h"
#include "worker/model/layers.h"

namespace muster::worker {
namespace {

// Where one head of one sequence lies in qkv and in the output.
struct Head {
  Head(const AttentionShape& shape, int64_t sequence, int64_t head)
      : query(sequence * shape.sequence * shape.row() + head * shape.head_size),
        key(query +
            (shape.heads - head + head / (shape.heads / shape.key_value_heads)) * shape.head_size),
        value(key + shape.key_value_heads * shape.head_size),
        output((sequence * shape.sequence * shape.heads + head) * shape.head_size),
        probabilities((sequence * shape.heads + head) * shape.sequence * shape.sequence) {}

  int64_t query;
  int64_t key;
  int64_t value;
  int64_t output;
  int64_t probabilities;
};

// Row t of scores[T][T] becomes the softmax of its first t + 1 entries, and zero after them.
void CausalSoftmax(int64_t sequence, float scale, float* scores) {
  for (int64_t t = 0; t < sequence; ++t, scores += sequence) {
    const float highest = *std::max_element(scores, scores + t + 1);
    float sum = 0;
    for (int64_t s = 0; s <= t; ++s) {
      scores[s] = std::exp(scale * (scores[s] - highest));
      sum += scores[s];
    }
    for (int64_t s = 0; s <= t; ++s) {
      scores[s] /= sum;
    }
    std::fill(scores + t + 1, scores + sequence, 0.0F);
  }
}

// gradient[T][T], that of the probabilities, becomes that of the scores.
void CausalSoftmaxBackward(int64_t sequence, float scale, const float* probabilities,
                           float* gradient) {
  for (int64_t t = 0; t < sequence; ++t, probabilities += sequence, gradient += sequence) {
    float dot = 0;
    for (int64_t s = 0; s <= t; ++s) {
      dot += probabilities[s] * gradient[s];
    }
    for (int64_t s = 0; s <= t; ++s) {
      gradient[s] = scale * probabilities[s] * (gradient[s] - dot);
    }
    std::fill(gradient + t + 1, gradient + sequence, 0.0F);
  }
}

float ScaleOf(const AttentionShape& shape) {
  return 1 / std::sqrt(static_cast<float>(shape.head_size));
}

}  // namespace

void AttentionForward(const AttentionShape& shape, const float* qkv, float* y,
                      float* probabilities) {
  const int64_t t = shape.sequence;
  for (int64_t b = 0; b < shape.sequences; ++b) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const Head head(shape, b, h);
      float* scores = probabilities + head.probabilities;
      Gemm(t, t, shape.head_size, {.data = qkv + head.query, .stride = shape.row()},
           {.data = qkv + head.key, .stride = shape.row(), .transposed = true}, scores, t,
           Output::kAssign);
      CausalSoftmax(t, ScaleOf(shape), scores);
      Gemm(t, shape.head_size, t, {.data = scores, .stride = t},
           {.data = qkv + head.value, .stride = shape.row()}, y + head.output,
           shape.heads * shape.head_size, Output::kAssign);
    }
  }
}

void AttentionBackward(const AttentionShape& shape, const float* qkv, const float* probabilities,
                       const float* dy, float* dqkv, float* scratch) {
  const int64_t t = shape.sequence;
  std::fill(dqkv, dqkv + shape.sequences * t * shape.row(), 0.0F);
  for (int64_t b = 0; b < shape.sequences; ++b) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const Head head(shape, b, h);
      const float* weights = probabilities + head.probabilities;
      const MatrixView output = {.data = dy + head.output, .stride = shape.heads * shape.head_size};
      Gemm(t, shape.head_size, t, {.data = weights, .stride = t, .transposed = true}, output,
           dqkv + head.value, shape.row(), Output::kAdd);
      Gemm(t, t, shape.head_size, output,
           {.data = qkv + head.value, .stride = shape.row(), .transposed = true}, scratch, t,
           Output::kAssign);
      CausalSoftmaxBackward(t, ScaleOf(shape), weights, scratch);
      Gemm(t, shape.head_size, t, {.data = scratch, .stride = t},
           {.data = qkv + head.key, .stride = shape.row()}, dqkv + head.query, shape.row(),
           Output::kAdd);
      Gemm(t, shape.head_size, t, {.data = scratch, .stride = t, .transposed = true},
           {.data = qkv + head.query, .stride = shape.row()}, dqkv + head.key, shape.row(),
           Output::kAdd);
    }
  }
}

}  // namespace muster::worker
