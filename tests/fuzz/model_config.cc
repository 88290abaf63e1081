// Models' config.json, as the worker reads it beside weights.
#include "tests/fuzz/fuzz.h"
#include "worker/checkpoint/hugging_face_config.h"

MUSTER_FUZZ_TARGET(std::string_view input) {
  using namespace muster::fuzz;
  using namespace muster::worker;
  const auto config = ParseHuggingFaceConfig(input, "config.json");
  if (!config.ok()) {
    RequireSayable(MessageOf(config.status()));
    Require(MessageOf(config.status()).starts_with("config.json: "), "an error names its file");
    return;
  }
  for (const std::string& note : config->notes) RequireSayable(note);
  Require(Validate(config->model).ok(), "what is read makes sense");
  const auto again =
      ParseHuggingFaceConfig(HuggingFaceConfigText(config->model, "float32"), "config.json");
  Require(again.ok() && again->model == config->model, "what is written reads back the same");
  Require(again->notes.empty(), "what is written leaves nothing out");
}
