#include "worker/program/engine_choice.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/preflight/checks.h"
#include "worker/training/cpu_engine.h"

namespace muster::worker {

absl::Status CheckEngine(const EngineConfig& config, int gpus_expected) {
  if (config.name != "auto" || UsableGpus() > 0) return absl::OkStatus();
  const std::optional<std::string> asked = GpusAskedFor(*ThisMachine(), gpus_expected);
  if (!asked.has_value()) return absl::OkStatus();
  // These words are a row of diagnose's table.
  return absl::FailedPreconditionError(absl::StrCat(
      "the GPU engine can't be used, and CPUs were not asked for: ", *asked, ", but ", WhyNoGpu()));
}

absl::StatusOr<bool> GpuIsMeant(const EngineConfig& config, Communicator& communicator,
                                absl::Duration timeout) {
  if (config.name != "auto") return config.name == "gpu";
  const bool has_one = UsesGpu(config);
  absl::StatusOr<bool> any = AgreeOnAny(communicator, has_one, timeout);
  if (!any.ok() || !*any) return any;
  absl::Status result =
      has_one ? absl::OkStatus()
              : absl::NotFoundError(
                    "no GPU here, though other ranks have one: give all pods GPUs, or set engine "
                    "to cpu");
  const absl::Status status = AgreeOnResult(communicator, result, timeout);
  if (!status.ok() || !result.ok()) return status.ok() ? result : status;
  return true;
}

bool UsesGpu(const EngineConfig& config) {
  return config.name == "gpu" || (config.name == "auto" && UsableGpus() > 0);
}

std::map<std::string, std::string> VersionsOf(const EngineConfig& config,
                                              const std::string& version) {
  std::map<std::string, std::string> versions;
  if (UsesGpu(config)) versions = GpuVersions();
  versions.emplace("worker", version);
  return versions;
}

absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(const EngineConfig& config,
                                                   const TrainPlan& plan,
                                                   Communicator& communicator) {
  absl::Status result = CheckEngine(config);
  const absl::Status status = AgreeOnResult(communicator, result, plan.training.timeout);
  if (!status.ok() || !result.ok()) return status.ok() ? result : status;
  const absl::StatusOr<bool> gpu = GpuIsMeant(config, communicator, plan.training.timeout);
  if (!gpu.ok()) return gpu.status();
  if (*gpu) return MakeGpuEngine(config, plan, communicator);
  if (plan.precision != Precision::kBf16) {
    return OnlyOnGpus("precision", PrecisionName(plan.precision));
  }
  if (plan.gradient_reduction != GradientReduction::kFp32) {
    return OnlyOnGpus("gradient-reduction", GradientReductionName(plan.gradient_reduction));
  }
  absl::StatusOr<std::unique_ptr<CpuEngine>> engine =
      CpuEngine::Create({.model = plan.model,
                         .optimizer = plan.optimizer,
                         .sharding = plan.sharding.value_or(Sharding::kDataParallel),
                         .sequences = plan.training.micro_batch,
                         .sequence = plan.training.sequence,
                         .timeout = plan.training.timeout},
                        communicator);
  if (!engine.ok()) return engine.status();
  return std::unique_ptr<Engine>(*std::move(engine));
}

}  // namespace muster::worker
