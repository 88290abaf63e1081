// Every kernel beside the CPU's layers, on inputs that bf16 can hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "worker/gpu/device_array.h"
#include "worker/gpu/kernels/activation.h"
#include "worker/gpu/kernels/column_sums.h"
#include "worker/gpu/kernels/cross_entropy.h"
#include "worker/gpu/kernels/embedding.h"
#include "worker/gpu/kernels/norm.h"
#include "worker/gpu/kernels/optimizer.h"
#include "worker/gpu/kernels/quantize.h"
#include "worker/gpu/kernels/rotate.h"
#include "worker/model/layers.h"
#include "worker/model/model_config.h"
#include "worker/model/optimizer.h"

namespace muster::worker {
namespace {

using testing::Each;
using testing::Lt;

constexpr int64_t kRows = 96;

class ColumnSumsOf : public testing::TestWithParam<int64_t> {};

TEST_P(ColumnSumsOf, AreThoseOfTheRowsAndAddIfAsked) {
  const int64_t columns = GetParam();
  const std::vector<float> x = RandomValues(1, kRows * columns);
  const TestContext context(columns);
  const DeviceArray<Bf16> device_x(x);
  const DeviceArray<float> out(columns);
  std::vector<float> sums(columns);
  for (int64_t i = 0; i < kRows * columns; ++i) sums[i % columns] += x[i];
  ColumnSums(context, kRows, columns, device_x.data(), Into::kAssign, out.data());
  EXPECT_LT(RelativeError(out.Read(), sums), 1e-5);
  ColumnSums(context, kRows, columns, device_x.data(), Into::kAdd, out.data());
  for (float& sum : sums) sum *= 2;
  EXPECT_LT(RelativeError(out.Read(), sums), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Widths, ColumnSumsOf, testing::Values(8, 64, 768, 2304, 6400));

struct NormCase {
  NormKind kind;
  int64_t channels;
};

class Norm : public testing::TestWithParam<NormCase> {
 protected:
  const NormShape shape{GetParam().kind, kRows, GetParam().channels, 1e-5F};
  const int64_t channels = shape.channels;
  const bool layer = shape.kind == NormKind::kLayerNorm;
  const TestContext context{channels};
  const std::vector<float> x = RandomValues(1, kRows* channels, 2);
  const std::vector<float> weight = RandomValues(2, channels);
  const std::vector<float> bias = RandomValues(3, channels);
  const DeviceArray<Bf16> device_x{x};
  const DeviceArray<float> device_weight{weight}, device_bias{bias};
  const DeviceArray<float> device_mean{kRows}, device_inverse{kRows};
  const NormStatistics statistics{device_mean.data(), device_inverse.data()};
  std::vector<float> y = std::vector<float>(kRows * channels), mean = std::vector<float>(kRows),
                     inverse = std::vector<float>(kRows);

  void SetUp() override {
    const DeviceArray<Bf16> device_y(kRows * channels);
    NormForward(context, shape, device_x.data(), {device_weight.data(), device_bias.data()},
                device_y.data(), statistics);
    if (layer) {
      LayerNormForward(kRows, channels, shape.epsilon, x.data(), weight.data(), bias.data(),
                       y.data(), mean.data(), inverse.data());
      EXPECT_LT(RelativeError(device_mean.Read(), mean), 1e-4);
    } else {
      RmsNormForward(kRows, channels, shape.epsilon, x.data(), weight.data(), y.data(),
                     inverse.data());
    }
    EXPECT_LT(RelativeError(device_inverse.Read(), inverse), 1e-5);
    EXPECT_LT(RelativeError(device_y.Read(), y), kBf16Error);
  }
};

TEST_P(Norm, BackwardGivesBothGradientsTheStreamsSumAndTheOutputAgain) {
  const std::vector<float> dy = RandomValues(4, kRows * channels);
  std::vector<float> dx = RandomValues(5, kRows * channels);
  const DeviceArray<Bf16> device_dy(dy), device_dx(dx), again(kRows * channels);
  const DeviceArray<float> dweight(channels), dbias(channels), stream(channels);
  NormBackward(
      context, shape, device_x.data(), {device_weight.data(), device_bias.data()}, statistics,
      device_dy.data(), device_dx.data(), device_dx.data(), again.data(), Into::kAssign,
      {.weight = dweight.data(), .bias = layer ? dbias.data() : nullptr, .stream = stream.data()});
  std::vector<float> expected_dweight(channels), expected_dbias(channels), sum(channels);
  if (layer) {
    LayerNormBackward(kRows, channels, x.data(), weight.data(), mean.data(), inverse.data(),
                      dy.data(), dx.data(), expected_dweight.data(), expected_dbias.data());
    EXPECT_LT(RelativeError(dbias.Read(), expected_dbias), 1e-4);
  } else {
    RmsNormBackward(kRows, channels, x.data(), weight.data(), inverse.data(), dy.data(), dx.data(),
                    expected_dweight.data());
  }
  for (int64_t i = 0; i < kRows * channels; ++i) sum[i % channels] += dx[i];
  EXPECT_LT(RelativeError(device_dx.Read(), dx), kBf16Error);
  EXPECT_LT(RelativeError(dweight.Read(), expected_dweight), 1e-4);
  EXPECT_LT(RelativeError(stream.Read(), sum), 1e-3);
  EXPECT_LT(RelativeError(again.Read(), y), kBf16Error);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Norm,
    testing::Values(NormCase{NormKind::kLayerNorm, 64}, NormCase{NormKind::kLayerNorm, 768},
                    NormCase{NormKind::kLayerNorm, 1600}, NormCase{NormKind::kRmsNorm, 64},
                    NormCase{NormKind::kRmsNorm, 4096}, NormCase{NormKind::kRmsNorm, 6144}));

TEST(Gelu, ForwardAndBackwardAreTheReferences) {
  constexpr int64_t kInner = 264;
  const std::vector<float> x = RandomValues(1, kRows * kInner, 3);
  const std::vector<float> dy = RandomValues(2, kRows * kInner);
  const TestContext context(kInner);
  const DeviceArray<Bf16> device_x(x), device_dy(dy), y(kRows * kInner), again(kRows * kInner);
  const DeviceArray<float> dbias(kInner);
  GeluForward(context, kRows, kInner, device_x.data(), y.data());
  GeluBackward(context, kRows, kInner, device_x.data(), device_dy.data(), device_dy.data(),
               again.data(), Into::kAssign, dbias.data());
  std::vector<float> expected(kRows * kInner), expected_dx(kRows * kInner), sum(kInner);
  GeluForward(kRows * kInner, x.data(), expected.data());
  GeluBackward(kRows * kInner, x.data(), dy.data(), expected_dx.data());
  for (int64_t i = 0; i < kRows * kInner; ++i) sum[i % kInner] += expected_dx[i];
  EXPECT_LT(RelativeError(y.Read(), expected), kBf16Error);
  EXPECT_LT(RelativeError(again.Read(), expected), kBf16Error);
  EXPECT_LT(RelativeError(device_dy.Read(), expected_dx), kBf16Error);
  EXPECT_LT(RelativeError(dbias.Read(), sum), 1e-4);
}

TEST(Gelu, SaturatesWhereItsExponentialOverflows) {
  const std::vector<float> x = {-1e4F, -50, -10, 0, 10, 50, 1e4F, 1e30F};
  const TestContext context(8);
  const DeviceArray<Bf16> device_x(x), y(8);
  GeluForward(context, 1, 8, device_x.data(), y.data());
  const std::vector<float> got = y.Read();
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(got[i], std::max(0.0F, x[i]), 4e-3 * std::abs(x[i]));
}

TEST(Swiglu, ForwardAndBackwardAreTheReferences) {
  constexpr int64_t kInner = 176;
  const std::vector<float> x = RandomValues(1, kRows * 2 * kInner, 2);
  const std::vector<float> dy = RandomValues(2, kRows * kInner);
  const TestContext context(kInner);
  const DeviceArray<Bf16> device_x(x), device_dy(dy), y(kRows * kInner), dx(kRows * 2 * kInner);
  SwigluForward(context, kRows, kInner, device_x.data(), y.data());
  SwigluBackward(context, kRows, kInner, device_x.data(), device_dy.data(), dx.data(),
                 device_dy.data());
  std::vector<float> expected(kRows * kInner), expected_dx(kRows * 2 * kInner);
  SwigluForward(kRows, kInner, x.data(), expected.data());
  SwigluBackward(kRows, kInner, x.data(), dy.data(), expected_dx.data());
  EXPECT_LT(RelativeError(y.Read(), expected), kBf16Error);
  EXPECT_LT(RelativeError(device_dy.Read(), expected), kBf16Error) << "the output again";
  EXPECT_LT(RelativeError(dx.Read(), expected_dx), kBf16Error);
}

TEST(Swiglu, NotesTheLargestOfWhatItMakes) {
  constexpr int64_t kInner = 208;
  const DeviceArray<Bf16> x(RandomValues(1, kRows * 2 * kInner)),
      dy(RandomValues(2, kRows * kInner)), y(kRows * kInner), dx(kRows * 2 * kInner);
  const DeviceArray<float> scales(std::vector<float>(16, 0));
  auto* noted = reinterpret_cast<Fp8Scale*>(scales.data());
  const TestContext context(kInner);
  SwigluForward(context, kRows, kInner, x.data(), y.data(), noted);
  SwigluBackward(context, kRows, kInner, x.data(), dy.data(), dx.data(), nullptr, noted + 1);
  FindLargest(context, kRows * kInner, y.data(), noted + 2);
  FindLargest(context, kRows * 2 * kInner, dx.data(), noted + 3);
  const std::vector<float> found = scales.Read();
  EXPECT_GT(found[1], 0);
  EXPECT_EQ(found[1], found[9]);
  EXPECT_GT(found[5], 0);
  EXPECT_EQ(found[5], found[13]);
}

struct Fp8Case {
  Fp8Format format;
  int64_t rows, columns;
};

class QuantizeTo : public testing::TestWithParam<Fp8Case> {
 protected:
  // What a stored byte stands for, without the scale.
  float Decode(int byte) const {
    const bool e4m3 = GetParam().format == Fp8Format::kE4M3;
    const int mantissa_bits = e4m3 ? 3 : 2;
    const int bias = e4m3 ? 7 : 15;
    const int exponent = (byte & 127) >> mantissa_bits;
    const int mantissa = byte & ((1 << mantissa_bits) - 1);
    const float fraction = static_cast<float>(mantissa) / static_cast<float>(1 << mantissa_bits);
    const float size =
        exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
    return (byte & 128) != 0 ? -size : size;
  }
};

TEST_P(QuantizeTo, StoresTheNearestInBothOrdersWithTheLargestAtTheFormatsEnd) {
  const auto [format, rows, columns] = GetParam();
  const float end = format == Fp8Format::kE4M3 ? 448 : 57344;
  const std::vector<float> x = RandomValues(1, rows * columns, 3e-4F);
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  const DeviceArray<Bf16> device_x(x);
  const DeviceArray<uint8_t> y(rows * columns), transposed(rows * columns);
  const DeviceArray<float> scale(std::vector<float>(4, 0));
  auto* device_scale = reinterpret_cast<Fp8Scale*>(scale.data());
  const TestContext context(columns);
  FindLargest(context, rows * columns, device_x.data(), device_scale);
  Quantize(context, rows, columns, device_x.data(), format, device_scale, y.data(),
           transposed.data());
  const std::vector<float> stored = scale.Read();
  EXPECT_EQ(stored[1], largest);
  EXPECT_FLOAT_EQ(stored[0], largest / end);
  const std::vector<float> bytes = y.Read();
  const std::vector<float> turned = transposed.Read();
  // Half a step of the mantissa, or of the smallest exponent.
  const float part = format == Fp8Format::kE4M3 ? 1.0F / 16 : 1.0F / 8;
  const float least = format == Fp8Format::kE4M3 ? 0x1p-10F : 0x1p-17F;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const float value = x[row * columns + column] / stored[0];
      const int byte = static_cast<int>(bytes[row * columns + column]);
      ASSERT_NEAR(Decode(byte), value, 1.01F * std::max(part * std::abs(value), least))
          << row << ", " << column;
      ASSERT_EQ(turned[column * rows + row], byte) << row << ", " << column;
    }
  }
  const DeviceArray<uint8_t> alone(rows * columns);
  Quantize(context, rows, columns, device_x.data(), format, device_scale, nullptr, alone.data());
  EXPECT_EQ(alone.Read(), turned);
}

INSTANTIATE_TEST_SUITE_P(Matrices, QuantizeTo,
                         testing::Values(Fp8Case{Fp8Format::kE4M3, 16, 16},
                                         Fp8Case{Fp8Format::kE4M3, 272, 144},
                                         Fp8Case{Fp8Format::kE5M2, 128, 384},
                                         Fp8Case{Fp8Format::kE5M2, 48, 400}));

TEST(Quantize, ZerosStayZerosAndNoNumbersStayNone) {
  constexpr int64_t kSize = 16;
  std::vector<float> x(kSize * kSize, 0);
  const DeviceArray<Bf16> zeros(x);
  x[77] = std::numeric_limits<float>::infinity();
  const DeviceArray<Bf16> broken(x);
  const DeviceArray<uint8_t> y(kSize * kSize);
  const TestContext context(kSize);
  const DeviceArray<float> scale(std::vector<float>(8, 0));
  auto* scales = reinterpret_cast<Fp8Scale*>(scale.data());
  FindLargest(context, kSize * kSize, zeros.data(), scales);
  Quantize(context, kSize, kSize, zeros.data(), Fp8Format::kE4M3, scales, y.data(), nullptr);
  EXPECT_EQ(scale.Read()[0], 1);
  EXPECT_THAT(y.Read(), Each(0));
  FindLargest(context, kSize * kSize, broken.data(), scales + 1);
  Quantize(context, kSize, kSize, broken.data(), Fp8Format::kE4M3, scales + 1, y.data(), nullptr);
  EXPECT_TRUE(std::isnan(scale.Read()[4]));
}

TEST(Rotary, TurnsAsTheReferenceAndBackAgain) {
  constexpr int64_t kSequence = 48, kHeads = 3, kSize = 32, kStride = 4 * kSize;
  const std::vector<float> x = RandomValues(1, kRows * kStride);
  const TestContext context(8);
  const DeviceArray<Bf16> device_x(x);
  const DeviceArray<float> angles(kSequence * kSize);
  auto* pairs = reinterpret_cast<float2*>(angles.data());
  std::vector<float> frequencies(kSize / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(500'000.0F, -2 * static_cast<float>(i) / kSize);
  }
  const DeviceArray<float> device_frequencies(frequencies);
  RotationAngles(context, kSequence, kSize, device_frequencies.data(), pairs);
  std::vector<float> turned = x;
  Rotate(kRows, kSequence, kHeads, kSize, kStride, frequencies.data(), Turn::kForward,
         turned.data());
  RotateHeads(context, kRows, kSequence, kHeads, kSize, kStride, pairs, Turn::kForward,
              device_x.data());
  EXPECT_LT(RelativeError(device_x.Read(), turned), kBf16Error);
  RotateHeads(context, kRows, kSequence, kHeads, kSize, kStride, pairs, Turn::kBackward,
              device_x.data());
  EXPECT_LT(RelativeError(device_x.Read(), x), 2 * kBf16Error);
}

struct Vocabulary {
  int64_t size, padded;
};
class CrossEntropyOf : public testing::TestWithParam<Vocabulary> {};

TEST_P(CrossEntropyOf, GivesEachLossAndAGradientThatIsZeroInThePadding) {
  const auto [vocabulary, padded] = GetParam();
  constexpr int64_t kSome = 5;
  constexpr float kScale = 0.25;
  const std::vector<float> logits = RandomValues(1, kSome * padded, 3);
  std::vector<int32_t> targets(kSome);
  std::vector<float> unpadded;
  for (int64_t n = 0; n < kSome; ++n) {
    targets[n] = static_cast<int32_t>(n * (vocabulary - 1) / (kSome - 1));
    const auto row = logits.begin() + n * padded;
    unpadded.insert(unpadded.end(), row, row + vocabulary);
  }
  const TestContext context(8);
  const DeviceArray<Bf16> device_logits(logits);
  const DeviceArray<int32_t> device_targets(targets);
  const DeviceArray<float> losses(kSome);
  CrossEntropy(context, kSome, vocabulary, padded, device_targets.data(), 0, device_logits.data(),
               losses.data());
  EXPECT_EQ(device_logits.Read(), logits) << "without a scale the logits stay";
  CrossEntropy(context, kSome, vocabulary, padded, device_targets.data(), kScale,
               device_logits.data(), losses.data());
  const std::vector<float> got = losses.Read();
  const double expected = CrossEntropy(kSome, vocabulary, targets.data(), kScale, unpadded.data());
  EXPECT_NEAR(std::accumulate(got.begin(), got.end(), 0.0), expected, 1e-4 * expected);
  const std::vector<float> gradient = device_logits.Read();
  std::vector<float> kept;
  for (int64_t n = 0; n < kSome; ++n) {
    const auto row = gradient.begin() + n * padded;
    kept.insert(kept.end(), row, row + vocabulary);
    EXPECT_TRUE(std::all_of(row + vocabulary, row + padded, [](float x) { return x == 0; }));
  }
  EXPECT_LT(RelativeError(kept, unpadded), kBf16Error);
}

INSTANTIATE_TEST_SUITE_P(Sizes, CrossEntropyOf,
                         testing::Values(Vocabulary{500, 512}, Vocabulary{50257, 50304},
                                         Vocabulary{128256, 128256}, Vocabulary{9, 16}));

TEST(Embedding, AddsPositionsAndSumsGradientsOfEqualTokens) {
  constexpr int64_t kSequence = 24, kWidth = 264, kVocabulary = 11;
  const std::vector<float> embedding = RandomValues(1, kVocabulary * kWidth);
  const std::vector<float> positions = RandomValues(2, kSequence * kWidth);
  const std::vector<float> dx = RandomValues(3, kRows * kWidth);
  std::vector<int32_t> tokens(kRows), order(kRows), distinct, first;
  for (int64_t n = 0; n < kRows; ++n) tokens[n] = static_cast<int32_t>(n * n % kVocabulary);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return std::pair(tokens[a], a) < std::pair(tokens[b], b);
  });
  for (int32_t i = 0; i < kRows; ++i) {
    if (i == 0 || tokens[order[i]] != distinct.back()) {
      distinct.push_back(tokens[order[i]]);
      first.push_back(i);
    }
  }
  first.push_back(kRows);
  std::vector<float> x(kRows * kWidth), dembedding(kVocabulary * kWidth, 1),
      dpositions(kSequence * kWidth);
  for (int64_t i = 0; i < kRows * kWidth; ++i) {
    const int64_t at = tokens[i / kWidth] * kWidth + i % kWidth;
    const int64_t position = i / kWidth % kSequence * kWidth + i % kWidth;
    x[i] = embedding[at] + positions[position];
    dembedding[at] += dx[i];
    dpositions[position] += dx[i];
  }
  const TestContext context(kWidth);
  const DeviceArray<int32_t> device_tokens(tokens), device_order(order), device_distinct(distinct),
      device_first(first);
  const DeviceArray<Bf16> device_embedding(embedding), device_positions(positions), device_dx(dx),
      out(kRows * kWidth);
  const DeviceArray<float> to_embedding(std::vector<float>(kVocabulary * kWidth, 1)),
      to_positions(kSequence * kWidth);
  EmbedForward(context, kRows, kSequence, kWidth, device_tokens.data(), device_embedding.data(),
               device_positions.data(), out.data());
  EXPECT_LT(RelativeError(out.Read(), x), kBf16Error);
  EmbedBackward(context, kWidth,
                {.order = device_order.data(),
                 .distinct = device_distinct.data(),
                 .first = device_first.data(),
                 .tokens = static_cast<int64_t>(distinct.size())},
                device_dx.data(), to_embedding.data());
  PositionsBackward(context, kRows, kSequence, kWidth, device_dx.data(), Into::kAssign,
                    to_positions.data());
  EXPECT_LT(RelativeError(to_embedding.Read(), dembedding), 1e-5);
  EXPECT_LT(RelativeError(to_positions.Read(), dpositions), 1e-5);
}

