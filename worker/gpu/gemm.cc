#include "worker/gpu/gemm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "worker/gpu/cuda_status.h"
#include "worker/gpu/shared_library.h"

namespace muster::worker {

// The functions of the library that are used.
class CublasLt {
 public:
  static absl::StatusOr<std::unique_ptr<CublasLt>> Load(void* workspace) {
    const absl::StatusOr<SharedLibrary> library =
        SharedLibrary::Open({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"});
    if (!library.ok()) {
      return library.status();
    }
    auto loaded = std::make_unique<CublasLt>();
    loaded->workspace = workspace;
    bool complete = true;
    const auto find = [&](auto*& function, const char* name) {
      function =
          library->Find<std::remove_pointer_t<std::remove_reference_t<decltype(function)>>>(name);
      complete = complete && function != nullptr;
    };
    find(loaded->create, "cublasLtCreate");
    find(loaded->destroy, "cublasLtDestroy");
    find(loaded->version, "cublasLtGetVersion");
    find(loaded->matmul, "cublasLtMatmul");
    find(loaded->heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(loaded->create_description, "cublasLtMatmulDescCreate");
    find(loaded->destroy_description, "cublasLtMatmulDescDestroy");
    find(loaded->set, "cublasLtMatmulDescSetAttribute");
    find(loaded->create_layout, "cublasLtMatrixLayoutCreate");
    find(loaded->destroy_layout, "cublasLtMatrixLayoutDestroy");
    find(loaded->create_preference, "cublasLtMatmulPreferenceCreate");
    find(loaded->destroy_preference, "cublasLtMatmulPreferenceDestroy");
    find(loaded->set_preference, "cublasLtMatmulPreferenceSetAttribute");
    if (!complete) {
      return absl::NotFoundError("cuBLASLt lacks functions of version 12 and later");
    }
    if (const cublasStatus_t error = loaded->create(&loaded->handle);
        error != CUBLAS_STATUS_SUCCESS) {
      return absl::InternalError(fmt::format("cublasLtCreate: error {}", static_cast<int>(error)));
    }
    return loaded;
  }

  ~CublasLt() {
    if (handle != nullptr) {
      destroy(handle);
    }
  }

  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_description = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_description = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
};

namespace {

constexpr int kCandidates = 16;
constexpr size_t kFinalists = 3;
constexpr float kFirstMilliseconds = 6;
constexpr float kFinalMilliseconds = 40;
constexpr float kKernelMilliseconds = 5;

absl::Status LtStatus(cublasStatus_t error, std::string_view doing) {
  return error == CUBLAS_STATUS_SUCCESS
             ? absl::OkStatus()
             : absl::InternalError(
                   fmt::format("{}: cuBLASLt error {}", doing, static_cast<int>(error)));
}

// cuBLASLt is column-major: it sees every row-major matrix transposed, and so the operands of a
// product exchanged. `right` is its A, `left` its B, and out[rows][columns] of `depth` terms.
struct Sizes {
  int64_t rows, columns, depth;
  cublasOperation_t a_operation, b_operation;
};

Sizes SizesOf(const GemmShape& shape) {
  if (shape.precision == Precision::kFp8) {
    switch (shape.product) {
      case Product::kForward:
        return {shape.outputs, shape.rows, shape.inputs, CUBLAS_OP_T, CUBLAS_OP_N};
      case Product::kInputGradient:
        return {shape.inputs, shape.rows, shape.outputs, CUBLAS_OP_T, CUBLAS_OP_N};
      case Product::kWeightGradient:
        return {shape.inputs, shape.outputs, shape.rows, CUBLAS_OP_T, CUBLAS_OP_N};
    }
  }
  switch (shape.product) {
    case Product::kForward:
      return {shape.outputs, shape.rows, shape.inputs, CUBLAS_OP_T, CUBLAS_OP_N};
    case Product::kInputGradient:
      return {shape.inputs, shape.rows, shape.outputs, CUBLAS_OP_N, CUBLAS_OP_N};
    case Product::kWeightGradient:
      break;
  }
  return {shape.inputs, shape.outputs, shape.rows, CUBLAS_OP_N, CUBLAS_OP_T};
}

cublasLtEpilogue_t EpilogueOf(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      break;
    case Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kBiasGelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::kGeluGradient:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::kBiasGradient:
      return CUBLASLT_EPILOGUE_BGRADB;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

GemmPlan::GemmPlan(const CublasLt& library, const GemmShape& shape)
    : library_(library), shape_(shape) {}

GemmPlan::~GemmPlan() {
  for (cublasLtMatrixLayout_t layout : {a_, b_, out_}) {
    if (layout != nullptr) {
      library_.destroy_layout(layout);
    }
  }
  if (description_ != nullptr) {
    library_.destroy_description(description_);
  }
}

absl::Status GemmPlan::Describe() {
  const Sizes sizes = SizesOf(shape_);
  const bool a_transposed = sizes.a_operation == CUBLAS_OP_T;
  const bool b_transposed = sizes.b_operation == CUBLAS_OP_T;
  const bool fp8 = shape_.precision == Precision::kFp8;
  const cudaDataType right_type = fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
  const cudaDataType left_type = !fp8                                  ? CUDA_R_16BF
                                 : shape_.product == Product::kForward ? CUDA_R_8F_E4M3
                                                                       : CUDA_R_8F_E5M2;
  const cudaDataType out_type =
      shape_.product == Product::kWeightGradient ? CUDA_R_32F : CUDA_R_16BF;
  const auto layout = [&](cublasLtMatrixLayout_t* made, cudaDataType type, int64_t rows,
                          int64_t columns) {
    return LtStatus(library_.create_layout(made, type, rows, columns, rows), "layout");
  };
  absl::Status status = LtStatus(
      library_.create_description(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description");
  status.Update(a_transposed ? layout(&a_, right_type, sizes.depth, sizes.rows)
                             : layout(&a_, right_type, sizes.rows, sizes.depth));
  status.Update(b_transposed ? layout(&b_, left_type, sizes.columns, sizes.depth)
                             : layout(&b_, left_type, sizes.depth, sizes.columns));
  status.Update(layout(&out_, out_type, sizes.rows, sizes.columns));
  const cublasLtEpilogue_t epilogue = EpilogueOf(shape_.epilogue);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    if (status.ok()) {
      status = LtStatus(library_.set(description_, attribute, &value, sizeof(value)),
                        fmt::format("attribute {}", static_cast<int>(attribute)));
    }
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, sizes.a_operation);
  set(CUBLASLT_MATMUL_DESC_TRANSB, sizes.b_operation);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (fp8) {
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{shape_.product == Product::kForward});
  }
  if (shape_.epilogue == Epilogue::kBiasGelu || shape_.epilogue == Epilogue::kGeluGradient) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, sizes.rows);
  }
  return status;
}

absl::Status GemmPlan::SetPointers(const GemmOperands& operands) const {
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* pointer) {
    return LtStatus(library_.set(description_, attribute, &pointer, sizeof(pointer)), "pointer");
  };
  if (shape_.precision == Precision::kFp8) {
    absl::Status status = set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.right_unit);
    status.Update(set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.left_unit));
    if (!status.ok()) {
      return status;
    }
  }
  switch (shape_.epilogue) {
    case Epilogue::kNone:
      break;
    case Epilogue::kBias:
      return set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    case Epilogue::kBiasGelu: {
      absl::Status status = set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
      status.Update(set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.pre_activation));
      return status;
    }
    case Epilogue::kGeluGradient:
      return set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.pre_activation);
    case Epilogue::kBiasGradient:
      return set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias_gradient);
  }
  return absl::OkStatus();
}

