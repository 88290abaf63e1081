#include <cuda_runtime.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "worker/gpu/gpu_engine.h"
#include "worker/launch/environment.h"
#include "worker/program/engine_choice.h"

namespace muster::worker {

int UsableGpus() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

absl::StatusOr<std::unique_ptr<Engine>> MakeGpuEngine(const EngineConfig& config,
                                                      const TrainPlan& plan,
                                                      Communicator& communicator) {
  int device = 0;
  const Environment environment = CurrentEnvironment();
  const auto local_rank = environment.find("LOCAL_RANK");
  // A launcher that shows each process its own GPU alone calls it 0.
  if (UsableGpus() > 1 && local_rank != environment.end() &&
      !absl::SimpleAtoi(local_rank->second, &device)) {
    device = 0;
  }
  absl::StatusOr<std::unique_ptr<GpuEngine>> engine =
      GpuEngine::Create({.model = plan.model,
                         .optimizer = plan.optimizer,
                         .sequences = plan.training.micro_batch,
                         .sequence = plan.training.sequence,
                         .device = device,
                         .sharding = plan.sharding,
                         .communication = {.timeout = plan.training.timeout},
                         .recompute = {.norms = config.recompute, .activations = config.recompute},
                         .deterministic = config.deterministic,
                         .plan_cache = config.plan_cache},
                        communicator);
  if (!engine.ok()) return engine.status();
  return std::unique_ptr<Engine>(*std::move(engine));
}

}  // namespace muster::worker