TEST(Buffers, RoundWidenAndAddTheirValues) {
  constexpr int64_t kSize = 8 * 1003;  // no multiple of a block's
  std::vector<float> values = RandomValues(1, kSize);
  const std::vector<float> before = RandomValues(2, kSize);
  for (float& value : values) value *= 1 + 1e-3F;  // not all of them bf16's
  std::vector<float> rounded(kSize), sums(kSize), exact(kSize);
  for (int64_t i = 0; i < kSize; ++i) {
    rounded[i] = __bfloat162float(__float2bfloat16(values[i]));
    sums[i] = before[i] + rounded[i];
    exact[i] = before[i] + values[i];
  }
  const TestContext context(8);
  const DeviceArray<float> from(values), to(kSize), added(before), added_exactly(before);
  const DeviceArray<Bf16> narrow(kSize);
  RoundToBf16(context, kSize, from.data(), narrow.data());
  FromBf16(context, kSize, narrow.data(), Into::kAssign, to.data());
  FromBf16(context, kSize, narrow.data(), Into::kAdd, added.data());
  AddTo(context, kSize, from.data(), added_exactly.data());
  EXPECT_EQ(narrow.Read(), rounded);
  EXPECT_EQ(to.Read(), rounded);
  EXPECT_EQ(added.Read(), sums);
  EXPECT_EQ(added_exactly.Read(), exact);
}

