#include <cuda_runtime.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "fmt/format.h"
#include "worker/gpu/gpu_engine.h"
#include "worker/gpu/nccl_all_reducer.h"
#include "worker/gpu/nccl_communicator.h"
#include "worker/gpu/shared_library.h"
#include "worker/launch/environment.h"
#include "worker/program/engine_choice.h"

namespace muster::worker {
namespace {

int OwnDevice() {
  // A launcher that shows each process its own GPU alone calls it 0.
  if (UsableGpus() <= 1) return 0;
  const Environment environment = CurrentEnvironment();
  const auto local_rank = environment.find("LOCAL_RANK");
  int device = 0;
  return local_rank != environment.end() && absl::SimpleAtoi(local_rank->second, &device) ? device
                                                                                          : 0;
}

GpuEngine::Options OptionsOf(const EngineConfig& config, const TrainPlan& plan) {
  return {.model = plan.model,
          .optimizer = plan.optimizer,
          .sequences = plan.training.micro_batch,
          .sequence = plan.training.sequence,
          .device = OwnDevice(),
          .sharding = plan.sharding,
          .gradient_reduction = plan.gradient_reduction,
          .communication = {.timeout = plan.training.timeout},
          .recompute = {.norms = config.recompute, .activations = config.recompute},
          .precision = plan.precision,
          .attention = config.attention == "plain" ? AttentionKind::kPlain : AttentionKind::kCudnn,
          .deterministic = config.deterministic,
          .copies_state = !plan.training.checkpoint_directory.empty(),
          .plan_cache = config.plan_cache};
}

}  // namespace

int UsableGpus() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

std::string WhyNoGpu() {
  // CUDA calls this an old driver.
  if (const auto driver = SharedLibrary::Open({"libcuda.so.1"}); !driver.ok()) {
    return fmt::format("the driver's CUDA isn't in this container ({})",
                       std::string(driver.status().message()));
  }
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  std::string why = fmt::format("CUDA finds {} of them: {}", devices, cudaGetErrorString(error));
  const Environment environment = CurrentEnvironment();
  const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
  if (visible != environment.end())
    why += fmt::format("; CUDA_VISIBLE_DEVICES={}", visible->second);
  return why;
}

std::vector<std::string> OwnGpus() {
  cudaDeviceProp properties = {};
  if (cudaGetDeviceProperties(&properties, OwnDevice()) != cudaSuccess) return {};
  // As nvidia-smi writes it: 8-4-4-4-12 hexadecimal digits.
  std::string uuid = "GPU";
  for (size_t i = 0; i < sizeof(properties.uuid.bytes); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) uuid += '-';
    uuid += fmt::format("{:02x}", static_cast<unsigned char>(properties.uuid.bytes[i]));
  }
  return {uuid};
}

std::map<std::string, std::string> GpuVersions() { return {{"nccl", NcclVersion()}}; }

absl::StatusOr<ShardingChoice> PreviewSharding(const EngineConfig& config, const TrainPlan& plan,
                                               int world_size) {
  return GpuEngine::PreviewSharding(OptionsOf(config, plan), world_size);
}

absl::StatusOr<std::unique_ptr<Engine>> MakeGpuEngine(const EngineConfig& config,
                                                      const TrainPlan& plan,
                                                      Communicator& communicator) {
  absl::StatusOr<std::unique_ptr<GpuEngine>> engine =
      GpuEngine::Create(OptionsOf(config, plan), communicator);
  if (!engine.ok()) return engine.status();
  return std::unique_ptr<Engine>(*std::move(engine));
}

absl::StatusOr<std::unique_ptr<AllReducer>> MakeGpuAllReducer(Communicator& communicator,
                                                              std::span<const int> node,
                                                              absl::Duration timeout) {
  return MakeNcclAllReducer(communicator, node, {.device = OwnDevice(), .timeout = timeout});
}

}  // namespace muster::worker
