#include "worker/model/layers.h"

#include <algorithm>
#include <cmath>

#include "worker/model/gemm.h"

namespace muster::worker {
namespace {

constexpr float kGeluScale = 0.7978845608028654F;  // sqrt(2 / pi)
constexpr float kGeluCube = 0.044715F;

float Dot(int64_t size, const float* a, const float* b) {
  float sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

void LayerNormForward(int64_t rows, int64_t channels, float epsilon, const float* x,
                      const float* weight, const float* bias, float* y, float* mean,
                      float* inverse) {
  const auto count = static_cast<float>(channels);
  for (int64_t n = 0; n < rows; ++n, x += channels, y += channels) {
    float sum = 0;
    for (int64_t c = 0; c < channels; ++c) {
      sum += x[c];
    }
    mean[n] = sum / count;
    float squares = 0;
    for (int64_t c = 0; c < channels; ++c) {
      squares += (x[c] - mean[n]) * (x[c] - mean[n]);
    }
    inverse[n] = 1 / std::sqrt(squares / count + epsilon);
    for (int64_t c = 0; c < channels; ++c) {
      y[c] = (x[c] - mean[n]) * inverse[n] * weight[c] + bias[c];
    }
  }
}

void LayerNormBackward(int64_t rows, int64_t channels, const float* x, const float* weight,
                       const float* mean, const float* inverse, const float* dy, float* dx_add,
                       float* dweight_add, float* dbias_add) {
  const auto count = static_cast<float>(channels);
  for (int64_t n = 0; n < rows; ++n, x += channels, dy += channels, dx_add += channels) {
    // With g = dy * weight and h the normalised row: dx = (g - mean(g) - h * mean(g * h)) *
    // inverse.
    float sum = 0;
    float product = 0;
    for (int64_t c = 0; c < channels; ++c) {
      const float normalised = (x[c] - mean[n]) * inverse[n];
      const float gradient = dy[c] * weight[c];
      sum += gradient;
      product += gradient * normalised;
      dweight_add[c] += dy[c] * normalised;
      dbias_add[c] += dy[c];
    }
    for (int64_t c = 0; c < channels; ++c) {
      const float normalised = (x[c] - mean[n]) * inverse[n];
      dx_add[c] += (dy[c] * weight[c] - sum / count - normalised * product / count) * inverse[n];
    }
  }
}

void RmsNormForward(int64_t rows, int64_t channels, float epsilon, const float* x,
                    const float* weight, float* y, float* inverse) {
  const auto count = static_cast<float>(channels);
  for (int64_t n = 0; n < rows; ++n, x += channels, y += channels) {
    inverse[n] = 1 / std::sqrt(Dot(channels, x, x) / count + epsilon);
    for (int64_t c = 0; c < channels; ++c) {
      y[c] = x[c] * inverse[n] * weight[c];
    }
  }
}

void RmsNormBackward(int64_t rows, int64_t channels, const float* x, const float* weight,
                     const float* inverse, const float* dy, float* dx_add, float* dweight_add) {
  const auto count = static_cast<float>(channels);
  for (int64_t n = 0; n < rows; ++n, x += channels, dy += channels, dx_add += channels) {
    float product = 0;
    for (int64_t c = 0; c < channels; ++c) {
      const float normalised = x[c] * inverse[n];
      product += dy[c] * weight[c] * normalised;
      dweight_add[c] += dy[c] * normalised;
    }
    for (int64_t c = 0; c < channels; ++c) {
      dx_add[c] += (dy[c] * weight[c] - x[c] * inverse[n] * product / count) * inverse[n];
    }
  }
}

void LinearForward(int64_t rows, int64_t inputs, int64_t outputs, const float* x,
                   const float* weight, const float* bias, float* y) {
  Gemm(rows, outputs, inputs, {.data = x, .stride = inputs},
       {.data = weight, .stride = inputs, .transposed = true}, y, outputs, Output::kAssign);
  for (int64_t n = 0; bias != nullptr && n < rows; ++n) {
    for (int64_t o = 0; o < outputs; ++o) {
      y[n * outputs + o] += bias[o];
    }
  }
}

void LinearBackward(int64_t rows, int64_t inputs, int64_t outputs, const float* x,
                    const float* weight, const float* dy, float* dx, float* dweight_add,
                    float* dbias_add) {
  Gemm(rows, inputs, outputs, {.data = dy, .stride = outputs}, {.data = weight, .stride = inputs},
       dx, inputs, Output::kAssign);
  Gemm(outputs, inputs, rows, {.data = dy, .stride = outputs, .transposed = true},
       {.data = x, .stride = inputs}, dweight_add, inputs, Output::kAdd);
  for (int64_t n = 0; dbias_add != nullptr && n < rows; ++n) {
    for (int64_t o = 0; o < outputs; ++o) {
      dbias_add[o] += dy[n * outputs + o];
    }
  }
}

void GeluForward(int64_t size, const float* x, float* y) {
  for (int64_t i = 0; i < size; ++i) {
    const float inner = kGeluScale * (x[i] + kGeluCube * x[i] * x[i] * x[i]);
    y[i] = 0.5F * x[i] * (1 + std::tanh(inner));
  }
}

void GeluBackward(int64_t size, const float* x, const float* dy, float* dx) {
  for (int64_t i = 0; i < size; ++i) {
    const float tanh = std::tanh(kGeluScale * (x[i] + kGeluCube * x[i] * x[i] * x[i]));
    const float slope = kGeluScale * (1 + 3 * kGeluCube * x[i] * x[i]);
    dx[i] = dy[i] * (0.5F * (1 + tanh) + 0.5F * x[i] * (1 - tanh * tanh) * slope);
  }
}

void SwigluForward(int64_t rows, int64_t inner, const float* x, float* y) {
  for (int64_t n = 0; n < rows; ++n, x += 2 * inner, y += inner) {
    for (int64_t f = 0; f < inner; ++f) {
      y[f] = x[f] * Sigmoid(x[f]) * x[inner + f];
    }
  }
}

void SwigluBackward(int64_t rows, int64_t inner, const float* x, const float* dy, float* dx) {
  for (int64_t n = 0; n < rows; ++n, x += 2 * inner, dx += 2 * inner, dy += inner) {
    for (int64_t f = 0; f < inner; ++f) {
      const float sigmoid = Sigmoid(x[f]);
      dx[f] = dy[f] * x[inner + f] * sigmoid * (1 + x[f] * (1 - sigmoid));
      dx[inner + f] = dy[f] * x[f] * sigmoid;
    }
  }
}

void Rotate(int64_t rows, int64_t sequence, int64_t heads, int64_t head_size, int64_t stride,
            const float* frequencies, Turn turn, float* x) {
  const int64_t half = head_size / 2;
  for (int64_t i = 0; i < half; ++i) {
    for (int64_t n = 0; n < rows; ++n) {
      const float angle = static_cast<float>(n % sequence) * frequencies[i];
      const float cosine = std::cos(angle);
      const float sine = turn == Turn::kForward ? std::sin(angle) : -std::sin(angle);
      for (int64_t h = 0; h < heads; ++h) {
        float& low = x[n * stride + h * head_size + i];
        float& high = x[n * stride + h * head_size + half + i];
        const float turned = low * cosine - high * sine;
        high = high * cosine + low * sine;
        low = turned;
      }
    }
  }
}

double CrossEntropy(int64_t rows, int64_t vocabulary, const int32_t* targets, float scale,
                    float* logits) {
  double loss = 0;
  for (int64_t n = 0; n < rows; ++n, logits += vocabulary) {
    const float highest = *std::max_element(logits, logits + vocabulary);
    const float of_target = logits[targets[n]];
    double sum = 0;
    for (int64_t v = 0; v < vocabulary; ++v) {
      const float exponential = std::exp(logits[v] - highest);
      sum += exponential;
      if (scale != 0) {
        logits[v] = exponential;
      }
    }
    loss += std::log(sum) - (of_target - highest);
    if (scale != 0) {
      const auto factor = static_cast<float>(scale / sum);
      for (int64_t v = 0; v < vocabulary; ++v) {
        logits[v] *= factor;
      }
      logits[targets[n]] -= scale;
    }
  }
  return loss;
}

}  // namespace muster::worker