// A vector's elements on the device.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& elements) : count_(static_cast<int>(elements.size())) {
    Check(cudaMalloc(&data_, elements.size() * sizeof(T)));
    Check(cudaMemcpy(data_, elements.data(), elements.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }

  const T* data() const { return data_; }
  int count() const { return count_; }

 private:
  T* data_ = nullptr;
  int count_;
};

TEST(Buffers, RunsGoWhereTheyAreToldAndNothingElseChanges) {
  const std::vector<float> values = RandomValues(1, 3000);
  const std::vector<ParameterRun> runs = {{.parameter = 7, .gradient = 0, .to = 1500, .size = 1300},
                                          {.parameter = 2999, .gradient = 0, .to = 0, .size = 1},
                                          {.parameter = 1, .gradient = 0, .to = 9, .size = 0}};
  std::vector<float> expected(3000, -1);
  for (const ParameterRun& run : runs) {
    std::copy_n(values.begin() + run.parameter, run.size, expected.begin() + run.to);
  }
  const DeviceArray<float> from(values), to(std::vector<float>(3000, -1));
  const OnDevice<ParameterRun> device_runs(runs);
  CopyRuns(TestContext(8), device_runs.count(), device_runs.data(), from.data(), to.data());
  EXPECT_EQ(to.Read(), expected);
}

