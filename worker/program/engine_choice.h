// Which engine trains: the one place that knows more than one.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/communicator/communicator.h"
#include "worker/preflight/all_reduce.h"
#include "worker/program/train_config.h"
#include "worker/training/engine.h"
#include "worker/training/sharding_choice.h"

namespace muster::worker {

// A collective; what one rank meets, all return. "auto" is the GPU's where ranks have one: NotFound
// if only some of them have, FailedPrecondition as CheckEngine. Unimplemented for "gpu" in a
// program that was built without it; InvalidArgument for what only GPUs have, such as FP8, on CPUs.
// The communicator must outlive the engine.
absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(const EngineConfig& config,
                                                   const TrainPlan& plan,
                                                   Communicator& communicator);

// OK unless "auto" would be the CPU's in a pod that asks for GPUs, as preflight's GpusAskedFor sees
// it: FailedPrecondition with what shows that, and why the GPU's can't be used.
absl::Status CheckEngine(const EngineConfig& config, int gpus_expected = 0);

// Whether MakeEngine would make the GPU's. A collective; NotFound as there.
absl::StatusOr<bool> GpuIsMeant(const EngineConfig& config, Communicator& communicator,
                                absl::Duration timeout);

// Whether this process would choose the GPU's, without asking the others.
bool UsesGpu(const EngineConfig& config);

// Of the GPU's engine, or of there being none in this program.

// GPUs that this process sees and could train on.
int UsableGpus();
// Why there are none of them.
std::string WhyNoGpu();
// "GPU-..." of this process's: the one with the number of its local rank.
std::vector<std::string> OwnGpus();
// Of the libraries that this process's GPU is used with, by name: all ranks must have the same.
std::map<std::string, std::string> GpuVersions();
// Those, if this process would choose the GPU's engine, and the program's own.
std::map<std::string, std::string> VersionsOf(const EngineConfig& config,
                                              const std::string& version);
// The sharding that such ranks would choose if all had this process's GPU. The model is planned,
// nothing of it is allocated. As MakeGpuEngine if it fits in no way, or there is no GPU.
absl::StatusOr<ShardingChoice> PreviewSharding(const EngineConfig& config, const TrainPlan& plan,
                                               int world_size);
// As MakeEngine, on that GPU.
absl::StatusOr<std::unique_ptr<Engine>> MakeGpuEngine(const EngineConfig& config,
                                                      const TrainPlan& plan,
                                                      Communicator& communicator);

// All-reduces between these GPUs (preflight/all_reduce.h). A collective; `node` are the ranks of
// this rank's node. Both must outlive it. Unimplemented as MakeGpuEngine.
absl::StatusOr<std::unique_ptr<AllReducer>> MakeGpuAllReducer(Communicator& communicator,
                                                              std::span<const int> node,
                                                              absl::Duration timeout);

}  // namespace muster::worker
