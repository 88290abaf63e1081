// Matrix products by cuBLASLt, each with the fastest of the plans that the library proposes for its
// shape, as timed on this GPU.
//
// The three products of a linear layer y[N][O] = x[N][I] * w[O][I] transposed, all row-major:
//
//                    left      right     out
//   forward          x[N][I]   w[O][I]   y[N][O]    bf16
//   input gradient   dy[N][O]  w[O][I]   dx[N][I]   bf16
//   weight gradient  dy[N][O]  x[N][I]   dw[O][I]   fp32
//
// In FP8 (kernels/quantize.h) the same, but both operands lie along what is summed over, which is
// all that tensor cores take then:
//
//   forward          x[N][I]   w[O][I]   y[N][O]    bf16; x and w E4M3
//   input gradient   dy[N][O]  w[I][O]   dx[N][I]   bf16; dy E5M2
//   weight gradient  dy[O][N]  x[I][N]   dw[O][I]   fp32
//
// Sums are fp32 in both. In FP8 the tensor cores themselves keep fewer bits of a sum; gradients'
// sums are moved to fp32 every few terms, the forward's at their end, as Transformer Engine does.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/gpu/kernels/launch.h"
#include "worker/training/plan_cache.h"
#include "worker/training/precision.h"

namespace muster::worker {

enum class Product { kForward, kInputGradient, kWeightGradient };

// What a product does on the way out.
enum class Epilogue {
  kNone,
  kBias,          // forward: y += bias[O]
  kBiasGelu,      // forward: pre_activation = y + bias, y = GELU(that)
  kGeluGradient,  // input gradient: dx times GELU's slope at pre_activation[N][I]
  kBiasGradient,  // weight gradient: bias_gradient[O] = the sum of dy over its rows
};

struct GemmShape {
  Product product = Product::kForward;
  Epilogue epilogue = Epilogue::kNone;
  int64_t rows = 0;     // N
  int64_t inputs = 0;   // I
  int64_t outputs = 0;  // O
  bool adds = false;    // out = addend + product
  Precision precision = Precision::kBf16;

  auto operator<=>(const GemmShape&) const = default;
};

struct GemmOperands {
  const void* left = nullptr;  // Bf16 or Fp8
  const void* right = nullptr;
  // FP8: what a stored 1 stands for, on the device.
  const float* left_unit = nullptr;
  const float* right_unit = nullptr;
  void* out = nullptr;
  const void* addend = nullptr;  // like out, and may be out; null: zero
  const Bf16* bias = nullptr;
  Bf16* pre_activation = nullptr;
  float* bias_gradient = nullptr;
};

class CublasLt;

// One shape's plan. It lives as long as the Gemms that made it.
class GemmPlan {
 public:
  // Puts the product on the stream. Internal if the library refuses it.
  absl::Status Run(cudaStream_t stream, const GemmOperands& operands) const;
  float milliseconds() const { return milliseconds_; }  // as timed

  ~GemmPlan();
  GemmPlan(const GemmPlan&) = delete;
  GemmPlan& operator=(const GemmPlan&) = delete;

 private:
  friend class Gemms;
  GemmPlan(const CublasLt& library, const GemmShape& shape);
  absl::Status Describe();
  absl::Status SetPointers(const GemmOperands& operands) const;
  absl::Status Launch(cudaStream_t stream, const GemmOperands& operands,
                      const cublasLtMatmulAlgo_t& algorithm) const;

  const CublasLt& library_;
  GemmShape shape_;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, out_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_ = {};
  float milliseconds_ = 0;
};

// Makes plans and keeps them, also in a file for the next start: keyed by the kind of GPU and the
// shape. Used by one thread, for one device. What has been timed once is not timed again, so that
// equal caches lead to equal choices.
class Gemms {
 public:
  // What a product may use beside its operands; those of one stream share it.
  static constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;

  // `workspace` has kWorkspaceBytes. `cache_path` may be empty: then plans last as long as this.
  // NotFound if cuBLASLt isn't there.
  static absl::StatusOr<std::unique_ptr<Gemms>> Create(void* workspace,
                                                       const std::string& cache_path);
  ~Gemms();

  // The plan for that shape; at first it is timed with these operands, whose outputs then hold
  // anything. NotFound if the library has none.
  absl::StatusOr<const GemmPlan*> Plan(cudaStream_t stream, const GemmShape& shape,
                                       const GemmOperands& operands);
  // What a kernel beside products takes on so many rows and columns: `run` puts it on the stream.
  float KernelMilliseconds(cudaStream_t stream, std::string_view kernel, int64_t rows,
                           int64_t columns, absl::FunctionRef<void()> run);

  // Of the device: GPU, driver and library.
  const std::string& kind() const { return kind_; }
  PlanCache& cache() { return cache_; }

 private:
  Gemms(std::unique_ptr<CublasLt> library, const std::string& cache_path);
  std::string Key(const GemmShape& shape) const;
  absl::Status Choose(cudaStream_t stream, const GemmOperands& operands, GemmPlan& plan) const;

  std::unique_ptr<CublasLt> library_;
  std::string kind_;
  PlanCache cache_;
  std::map<GemmShape, std::unique_ptr<GemmPlan>> plans_;
};

}  // namespace muster::worker