TEST(Buffers, AreFilledWithNumbersAroundZeroOfTheDeviationThatWasAsked) {
  constexpr int64_t kSize = 10'007;
  const DeviceArray<Bf16> values(kSize);
  FillRandom(TestContext(8), kSize, 0.5F, values.data());
  const std::vector<float> filled = values.Read();
  EXPECT_NEAR(std::sqrt(SquaredNorm(filled) / kSize), 0.5, 0.05);
  EXPECT_NEAR(std::accumulate(filled.begin(), filled.end(), 0.0) / kSize, 0, 0.05);
}

TEST(Losses, AreAddedToTheStepsAsTheirScaledSum) {
  constexpr int64_t kLosses = 3001;
  const std::vector<float> losses = RandomValues(1, kLosses);
  const DeviceArray<float> device_losses(losses);
  const DeviceArray<double> sums(std::vector<double>{2, 5});  // a StepSums
  AddLosses(TestContext(8), kLosses, device_losses.data(), 0.5,
            reinterpret_cast<StepSums*>(sums.data()));
  const double sum = std::accumulate(losses.begin(), losses.end(), 0.0);
  EXPECT_NEAR(sums.Read()[0], 2 + 0.5 * sum, 1e-4);
  EXPECT_EQ(sums.Read()[1], 5);
}

