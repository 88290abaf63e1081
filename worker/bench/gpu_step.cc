// How fast the GPU engine trains: tokens per second over steps, and the time of each part of a
// step. Every step has a text of its own, in which each token follows from the one before, so that
// the loss falls evenly. Prints one JSON object.
//
//   gpu_step MODEL SEQUENCES SEQUENCE STEPS PLAN_CACHE [MICRO_BATCHES [RECOMPUTE]]
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "worker/communicator/local_communicator.h"
#include "worker/gpu/gpu_engine.h"

namespace muster::worker {
namespace {

constexpr int kWarmUp = 10;
constexpr int kMeasuredParts = 5;
constexpr uint64_t kTextSeed = 5;

struct Settings {
  std::string model;
  int sequences, sequence, steps;
  std::string plan_cache;
  int micro_batches;
  bool recompute;
};

// Micro-batch `index` of all steps'.
struct Text {
  Text(const Settings& settings, size_t index, int vocabulary) {
    for (int sequence = 0; sequence < settings.sequences; ++sequence) {
      const double start = HashedUniform(kTextSeed, index * settings.sequences + sequence);
      auto token = static_cast<int64_t>((start + 1) / 2 * vocabulary);
      for (int t = 0; t < settings.sequence; ++t) {
        tokens.push_back(static_cast<int32_t>(token));
        token = (token * 3 + 7) % vocabulary;
        targets.push_back(static_cast<int32_t>(token));
      }
    }
  }

  std::vector<int32_t> tokens, targets;
};

absl::StatusOr<nlohmann::json> Measure(const Settings& settings) {
  const absl::StatusOr<ModelConfig> model = NamedModel(settings.model);
  if (!model.ok()) return model.status();
  ModelConfig config = *model;
  config.context = std::max(config.context, settings.sequence);
  const auto group = MakeLocalCommunicators(1);
  absl::StatusOr<std::unique_ptr<GpuEngine>> engine = GpuEngine::Create(
      {.model = config,
       .optimizer = {.learning_rate = 6e-4, .warmup_steps = 100, .total_steps = 10'000},
       .sequences = settings.sequences,
       .sequence = settings.sequence,
       .recompute = {.norms = settings.recompute, .activations = settings.recompute},
       .plan_cache = settings.plan_cache},
      *group[0]);
  if (!engine.ok()) return engine.status();
  std::fprintf(stderr, "%s\n", (*engine)->memory().c_str());
  if (absl::Status status = (*engine)->Load(InitialState((*engine)->layout(), 1)); !status.ok()) {
    return status;
  }
  const int64_t rows = int64_t{settings.sequences} * settings.sequence;
  std::vector<std::vector<Text>> texts(kWarmUp + settings.steps + kMeasuredParts);
  for (size_t step = 0; step < texts.size(); ++step) {
    for (int i = 0; i < settings.micro_batches; ++i) {
      texts[step].emplace_back(settings, step * settings.micro_batches + i, config.vocabulary);
    }
  }
  int step = 0;
  std::vector<double> losses;
  const auto run = [&](int count) -> absl::StatusOr<double> {
    cudaDeviceSynchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
      std::vector<Batch> batches;
      for (const Text& text : texts[step]) {
        batches.push_back({.tokens = text.tokens, .targets = text.targets});
      }
      const absl::StatusOr<StepResult> result = (*engine)->Step(step++, batches);
      if (!result.ok()) return result.status();
      losses.push_back(result->loss);
    }
    cudaDeviceSynchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / count;
  };
  if (const auto warm = run(kWarmUp); !warm.ok()) return warm.status();
  const absl::StatusOr<double> seconds = run(settings.steps);
  if (!seconds.ok()) return seconds.status();
  (*engine)->MeasureParts(true);
  if (const auto measured = run(kMeasuredParts); !measured.ok()) return measured.status();
  const double tokens = static_cast<double>(rows) * settings.micro_batches;
  nlohmann::json parts;
  double floor = 0;
  double all = 0;
  for (const auto& [part, milliseconds] : (*engine)->Parts()) {
    parts[part] = milliseconds / kMeasuredParts;
    all += milliseconds / kMeasuredParts;
    if (part.starts_with("product") || part.starts_with("attention")) {
      floor += milliseconds / kMeasuredParts;
    }
  }
  return nlohmann::json{
      {"model", settings.model},
      {"sequences", settings.sequences},
      {"sequence", settings.sequence},
      {"micro_batches", settings.micro_batches},
      {"tokens_per_second", tokens / *seconds},
      {"step_milliseconds", *seconds * 1e3},
      {"flops_per_second", FlopsPerToken(config, settings.sequence) * tokens / *seconds},
      {"losses", losses},
      {"share_of_floor", floor / (*seconds * 1e3)},
      {"parts_sum", all},
      {"parts", parts}};
}

}  // namespace
}  // namespace muster::worker

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr,
                 "usage: gpu_step MODEL SEQUENCES SEQUENCE STEPS PLAN_CACHE [MICRO_BATCHES "
                 "[RECOMPUTE]]\n");
    return 2;
  }
  const auto measured = muster::worker::Measure({.model = argv[1],
                                                 .sequences = std::atoi(argv[2]),
                                                 .sequence = std::atoi(argv[3]),
                                                 .steps = std::atoi(argv[4]),
                                                 .plan_cache = argv[5],
                                                 .micro_batches = argc > 6 ? std::atoi(argv[6]) : 1,
                                                 .recompute = argc > 7 && argv[7][0] == '1'});
  if (!measured.ok()) {
    std::fprintf(stderr, "%s\n", measured.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n", measured->dump(1).c_str());
  return 0;
}
