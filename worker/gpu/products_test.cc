// Attention and products beside the CPU's.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "worker/gpu/attention.h"
#include "worker/gpu/device_array.h"
#include "worker/gpu/gemm.h"
#include "worker/gpu/kernels/quantize.h"
#include "worker/model/layers.h"

namespace muster::worker {
namespace {

struct AttentionCase {
  std::string name;
  AttentionShape shape;
  bool plain;
};

class AttentionOf : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionOf, ForwardAndBackwardAreTheReferences) {
  const AttentionShape& shape = GetParam().shape;
  auto made = GetParam().plain ? MakePlainAttention(shape) : MakeCudnnAttention(shape, false);
  ASSERT_TRUE(made.ok()) << made.status();
  const int64_t rows = shape.sequences * shape.sequence;
  const int64_t width = shape.heads * shape.head_size;
  const std::vector<float> qkv = RandomValues(1, rows * shape.row());
  const std::vector<float> dy = RandomValues(2, rows * width);
  std::vector<float> y(rows * width), probabilities(shape.probabilities()),
      dqkv(rows * shape.row()), scratch(shape.sequence * shape.sequence);
  AttentionForward(shape, qkv.data(), y.data(), probabilities.data());
  AttentionBackward(shape, qkv.data(), probabilities.data(), dy.data(), dqkv.data(),
                    scratch.data());

  const DeviceArray<Bf16> device_qkv(qkv), device_dy(dy), device_y(rows * width),
      device_dqkv(rows * shape.row());
  const DeviceArray<float> statistics(rows * shape.heads);
  const DeviceArray<int32_t> workspace((*made)->workspace_bytes() / 4 + 1);
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreate(&stream));
  ASSERT_TRUE(
      (*made)
          ->Forward(stream, device_qkv.data(), device_y.data(), statistics.data(), workspace.data())
          .ok());
  ASSERT_TRUE((*made)
                  ->Backward(stream, device_qkv.data(), device_y.data(), statistics.data(),
                             device_dy.data(), device_dqkv.data(), workspace.data())
                  .ok());
  EXPECT_LT(RelativeError(device_y.Read(), y), 2 * kBf16Error);
  EXPECT_LT(RelativeError(device_dqkv.Read(), dqkv), 3 * kBf16Error);
  cudaStreamDestroy(stream);
}