class AdamWStep : public testing::Test {
 protected:
  static constexpr int64_t kStep = 7;
  const ParameterLayout layout{*NamedModel("gpt2-tiny")};
  const int64_t size = layout.size();
  const OptimizerConfig config{.learning_rate = 0.01, .total_steps = 10, .clip_norm = 0.5};
  const std::vector<float> gradients = RandomValues(1, size, 0.01F),
                           parameters = RandomValues(2, size), first = RandomValues(3, size, 0.01F);
  std::vector<float> second = RandomValues(4, size, 0.01F);
  std::vector<DecayRun> runs;
  double norm = 0;
  // What doesn't decay, as it was copied ahead of the step, and where it lies in the parameters.
  std::vector<float> ahead;
  std::vector<ParameterRun> ahead_runs;

  // Parameters after a step in two ranges, with `loss` as the step's.
  std::vector<float> Run(double loss) {
    for (float& value : second) value = std::abs(value);
    runs.clear();
    ahead.clear();
    ahead_runs.clear();
    for (const Parameter& parameter : layout.parameters()) {
      runs.push_back({.end = parameter.offset + parameter.size(), .decays = parameter.decays});
      if (parameter.decays) continue;
      ahead_runs.push_back({.parameter = parameter.offset,
                            .gradient = parameter.offset,
                            .to = static_cast<int64_t>(ahead.size()),
                            .size = parameter.size()});
      ahead.resize(ahead.size() + parameter.size());
    }
    const TestContext context(8);
    const DeviceArray<float> g(gradients), p(parameters), m(first), v(second);
    const DeviceArray<Bf16> w(size);
    const DeviceArray<float> copied(ahead);
    const OnDevice<DecayRun> device_runs(runs);
    const OnDevice<ParameterRun> device_ahead_runs(ahead_runs);
    StepSums* sums = nullptr;
    Check(cudaMalloc(&sums, sizeof(StepSums)));
    const StepSums begin = {.loss = loss, .squared_norm = 0};
    Check(cudaMemcpy(sums, &begin, sizeof(StepSums), cudaMemcpyHostToDevice));
    const DeviceArray<double> partials(kNormPartials);
    SquaredNormOf(context, size, g.data(), partials.data());
    AddSquaredNorm(context, kNormPartials, partials.data(), sums);
    const double count = kStep + 1;
    const double rate = LearningRate(config, kStep);
    const AdamWFactors factors = {
        .beta1 = static_cast<float>(config.beta1),
        .beta2 = static_cast<float>(config.beta2),
        .step_size = static_cast<float>(rate / (1 - std::pow(config.beta1, count))),
        .correction = static_cast<float>(std::sqrt(1 - std::pow(config.beta2, count))),
        .epsilon = static_cast<float>(config.epsilon),
        .keep = static_cast<float>(1 - rate * config.weight_decay),
        .clip_norm = static_cast<float>(config.clip_norm)};
    CopyRunsAhead(context, factors, sums, device_ahead_runs.count(), device_ahead_runs.data(),
                  {.gradients = g.data(),
                   .parameters = p.data(),
                   .first_moment = m.data(),
                   .second_moment = v.data()},
                  copied.data());
    const int64_t half = size / 16 * 8;
    for (const auto& [offset, count_here] : {std::pair(int64_t{0}, half), {half, size - half}}) {
      AdamW(context, factors, sums, device_runs.count(), device_runs.data(),
            {.offset = offset,
             .size = count_here,
             .gradients = g.data() + offset,
             .parameters = p.data() + offset,
             .first_moment = m.data() + offset,
             .second_moment = v.data() + offset,
             .weights = w.data() + offset});
    }
    StepSums end = {};
    Check(cudaMemcpy(&end, sums, sizeof(StepSums), cudaMemcpyDeviceToHost));
    norm = std::sqrt(end.squared_norm);
    if (std::isfinite(loss)) {
      EXPECT_LT(RelativeError(w.Read(), p.Read()), kBf16Error);
    }
    std::vector<float> after = p.Read();
    ahead = copied.Read();
    cudaFree(sums);
    return after;
  }
};