absl::Status GemmPlan::Launch(cudaStream_t stream, const GemmOperands& operands,
                              const cublasLtMatmulAlgo_t& algorithm) const {
  if (absl::Status status = SetPointers(operands); !status.ok()) {
    return status;
  }
  const float one = 1;
  const float beta = operands.addend == nullptr ? 0 : 1;
  const void* addend = operands.addend == nullptr ? operands.out : operands.addend;
  return LtStatus(library_.matmul(library_.handle, description_, &one, operands.right, a_,
                                  operands.left, b_, &beta, addend, out_, operands.out, out_,
                                  &algorithm, library_.workspace, Gemms::kWorkspaceBytes, stream),
                  "a product");
}

absl::Status GemmPlan::Run(cudaStream_t stream, const GemmOperands& operands) const {
  return Launch(stream, operands, algorithm_);
}

absl::StatusOr<std::unique_ptr<Gemms>> Gemms::Create(void* workspace,
                                                     const std::string& cache_path) {
  absl::StatusOr<std::unique_ptr<CublasLt>> library = CublasLt::Load(workspace);
  if (!library.ok()) {
    return library.status();
  }
  return std::unique_ptr<Gemms>(new Gemms(*std::move(library), cache_path));
}

Gemms::Gemms(std::unique_ptr<CublasLt> library, const std::string& cache_path)
    : library_(std::move(library)), cache_(cache_path) {
  int device = 0;
  int driver = 0;
  cudaDeviceProp properties = {};
  cudaGetDevice(&device);
  cudaDriverGetVersion(&driver);
  cudaGetDeviceProperties(&properties, device);
  kind_ = fmt::format("{}/{}/{}", properties.name, driver, library_->version());
  std::replace(kind_.begin(), kind_.end(), ' ', '-');
}

Gemms::~Gemms() = default;

