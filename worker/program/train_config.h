// What `muster-worker train` can be told besides its place in a job (job.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/checkpoint/hugging_face_config.h"
#include "worker/model/model_config.h"
#include "worker/model/optimizer.h"
#include "worker/program/all_reduce_check.h"
#include "worker/program/settings.h"
#include "worker/training/precision.h"
#include "worker/training/sharding.h"
#include "worker/training/trainer.h"

namespace muster::worker {

// A model by name, and what differs from it.
struct ModelChoice {
  std::optional<std::string> name;  // default: what the weights or the checkpoint say; or gpt2
  std::optional<int> layers, width, heads, key_value_heads, feed_forward, vocabulary, context;
};

// What trains, and how.
struct EngineConfig {
  std::string name = "auto";  // gpu, cpu, or the GPU where there are some
  // The GPU engine's:
  std::string precision = "bf16";
  std::string attention = "cudnn";  // or plain
  std::string gradient_reduction = "fp32";
  bool recompute = false;
  bool deterministic = false;
  std::string plan_cache;
};

// What all ranks must have alike.
struct TrainConfig {
  EngineConfig engine;
  ModelChoice model;
  std::optional<std::string> weights;  // Hugging Face's, to start from
  std::vector<std::string> data;       // token files
  std::vector<std::string> validation_data;
  std::optional<int> sequence;              // tokens; default: the model's context
  std::optional<int> validation_sequences;  // default: as many as a step's
  std::optional<std::string> sharding;      // default: the first that fits
  bool check_all_reduce = true;             // between GPUs, before training
  AllReduceConfig all_reduce;
  TrainingConfig training = {.steps = 1000,
                             .sequences_per_step = 8,
                             .checkpoint_every = 100};  // those two come from above
  OptimizerConfig optimizer;                            // its total_steps are training.steps
};

// What may differ from pod to pod.
struct NodeConfig {
  int gpus = 0;               // that this pod must have; 0: none are looked at
  int efa_devices = 0;        // likewise
  std::string instance_type;  // empty: as EC2 tells it
  std::optional<absl::Duration> grace_period;
  int64_t checkpoint_speed =
      0;  // bytes per second that the volume takes from one pod; 0: not known
  std::optional<std::string> events;  // JSON lines, by rank 0
  int metrics_port = 0;               // of rank 0's Prometheus endpoint; 0: none
  double peak_flops = 0;              // of all ranks, for MFU; 0: as the engine knows it
};

void AddModelSettings(Settings& settings, ModelChoice& model);
void AddEngineSettings(Settings& settings, EngineConfig& engine);
void AddTrainSettings(Settings& settings, TrainConfig& config);
void AddNodeSettings(Settings& settings, NodeConfig& config);

// The sizes meant. NotFound lists the names; InvalidArgument names the field.
absl::StatusOr<ModelConfig> ModelOf(const ModelChoice& choice);

// OK unless the choice says something else than `known`, which is what weights or a checkpoint say
// of themselves in `origin`: InvalidArgument names the first that differs.
absl::Status CheckAgainst(const ModelChoice& choice, const ModelConfig& known,
                          std::string_view origin);

// What the weights at that path are, by their config.json, to which the choice must not object; by
// the choice alone where there is none. InvalidArgument if neither says it.
absl::StatusOr<HuggingFaceConfig> ModelOfWeights(const ModelChoice& choice,
                                                 const std::string& path);

// What follows from the configuration, checked as far as it can be without other ranks; of files it
// reads the weights' config.json alone.
struct TrainPlan {
  ModelConfig model;
  std::vector<std::string> notes = {};  // what a user should know, a sentence each
  std::optional<Sharding> sharding;     // not set: the engine chooses
  Precision precision = Precision::kBf16;
  GradientReduction gradient_reduction = GradientReduction::kFp32;
  TrainingConfig training;
  OptimizerConfig optimizer;
};
// InvalidArgument: a setting that the CPU engine doesn't have.
absl::Status OnlyOnGpus(std::string_view name, std::string_view value);

// InvalidArgument for an engine or an attention that there isn't, or a precision that it hasn't.
absl::StatusOr<Precision> PrecisionOf(const EngineConfig& config);

absl::StatusOr<TrainPlan> PlanOf(const TrainConfig& config, int world_size);

}  // namespace muster::worker