TEST_F(AdamWStep, IsTheReferencesWithClippingAndDecay) {
  const std::vector<float> after = Run(3);
  EXPECT_NEAR(norm, std::sqrt(SquaredNorm(gradients)), 1e-5 * norm);
  std::vector<float> expected = parameters, m = first, v = second;
  UpdateAdamW(config, layout, kStep, ClipFactor(config, norm),
              {.offset = 0,
               .parameters = expected,
               .gradients = gradients,
               .first_moment = m,
               .second_moment = v});
  EXPECT_LT(RelativeError(after, expected), 1e-6);
  EXPECT_GT(RelativeError(parameters, expected), 1e-4) << "else this says nothing";
}

TEST_F(AdamWStep, LeavesTheStateIfTheLossIsNoNumber) {
  EXPECT_EQ(Run(std::numeric_limits<double>::quiet_NaN()), parameters);
}

TEST_F(AdamWStep, LeavesWhatWasCopiedAheadOfItToTheBit) {
  for (const double loss : {3.0, std::numeric_limits<double>::quiet_NaN()}) {
    const std::vector<float> after = Run(loss);
    ASSERT_FALSE(ahead_runs.empty());
    for (const ParameterRun& run : ahead_runs) {
      ASSERT_TRUE(std::equal(ahead.begin() + run.to, ahead.begin() + run.to + run.size,
                             after.begin() + run.parameter));
    }
  }
}

}  // namespace
}  // namespace muster::worker
