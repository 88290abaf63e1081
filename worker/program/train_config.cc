#include "worker/program/train_config.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "fmt/format.h"

namespace muster::worker {
namespace {

// Keeps the number of parameters, times their bytes, within 64 bits.
constexpr int kMostLayers = 10'000;
constexpr int kMostWidth = 1 << 20;
constexpr int kMostRows = 1 << 22;

constexpr int kVocabularyMultiple = 128;
constexpr std::array<std::string_view, 3> kEngines = {"auto", "gpu", "cpu"};

absl::Status Outside(std::string_view name, int value, int most) {
  return absl::InvalidArgumentError(fmt::format("{}={} isn't between 1 and {}", name, value, most));
}

}  // namespace

void AddModelSettings(Settings& settings, ModelChoice& model) {
  settings.Add("model",
               "gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-3-8b, gpt2-tiny or llama-3-tiny",
               &model.name);
  settings.Add("layers", "instead of the model's", &model.layers);
  settings.Add("width", "of the residual stream, instead of the model's", &model.width);
  settings.Add("heads", "of attention, instead of the model's", &model.heads);
  settings.Add("key-value-heads", "of attention, instead of the model's", &model.key_value_heads);
  settings.Add("feed-forward", "inner width of the MLP, instead of the model's",
               &model.feed_forward);
  settings.Add("vocabulary", "tokens, instead of the model's", &model.vocabulary);
  settings.Add("context", "the longest sequence, instead of the model's", &model.context);
}

void AddTrainSettings(Settings& settings, TrainConfig& config) {
  AddModelSettings(settings, config.model);
  settings.Add("engine", "what trains: gpu, cpu, or auto, which is gpu where ranks have one",
               &config.engine.name);
  settings.Add("precision", "of a GPU's products: bf16, or fp8 from compute capability 8.9 on",
               &config.engine.precision);
  settings.Add("gradient-reduction", "of gradients on their way between GPUs: fp32 or bf16",
               &config.engine.gradient_reduction);
  settings.Add("recompute", "norms and activations in the backward: less of a GPU's memory",
               &config.engine.recompute);
  settings.Add("deterministic",
               "equal bits from equal inputs on GPUs, at some cost; in a new process with the old "
               "one's plan-cache",
               &config.engine.deterministic);
  settings.Add("plan-cache", "file that keeps a GPU's fastest products for the next start",
               &config.engine.plan_cache);
  settings.Add("weights", "Hugging Face's safetensors to start from: a file or a directory",
               &config.weights);
  settings.Add("data", "token files to train on, as `convert` writes them", &config.data);
  settings.Add("validation-data", "token files for the validation loss", &config.validation_data);
  settings.Add("steps", "how many to train", &config.training.steps);
  settings.Add("batch", "sequences of a step, of all ranks together",
               &config.training.sequences_per_step);
  settings.Add("micro-batch", "sequences that a rank computes at a time",
               &config.training.micro_batch);
  settings.Add("sequence", "tokens of a sequence; default: the model's context", &config.sequence);
  settings.Add("seed", "of the first parameters and of the data's order", &config.training.seed);
  settings.Add("learning-rate", "at its highest", &config.optimizer.learning_rate);
  settings.Add("min-learning-rate", "at the last step", &config.optimizer.min_learning_rate);
  settings.Add("warmup-steps", "until the learning rate is at its highest",
               &config.optimizer.warmup_steps);
  settings.Add("beta1", "of AdamW", &config.optimizer.beta1);
  settings.Add("beta2", "of AdamW", &config.optimizer.beta2);
  settings.Add("epsilon", "of AdamW", &config.optimizer.epsilon);
  settings.Add("weight-decay", "of matrices and embeddings", &config.optimizer.weight_decay);
  settings.Add("clip-norm", "largest global norm of the gradient; 0: no clipping",
               &config.optimizer.clip_norm);
  settings.Add("sharding",
               "what ranks share out: ddp (nothing), zero1 or zero3; default: the first of them "
               "that fits the GPUs' memory, or ddp on CPUs",
               &config.sharding);
  settings.Add("checkpoints", "directory that all ranks share; empty: no checkpoints",
               &config.training.checkpoint_directory);
  settings.Add("checkpoint-every", "steps; 0: only at the end", &config.training.checkpoint_every);
  settings.Add("keep-checkpoints", "how many", &config.training.keep_checkpoints);
  settings.Add("report-every", "steps between two lines of progress",
               &config.training.report_every);
  settings.Add("validate-every", "steps; 0: never", &config.training.validate_every);
  settings.Add("validation-sequences", "of all ranks together",
               &config.training.validation_sequences);
  settings.Add("collective-timeout", "after which ranks that don't come are at fault",
               &config.training.timeout);
  settings.Add("all-reduce", "check all-reduces between GPUs before training",
               &config.check_all_reduce);
  AddAllReduceSettings(settings, config.all_reduce);
}

void AddNodeSettings(Settings& settings, NodeConfig& config) {
  settings.Add("gpus", "that this pod must have; 0: none are looked at", &config.gpus);
  settings.Add("efa-devices", "that this pod must have", &config.efa_devices);
  settings.Add("instance-type", "of this pod's node; default: MUSTER_INSTANCE_TYPE, or EC2's",
               &config.instance_type);
  settings.Add("grace-period", "the pod's terminationGracePeriodSeconds, as a time",
               &config.grace_period);
  settings.Add("checkpoint-speed", "bytes per second that the volume takes from this pod",
               &config.checkpoint_speed);
  settings.Add("events", "file for JSON lines, written by rank 0", &config.events);
  settings.Add("metrics-port", "of rank 0's Prometheus endpoint; 0: none", &config.metrics_port);
  settings.Add(
      "peak-flops",
      "FLOP/s of all ranks together, for the MFU in lines of progress; default: their GPUs'",
      &config.peak_flops);
}

absl::Status OnlyOnGpus(std::string_view name, std::string_view value) {
  return absl::InvalidArgumentError(
      fmt::format("{}={}: the CPU engine computes and communicates in fp32 only; leave {} out, or "
                  "train on GPUs",
                  name, value, name));
}

absl::StatusOr<ModelConfig> ModelOf(const ModelChoice& choice) {
  absl::StatusOr<ModelConfig> model = NamedModel(choice.name);
  if (!model.ok()) return model;
  const auto apply = [](std::string_view name, std::optional<int> value, int most, int& field) {
    if (!value.has_value()) return absl::OkStatus();
    if (*value < 1 || *value > most) return Outside(name, *value, most);
    field = *value;
    return absl::OkStatus();
  };
  for (const absl::Status& status :
       {apply("layers", choice.layers, kMostLayers, model->layers),
        apply("width", choice.width, kMostWidth, model->width),
        apply("heads", choice.heads, kMostWidth, model->heads),
        apply("key-value-heads", choice.key_value_heads, kMostWidth, model->key_value_heads),
        apply("feed-forward", choice.feed_forward, kMostRows, model->feed_forward),
        apply("vocabulary", choice.vocabulary, kMostRows, model->vocabulary),
        apply("context", choice.context, kMostRows, model->context)}) {
    if (!status.ok()) return status;
  }
  const bool gpt2 = model->family == Family::kGpt2;
  if (gpt2 && !choice.key_value_heads.has_value()) model->key_value_heads = model->heads;
  if (gpt2 && !choice.feed_forward.has_value()) model->feed_forward = 4 * model->width;
  if (choice.vocabulary.has_value()) {
    model->padded_vocabulary =
        (model->vocabulary + kVocabularyMultiple - 1) / kVocabularyMultiple * kVocabularyMultiple;
  }
  if (absl::Status status = Validate(*model); !status.ok()) return status;
  return model;
}

absl::StatusOr<TrainPlan> PlanOf(const TrainConfig& config, int world_size) {
  absl::StatusOr<ModelConfig> model = ModelOf(config.model);
  if (!model.ok()) return model.status();
  if (!std::ranges::count(kEngines, config.engine.name)) {
    return absl::InvalidArgumentError(
        fmt::format("engine={} is none of auto, gpu and cpu", config.engine.name));
  }
  const absl::StatusOr<Precision> precision = ParsePrecision(config.engine.precision);
  if (!precision.ok()) return precision.status();
  if (*precision != Precision::kBf16 && config.engine.name == "cpu") {
    return OnlyOnGpus("precision", config.engine.precision);
  }
  const absl::StatusOr<GradientReduction> reduction =
      ParseGradientReduction(config.engine.gradient_reduction);
  if (!reduction.ok()) return reduction.status();
  if (*reduction != GradientReduction::kFp32 && config.engine.name == "cpu") {
    return OnlyOnGpus("gradient-reduction", config.engine.gradient_reduction);
  }
  TrainPlan plan = {.model = *model,
                    .sharding = std::nullopt,
                    .precision = *precision,
                    .gradient_reduction = *reduction,
                    .training = config.training,
                    .optimizer = config.optimizer};
  if (config.sharding.has_value()) {
    const absl::StatusOr<Sharding> sharding = ParseSharding(*config.sharding);
    if (!sharding.ok()) return sharding.status();
    plan.sharding = *sharding;
  }
  plan.training.sequence = config.sequence.value_or(plan.model.context);
  plan.optimizer.total_steps = plan.training.steps;
  if (config.data.empty()) {
    return absl::InvalidArgumentError(
        "no data to train on: set data to token files; `muster-worker convert` makes them");
  }
  if (config.validation_data.empty() != (plan.training.validate_every <= 0)) {
    return absl::InvalidArgumentError(
        "validation-data and validate-every go together: set both, or neither");
  }
  if (plan.training.keep_checkpoints < 1) {
    return absl::InvalidArgumentError(
        fmt::format("keep-checkpoints={} is below 1", plan.training.keep_checkpoints));
  }
  if (plan.training.sequence < 1 || plan.training.sequence > plan.model.context) {
    return absl::InvalidArgumentError(fmt::format("sequence={} isn't between 1 and the context, {}",
                                                  plan.training.sequence, plan.model.context));
  }
  if (absl::Status status = Validate(plan.optimizer); !status.ok()) return status;
  if (absl::Status status = Validate(plan.training, world_size); !status.ok()) return status;
  return plan;
}

}  // namespace muster::worker
