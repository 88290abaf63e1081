// The only file that knows cuDNN.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

#include <cmath>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "worker/gpu/attention.h"
#include "worker/gpu/shared_library.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // where the frontend looks for cuDNN's functions
}  // namespace cudnn_frontend

namespace muster::worker {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

enum TensorId : int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kOutput,
  kStatistics,
  kOutputGradient,
  kQueryGradient,
  kKeyGradient,
  kValueGradient
};

absl::Status FrontendStatus(fe::error_t error, std::string_view doing) {
  return error.is_good() ? absl::OkStatus()
                         : absl::InternalError(fmt::format("{}: {}", doing, error.get_message()));
}

absl::StatusOr<cudnnHandle_t> MakeHandle() {
  // Once, whichever rank of this process comes first.
  static const absl::StatusOr<SharedLibrary> kLibrary = [] {
    absl::StatusOr<SharedLibrary> library = SharedLibrary::Open({"libcudnn.so.9", "libcudnn.so"});
    if (library.ok()) fe::cudnn_dlhandle = library->handle();
    return library;
  }();
  if (!kLibrary.ok()) {
    return kLibrary.status();
  }
  cudnnHandle_t handle = nullptr;
  if (fe::detail::create_handle(&handle) != CUDNN_STATUS_SUCCESS) {
    return absl::InternalError("cudnnCreate failed");
  }
  return handle;
}

class CudnnAttention : public Attention {
 public:
  CudnnAttention(const AttentionShape& shape, bool deterministic, cudnnHandle_t handle)
      : shape_(shape), deterministic_(deterministic), handle_(handle) {}
  ~CudnnAttention() override { fe::detail::destroy_handle(handle_); }

  absl::Status Build() {
    forward_ = MakeGraph("attention_forward");
    auto [output, statistics] =
        forward_->sdpa(Input(*forward_, kQuery, shape_.heads, shape_.row()),
                       Input(*forward_, kKey, shape_.key_value_heads, shape_.row()),
                       Input(*forward_, kValue, shape_.key_value_heads, shape_.row()),
                       fe::graph::SDPA_attributes()
                           .set_name("attention")
                           .set_generate_stats(true)
                           .set_causal_mask(true)
                           .set_attn_scale(Scale()));
    Output(output, kOutput, shape_.heads, Width());
    statistics->set_output(true)
        .set_uid(kStatistics)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({shape_.sequences, shape_.heads, shape_.sequence, 1})
        .set_stride({shape_.heads * shape_.sequence, shape_.sequence, 1, 1});
    if (absl::Status status = Finish(*forward_, forward_workspace_); !status.ok()) {
      return status;
    }
    backward_ = MakeGraph("attention_backward");
    Tensor statistics_in =
        backward_->tensor(fe::graph::Tensor_attributes()
                              .set_uid(kStatistics)
                              .set_data_type(fe::DataType_t::FLOAT)
                              .set_dim({shape_.sequences, shape_.heads, shape_.sequence, 1})
                              .set_stride({shape_.heads * shape_.sequence, shape_.sequence, 1, 1}));
    auto [query, key, value] = backward_->sdpa_backward(
        Input(*backward_, kQuery, shape_.heads, shape_.row()),
        Input(*backward_, kKey, shape_.key_value_heads, shape_.row()),
        Input(*backward_, kValue, shape_.key_value_heads, shape_.row()),
        Input(*backward_, kOutput, shape_.heads, Width()),
        Input(*backward_, kOutputGradient, shape_.heads, Width()), statistics_in,
        fe::graph::SDPA_backward_attributes()
            .set_name("attention")
            .set_causal_mask(true)
            .set_attn_scale(Scale())
            .set_deterministic_algorithm(deterministic_));
    Output(query, kQueryGradient, shape_.heads, shape_.row());
    Output(key, kKeyGradient, shape_.key_value_heads, shape_.row());
    Output(value, kValueGradient, shape_.key_value_heads, shape_.row());
    return Finish(*backward_, backward_workspace_);
  }

  int64_t workspace_bytes() const override {
    return std::max(forward_workspace_, backward_workspace_);
  }

  absl::Status Forward(cudaStream_t stream, const Bf16* qkv, Bf16* y, float* statistics,
                       void* workspace) override {
    auto* base = const_cast<Bf16*>(qkv);
    return Run(*forward_, stream,
               {{kQuery, base},
                {kKey, base + Keys()},
                {kValue, base + Values()},
                {kOutput, y},
                {kStatistics, statistics}},
               workspace);
  }

