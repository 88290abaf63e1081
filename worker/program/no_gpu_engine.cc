// A program that is built without CUDA.
#include "worker/program/engine_choice.h"

namespace muster::worker {

int UsableGpus() { return 0; }

std::string WhyNoGpu() { return "this muster-worker was built without the GPU engine"; }

std::vector<std::string> OwnGpus() { return {}; }

std::map<std::string, std::string> GpuVersions() { return {}; }

namespace {

absl::Status NoGpuEngine() {
  return absl::UnimplementedError(
      "engine=gpu: this muster-worker was built without the GPU engine; use an image that has it, "
      "or set engine to cpu");
}

}  // namespace

absl::StatusOr<ShardingChoice> PreviewSharding(const EngineConfig& /*config*/,
                                               const TrainPlan& /*plan*/, int /*world_size*/) {
  return NoGpuEngine();
}

absl::StatusOr<std::unique_ptr<Engine>> MakeGpuEngine(const EngineConfig& /*config*/,
                                                      const TrainPlan& /*plan*/,
                                                      Communicator& /*communicator*/) {
  return NoGpuEngine();
}

absl::StatusOr<std::unique_ptr<AllReducer>> MakeGpuAllReducer(Communicator& /*communicator*/,
                                                              std::span<const int> /*node*/,
                                                              absl::Duration /*timeout*/) {
  return NoGpuEngine();
}

}  // namespace muster::worker