std::vector<AttentionCase> Cases() {
  std::vector<AttentionCase> cases;
  for (const bool plain : {true, false}) {
    const std::string with = plain ? "Plain" : "Cudnn";
    cases.push_back({with + "Gpt2", {2, 160, 3, 3, 64}, plain});
    cases.push_back({with + "GroupedQueries", {2, 200, 4, 2, 128}, plain});
    cases.push_back({with + "SmallHeads", {3, 64, 4, 4, 16}, plain});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(, AttentionOf, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

class ProductsOf : public testing::Test {
 protected:
  static constexpr int64_t kRows = 256, kInputs = 64, kOutputs = 192;

  void SetUp() override {
    auto made = Gemms::Create(workspace_.data(), "");
    ASSERT_TRUE(made.ok()) << made.status();
    gemms_ = *std::move(made);
  }

  void Run(Product product, Epilogue epilogue, bool adds, const GemmOperands& operands) {
    const auto plan = gemms_->Plan(nullptr,
                                   {.product = product,
                                    .epilogue = epilogue,
                                    .rows = kRows,
                                    .inputs = kInputs,
                                    .outputs = kOutputs,
                                    .adds = adds},
                                   operands);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_TRUE((*plan)->Run(nullptr, operands).ok());
  }

  const std::vector<float> x_ = RandomValues(1, kRows* kInputs),
                           w_ = RandomValues(2, kOutputs* kInputs, 0.2F),
                           dy_ = RandomValues(3, kRows* kOutputs),
                           bias_ = RandomValues(4, kOutputs),
                           addend_ = RandomValues(5, kRows* kOutputs);
  const DeviceArray<Bf16> device_x_{x_}, device_w_{w_}, device_dy_{dy_}, device_bias_{bias_},
      device_addend_{addend_};
  const DeviceArray<std::byte> workspace_{Gemms::kWorkspaceBytes};
  std::unique_ptr<Gemms> gemms_;
};

TEST_F(ProductsOf, ALinearLayerForwardWithBiasAndResidual) {
  const DeviceArray<Bf16> y(kRows * kOutputs);
  std::vector<float> expected(kRows * kOutputs);
  LinearForward(kRows, kInputs, kOutputs, x_.data(), w_.data(), bias_.data(), expected.data());
  Run(Product::kForward, Epilogue::kBias, false,
      {.left = device_x_.data(),
       .right = device_w_.data(),
       .out = y.data(),
       .bias = device_bias_.data()});
  EXPECT_LT(RelativeError(y.Read(), expected), kBf16Error);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += addend_[i];
  Run(Product::kForward, Epilogue::kBias, true,
      {.left = device_x_.data(),
       .right = device_w_.data(),
       .out = y.data(),
       .addend = device_addend_.data(),
       .bias = device_bias_.data()});
  EXPECT_LT(RelativeError(y.Read(), expected), kBf16Error);
}

TEST_F(ProductsOf, ALinearLayerBackward) {
  const DeviceArray<Bf16> dx(kRows * kInputs);
  const DeviceArray<float> dw(kOutputs * kInputs), dbias(kOutputs);
  std::vector<float> expected_dx(kRows * kInputs), expected_dw(kOutputs * kInputs),
      expected_dbias(kOutputs);
  LinearBackward(kRows, kInputs, kOutputs, x_.data(), w_.data(), dy_.data(), expected_dx.data(),
                 expected_dw.data(), expected_dbias.data());
  Run(Product::kInputGradient, Epilogue::kNone, false,
      {.left = device_dy_.data(), .right = device_w_.data(), .out = dx.data()});
  EXPECT_LT(RelativeError(dx.Read(), expected_dx), kBf16Error);
  Run(Product::kWeightGradient, Epilogue::kBiasGradient, false,
      {.left = device_dy_.data(),
       .right = device_x_.data(),
       .out = dw.data(),
       .bias_gradient = dbias.data()});
  EXPECT_LT(RelativeError(dw.Read(), expected_dw), 1e-4);
  EXPECT_LT(RelativeError(dbias.Read(), expected_dbias), 1e-3);
  const auto plan = gemms_->Plan(
      nullptr,
      {.product = Product::kWeightGradient, .rows = kRows, .inputs = kInputs, .outputs = kOutputs},
      {.left = device_dy_.data(), .right = device_x_.data(), .out = dw.data()});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const GemmOperands again = {
      .left = device_dy_.data(), .right = device_x_.data(), .out = dw.data(), .addend = dw.data()};
  Check(cudaMemset(dw.data(), 0, kOutputs * kInputs * sizeof(float)));
  ASSERT_TRUE((*plan)->Run(nullptr, again).ok());
  ASSERT_TRUE((*plan)->Run(nullptr, again).ok());
  for (float& value : expected_dw) value *= 2;
  EXPECT_LT(RelativeError(dw.Read(), expected_dw), 1e-4) << "two micro-batches";
}

// A matrix in FP8, in both orders.
struct Quantized {
  Quantized(const Bf16* x, int64_t rows, int64_t columns, Fp8Format format)
      : row_major(rows * columns), transposed(rows * columns) {
    auto* device_scale = reinterpret_cast<Fp8Scale*>(scale.data());
    const TestContext context(columns);
    FindLargest(context, rows * columns, x, device_scale);
    Quantize(context, rows, columns, x, format, device_scale, row_major.data(), transposed.data());
  }
  const float* unit() const { return &reinterpret_cast<const Fp8Scale*>(scale.data())->unit; }

  const DeviceArray<uint8_t> row_major, transposed;
  const DeviceArray<float> scale{std::vector<float>(4, 0)};
};

TEST_F(ProductsOf, ALinearLayerInFp8) {
  const Quantized x(device_x_.data(), kRows, kInputs, Fp8Format::kE4M3);
  const Quantized w(device_w_.data(), kOutputs, kInputs, Fp8Format::kE4M3);
  const Quantized dy(device_dy_.data(), kRows, kOutputs, Fp8Format::kE5M2);
  const DeviceArray<Bf16> y(kRows * kOutputs), dx(kRows * kInputs);
  const DeviceArray<float> dw(std::vector<float>(kOutputs * kInputs, 0));
  std::vector<float> expected_y(kRows * kOutputs), expected_dx(kRows * kInputs),
      expected_dw(kOutputs * kInputs);
  LinearForward(kRows, kInputs, kOutputs, x_.data(), w_.data(), bias_.data(), expected_y.data());
  LinearBackward(kRows, kInputs, kOutputs, x_.data(), w_.data(), dy_.data(), expected_dx.data(),
                 expected_dw.data(), nullptr);
  for (size_t i = 0; i < expected_y.size(); ++i) expected_y[i] += addend_[i];
  const auto run = [&](Product product, Epilogue epilogue, const GemmOperands& operands) {
    const auto plan = gemms_->Plan(nullptr,
                                   {.product = product,
                                    .epilogue = epilogue,
                                    .rows = kRows,
                                    .inputs = kInputs,
                                    .outputs = kOutputs,
                                    .adds = operands.addend != nullptr,
                                    .precision = Precision::kFp8},
                                   operands);
    ASSERT_TRUE(plan.ok()) << plan.status();
    if (operands.addend == operands.out) {
      Check(cudaMemset(operands.out, 0, kOutputs * kInputs * sizeof(float)));
    }
    ASSERT_TRUE((*plan)->Run(nullptr, operands).ok());
  };
  run(Product::kForward, Epilogue::kBias,
      {.left = x.row_major.data(),
       .right = w.row_major.data(),
       .left_unit = x.unit(),
       .right_unit = w.unit(),
       .out = y.data(),
       .addend = device_addend_.data(),
       .bias = device_bias_.data()});
  run(Product::kInputGradient, Epilogue::kNone,
      {.left = dy.row_major.data(),
       .right = w.transposed.data(),
       .left_unit = dy.unit(),
       .right_unit = w.unit(),
       .out = dx.data()});
  run(Product::kWeightGradient, Epilogue::kNone,
      {.left = dy.transposed.data(),
       .right = x.transposed.data(),
       .left_unit = dy.unit(),
       .right_unit = x.unit(),
       .out = dw.data(),
       .addend = dw.data()});
  // Roundings of E4M3 are 1/16 at worst and of E5M2 1/8; in a sum they go in both directions.
  EXPECT_LT(RelativeError(y.Read(), expected_y), 0.05);
  EXPECT_LT(RelativeError(dx.Read(), expected_dx), 0.1);
  EXPECT_LT(RelativeError(dw.Read(), expected_dw), 0.1);
}

TEST_F(ProductsOf, GeluWithinTheProductsBesideIt) {
  const DeviceArray<Bf16> y(kRows * kOutputs), up(kRows * kOutputs), dx(kRows * kInputs);
  std::vector<float> expected_up(kRows * kOutputs), expected(kRows * kOutputs);
  LinearForward(kRows, kInputs, kOutputs, x_.data(), w_.data(), bias_.data(), expected_up.data());
  GeluForward(kRows * kOutputs, expected_up.data(), expected.data());
  Run(Product::kForward, Epilogue::kBiasGelu, false,
      {.left = device_x_.data(),
       .right = device_w_.data(),
       .out = y.data(),
       .bias = device_bias_.data(),
       .pre_activation = up.data()});
  EXPECT_LT(RelativeError(up.Read(), expected_up), kBf16Error);
  EXPECT_LT(RelativeError(y.Read(), expected), kBf16Error);

  std::vector<float> plain(kRows * kInputs), expected_dx(kRows * kInputs),
      unused(kOutputs * kInputs);
  LinearBackward(kRows, kInputs, kOutputs, x_.data(), w_.data(), dy_.data(), plain.data(),
                 unused.data(), nullptr);
  GeluBackward(kRows * kInputs, x_.data(), plain.data(), expected_dx.data());
  const DeviceArray<Bf16> pre_activation(x_);
  Run(Product::kInputGradient, Epilogue::kGeluGradient, false,
      {.left = device_dy_.data(),
       .right = device_w_.data(),
       .out = dx.data(),
       .pre_activation = pre_activation.data()});
  EXPECT_LT(RelativeError(dx.Read(), expected_dx), kBf16Error);
}

}  // namespace
}  // namespace muster::worker