  absl::Status Backward(cudaStream_t stream, const Bf16* qkv, const Bf16* y,
                        const float* statistics, const Bf16* dy, Bf16* dqkv,
                        void* workspace) override {
    auto* base = const_cast<Bf16*>(qkv);
    return Run(*backward_, stream,
               {{kQuery, base},
                {kKey, base + Keys()},
                {kValue, base + Values()},
                {kOutput, const_cast<Bf16*>(y)},
                {kOutputGradient, const_cast<Bf16*>(dy)},
                {kStatistics, const_cast<float*>(statistics)},
                {kQueryGradient, dqkv},
                {kKeyGradient, dqkv + Keys()},
                {kValueGradient, dqkv + Values()}},
               workspace);
  }

 private:
  int64_t Width() const { return shape_.heads * shape_.head_size; }
  int64_t Keys() const { return Width(); }
  int64_t Values() const { return Width() + shape_.key_value_heads * shape_.head_size; }
  float Scale() const { return 1 / std::sqrt(static_cast<float>(shape_.head_size)); }

  static std::shared_ptr<fe::graph::Graph> MakeGraph(const std::string& name) {
    auto graph = std::make_shared<fe::graph::Graph>();
    graph->set_name(name)
        .set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    return graph;
  }

  // Heads that lie side by side in rows of `row` values.
  std::vector<int64_t> Dimensions(int64_t heads) const {
    return {shape_.sequences, heads, shape_.sequence, shape_.head_size};
  }
  std::vector<int64_t> Strides(int64_t row) const {
    return {shape_.sequence * row, shape_.head_size, row, 1};
  }
  Tensor Input(fe::graph::Graph& graph, TensorId id, int64_t heads, int64_t row) const {
    return graph.tensor(fe::graph::Tensor_attributes()
                            .set_uid(id)
                            .set_dim(Dimensions(heads))
                            .set_stride(Strides(row)));
  }
  void Output(const Tensor& tensor, TensorId id, int64_t heads, int64_t row) const {
    tensor->set_output(true).set_uid(id).set_dim(Dimensions(heads)).set_stride(Strides(row));
  }

  absl::Status Finish(fe::graph::Graph& graph, int64_t& workspace) {
    fe::error_t error = graph.build(handle_, {fe::HeurMode_t::A});
    if (!error.is_good()) {
      return absl::UnimplementedError(fmt::format(
          "cuDNN has no attention for {} sequences of {}, {} heads of {} channels, {} of them with "
          "keys: {}",
          shape_.sequences, shape_.sequence, shape_.heads, shape_.head_size, shape_.key_value_heads,
          error.get_message()));
    }
    return FrontendStatus(graph.get_workspace_size(workspace), "cuDNN's workspace");
  }

  absl::Status Run(fe::graph::Graph& graph, cudaStream_t stream,
                   std::unordered_map<int64_t, void*> tensors, void* workspace) {
    if (stream != stream_) {
      if (fe::detail::set_stream(handle_, stream) != CUDNN_STATUS_SUCCESS) {
        return absl::InternalError("cudnnSetStream failed");
      }
      stream_ = stream;
    }
    return FrontendStatus(graph.execute(handle_, tensors, workspace), "cuDNN's attention");
  }

  AttentionShape shape_;
  bool deterministic_;
  cudnnHandle_t handle_;
  cudaStream_t stream_ = nullptr;
  std::shared_ptr<fe::graph::Graph> forward_, backward_;
  int64_t forward_workspace_ = 0, backward_workspace_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Attention>> MakeCudnnAttention(const AttentionShape& shape,
                                                              bool deterministic) {
  // The frontend throws where a library lacks what it looks for.
  try {
    const absl::StatusOr<cudnnHandle_t> handle = MakeHandle();
    if (!handle.ok()) {
      return handle.status();
    }
    auto attention = std::make_unique<CudnnAttention>(shape, deterministic, *handle);
    if (absl::Status status = attention->Build(); !status.ok()) {
      return status;
    }
    return attention;
  } catch (const std::exception& error) {
    return absl::UnimplementedError(fmt::format("cuDNN's attention: {}", error.what()));
  }
}

}  // namespace muster::worker