std::string Gemms::Key(const GemmShape& shape) const {
  return fmt::format("{}/{}.{}.{}x{}x{}{}{}", kind_, static_cast<int>(shape.product),
                     static_cast<int>(shape.epilogue), shape.rows, shape.inputs, shape.outputs,
                     shape.adds ? "+" : "", shape.precision == Precision::kFp8 ? "f8" : "");
}

float Gemms::KernelMilliseconds(cudaStream_t stream, std::string_view kernel, int64_t rows,
                                int64_t columns, absl::FunctionRef<void()> run) {
  const std::string key = fmt::format("{}/{}.{}x{}", kind_, kernel, rows, columns);
  if (const TimedPlan* kept = cache_.Find(key); kept != nullptr) {
    return kept->milliseconds;
  }
  const float milliseconds = MeasureMilliseconds(stream, kKernelMilliseconds, run);
  cache_.Keep(key, {.milliseconds = milliseconds});
  return milliseconds;
}

absl::StatusOr<const GemmPlan*> Gemms::Plan(cudaStream_t stream, const GemmShape& shape,
                                            const GemmOperands& operands) {
  std::unique_ptr<GemmPlan>& plan = plans_[shape];
  if (plan != nullptr) {
    return plan.get();
  }
  auto made = std::unique_ptr<GemmPlan>(new GemmPlan(*library_, shape));
  if (absl::Status status = made->Describe(); !status.ok()) {
    return status;
  }
  const std::string key = Key(shape);
  if (const TimedPlan* kept = cache_.Find(key); kept != nullptr) {
    made->algorithm_ = std::bit_cast<cublasLtMatmulAlgo_t>(kept->algorithm);
    made->milliseconds_ = kept->milliseconds;
    // A file may lie.
    if (made->Run(stream, operands).ok() && cudaStreamSynchronize(stream) == cudaSuccess) {
      plan = std::move(made);
      return plan.get();
    }
  }
  if (absl::Status status = Choose(stream, operands, *made); !status.ok()) {
    return status;
  }
  cache_.Keep(key, {.milliseconds = made->milliseconds_,
                    .algorithm = std::bit_cast<decltype(TimedPlan::algorithm)>(made->algorithm_)});
  plan = std::move(made);
  return plan.get();
}

absl::Status Gemms::Choose(cudaStream_t stream, const GemmOperands& operands,
                           GemmPlan& plan) const {
  absl::Status status = plan.SetPointers(operands);
  cublasLtMatmulPreference_t preference = nullptr;
  status.Update(LtStatus(library_->create_preference(&preference), "preference"));
  const size_t workspace = kWorkspaceBytes;
  status.Update(
      LtStatus(library_->set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                        &workspace, sizeof(workspace)),
               "preference"));
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results = {};
  int found = 0;
  if (status.ok()) {
    status = LtStatus(
        library_->heuristic(library_->handle, plan.description_, plan.a_, plan.b_, plan.out_,
                            plan.out_, preference, kCandidates, results.data(), &found),
        "heuristic");
  }
  library_->destroy_preference(preference);
  if (!status.ok() || found == 0) {
    return absl::NotFoundError(
        fmt::format("cuBLASLt has no plan for product {} with epilogue {} of {} rows, {} inputs, "
                    "{} outputs in {} ({})",
                    static_cast<int>(plan.shape_.product), static_cast<int>(plan.shape_.epilogue),
                    plan.shape_.rows, plan.shape_.inputs, plan.shape_.outputs,
                    PrecisionName(plan.shape_.precision), status.ToString()));
  }
  struct Candidate {
    cublasLtMatmulAlgo_t algorithm;
    float milliseconds;
  };
  std::vector<Candidate> candidates;
  const auto time = [&](const cublasLtMatmulAlgo_t& algorithm, float milliseconds) {
    return MeasureMilliseconds(stream, milliseconds,
                               [&] { status.Update(plan.Launch(stream, operands, algorithm)); });
  };
  for (int i = 0; i < found; ++i) {
    status = absl::OkStatus();
    const float milliseconds = time(results[i].algo, kFirstMilliseconds);
    if (status.ok()) {
      candidates.push_back({.algorithm = results[i].algo, .milliseconds = milliseconds});
    }
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.milliseconds < b.milliseconds; });
  candidates.resize(std::min(candidates.size(), kFinalists));
  // Longer now, because the GPU's clock falls with the load.
  for (Candidate& candidate : candidates) {
    candidate.milliseconds = time(candidate.algorithm, kFinalMilliseconds);
  }
  const auto best = std::min_element(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.milliseconds < b.milliseconds; });
  if (best == candidates.end()) {
    return status.ok() ? absl::NotFoundError("no plan of cuBLASLt runs") : status;
  }
  plan.algorithm_ = best->algorithm;
  plan.milliseconds_ = best->milliseconds;
  return LaunchStatus("timing products");
}

}  // namespace muster::worker
