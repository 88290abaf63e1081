#include "worker/program/train_config.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "fmt/format.h"

namespace muster::worker {
namespace {

constexpr std::array<std::string_view, 3> kEngines = {"auto", "gpu", "cpu"};

// The sizes that can be set, by their settings' names.
struct Size {
  std::string_view name;
  std::optional<int> ModelChoice::* chosen;
  int ModelConfig::* meant;
  int most;
};
constexpr std::array<Size, 7> kSizes = {{
    {"layers", &ModelChoice::layers, &ModelConfig::layers, kMostLayers},
    {"width", &ModelChoice::width, &ModelConfig::width, kMostWidth},
    {"heads", &ModelChoice::heads, &ModelConfig::heads, kMostWidth},
    {"key-value-heads", &ModelChoice::key_value_heads, &ModelConfig::key_value_heads, kMostWidth},
    {"feed-forward", &ModelChoice::feed_forward, &ModelConfig::feed_forward, kMostRows},
    {"vocabulary", &ModelChoice::vocabulary, &ModelConfig::vocabulary, kMostRows},
    {"context", &ModelChoice::context, &ModelConfig::context, kMostRows},
}};

constexpr std::string_view kDefaultModel = "gpt2";

// What differs between two models that no size tells; empty if nothing does.
std::string DifferenceBeyondSizes(const ModelConfig& a, const ModelConfig& b) {
  if (a.family != b.family) {
    return fmt::format("family {} and {}", FamilyName(a.family), FamilyName(b.family));
  }
  if (a.tied_head != b.tied_head) {
    return fmt::format("a tied head: {} and {}", a.tied_head, b.tied_head);
  }
  if (a.norm_epsilon != b.norm_epsilon) {
    return fmt::format("the norms' epsilon {} and {}", a.norm_epsilon, b.norm_epsilon);
  }
  if (a.family == Family::kGpt2) return "";
  if (a.rope_theta != b.rope_theta) {
    return fmt::format("rope_theta {} and {}", a.rope_theta, b.rope_theta);
  }
  if (a.rope_scaling != b.rope_scaling) {
    return fmt::format("rope_scaling's factor {} and {}, or what goes with it",
                       a.rope_scaling.factor, b.rope_scaling.factor);
  }
  return "";
}

absl::Status Outside(std::string_view name, int value, int most) {
  return absl::InvalidArgumentError(fmt::format("{}={} isn't between 1 and {}", name, value, most));
}

}  // namespace

void AddModelSettings(Settings& settings, ModelChoice& model) {
  settings.Add("model",
               ModelNames() +
                   "; default: what the weights' config.json or the checkpoint says, or "
                   "gpt2",
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

void AddEngineSettings(Settings& settings, EngineConfig& engine) {
  settings.Add("engine", "what computes: gpu, cpu, or auto, which is gpu where ranks have one",
               &engine.name);
  settings.Add("precision", "of a GPU's products: bf16, or fp8 from compute capability 8.9 on",
               &engine.precision);
  settings.Add("attention",
               "of a GPU: cudnn, or plain, which needs no cuDNN and is many times slower",
               &engine.attention);
  settings.Add("plan-cache", "file that keeps a GPU's fastest products for the next start",
               &engine.plan_cache);
}

void AddTrainSettings(Settings& settings, TrainConfig& config) {
  AddModelSettings(settings, config.model);
  AddEngineSettings(settings, config.engine);
  settings.Add("gradient-reduction", "of gradients on their way between GPUs: fp32 or bf16",
               &config.engine.gradient_reduction);
  settings.Add("recompute", "norms and activations in the backward: less of a GPU's memory",
               &config.engine.recompute);
  settings.Add("deterministic",
               "equal bits from equal inputs on GPUs, at some cost; in a new process with the old "
               "one's plan-cache",
               &config.engine.deterministic);
  settings.Add("weights",
               "Hugging Face's safetensors to start from, with their config.json: a directory, or "
               "a file in one",
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
  settings.Add("resume-anyway", "also from a checkpoint of another seed, batch, sequence or data",
               &config.training.resume_anyway);
  settings.Add("most-skipped-steps",
               "in a row, because their loss or gradient is no number, before that ends the job",
               &config.training.most_skipped_steps);
  settings.Add("report-every", "steps between two lines of progress",
               &config.training.report_every);
  settings.Add("validate-every", "steps; 0: never", &config.training.validate_every);
  settings.Add("validation-sequences", "of all ranks together; default: as many as a step takes",
               &config.validation_sequences);
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
  absl::StatusOr<ModelConfig> model = NamedModel(choice.name.value_or(std::string(kDefaultModel)));
  if (!model.ok()) return model;
  for (const Size& size : kSizes) {
    const std::optional<int>& value = choice.*size.chosen;
    if (!value.has_value()) continue;
    if (*value < 1 || *value > size.most) return Outside(size.name, *value, size.most);
    (*model).*size.meant = *value;
  }
  const bool gpt2 = model->family == Family::kGpt2;
  if (gpt2 && !choice.key_value_heads.has_value()) model->key_value_heads = model->heads;
  if (gpt2 && !choice.feed_forward.has_value()) model->feed_forward = 4 * model->width;
  model->padded_vocabulary = PaddedVocabulary(model->vocabulary);
  if (absl::Status status = Validate(*model); !status.ok()) return status;
  return model;
}

absl::Status CheckAgainst(const ModelChoice& choice, const ModelConfig& known,
                          std::string_view origin) {
  const auto differs = [&](std::string_view name, int set, int said) {
    return absl::InvalidArgumentError(fmt::format(
        "{}={}, but {} says {}: leave the setting out, or name others", name, set, origin, said));
  };
  for (const Size& size : kSizes) {
    const std::optional<int>& value = choice.*size.chosen;
    if (value.has_value() && *value != known.*size.meant) {
      return differs(size.name, *value, known.*size.meant);
    }
  }
  if (!choice.name.has_value()) return absl::OkStatus();
  const absl::StatusOr<ModelConfig> named = ModelOf(choice);
  if (!named.ok()) return named.status();
  for (const Size& size : kSizes) {
    if ((*named).*size.meant == known.*size.meant) continue;
    return differs(fmt::format("model={}'s {}", *choice.name, size.name), (*named).*size.meant,
                   known.*size.meant);
  }
  const std::string difference = DifferenceBeyondSizes(*named, known);
  if (difference.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("model={} and {} differ: {}; leave the setting out, or name others", *choice.name,
                  origin, difference));
}

absl::StatusOr<HuggingFaceConfig> ModelOfWeights(const ModelChoice& choice,
                                                 const std::string& path) {
  absl::StatusOr<HuggingFaceConfig> said = ReadHuggingFaceConfig(path);
  if (said.ok()) {
    const absl::Status status = CheckAgainst(choice, said->model, "the config.json of " + path);
    return status.ok() ? said : status;
  }
  if (!absl::IsNotFound(said.status())) return said.status();
  if (!choice.name.has_value()) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: there is no config.json that says what these weights are; put it there, or set model",
        path));
  }
  const absl::StatusOr<ModelConfig> model = ModelOf(choice);
  if (!model.ok()) return model.status();
  return HuggingFaceConfig{.model = *model};
}

absl::StatusOr<Precision> PrecisionOf(const EngineConfig& config) {
  if (!std::ranges::count(kEngines, config.name)) {
    return absl::InvalidArgumentError(
        fmt::format("engine={} is none of auto, gpu and cpu", config.name));
  }
  if (config.attention != "cudnn" && config.attention != "plain") {
    return absl::InvalidArgumentError(
        fmt::format("attention={} is neither cudnn nor plain", config.attention));
  }
  const absl::StatusOr<Precision> precision = ParsePrecision(config.precision);
  if (precision.ok() && *precision != Precision::kBf16 && config.name == "cpu") {
    return OnlyOnGpus("precision", config.precision);
  }
  return precision;
}

absl::StatusOr<TrainPlan> PlanOf(const TrainConfig& config, int world_size) {
  absl::StatusOr<HuggingFaceConfig> said;
  if (config.weights.has_value()) {
    said = ModelOfWeights(config.model, *config.weights);
  } else {
    const absl::StatusOr<ModelConfig> model = ModelOf(config.model);
    said = model.ok() ? absl::StatusOr<HuggingFaceConfig>(HuggingFaceConfig{.model = *model})
                      : model.status();
  }
  if (!said.ok()) return said.status();
  const absl::StatusOr<Precision> precision = PrecisionOf(config.engine);
  if (!precision.ok()) return precision.status();
  const absl::StatusOr<GradientReduction> reduction =
      ParseGradientReduction(config.engine.gradient_reduction);
  if (!reduction.ok()) return reduction.status();
  if (*reduction != GradientReduction::kFp32 && config.engine.name == "cpu") {
    return OnlyOnGpus("gradient-reduction", config.engine.gradient_reduction);
  }
  TrainPlan plan = {.model = said->model,
                    .notes = said->notes,
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
  plan.training.validation_sequences =
      config.validation_sequences.value_or(plan.training.sequences_per_step);
  plan.optimizer.total_steps = plan.training.steps;
  if (config.data.empty()) {
    return absl::InvalidArgumentError(
        "no data to train on: set data to token files; `muster-worker convert` makes them");
  }
  if (config.validation_data.empty() != (plan.training.validate_every <= 0)) {
    return absl::InvalidArgumentError(
        "validation-data and validate-every go together: set both, or neither");
  }
  if (plan.training.most_skipped_steps < 0) {
    return absl::InvalidArgumentError(
        fmt::format("most-skipped-steps={} is below 0", plan.training.most_skipped_steps));
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
