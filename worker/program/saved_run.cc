#include "worker/program/saved_run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/checkpoint/hugging_face_config.h"
#include "worker/model/parameter_layout.h"

namespace muster::worker {
namespace {

absl::StatusOr<ModelConfig> ModelOfCheckpoint(const CheckpointInfo& info, const std::string& path,
                                              const ModelChoice& choice) {
  if (info.config.empty()) return ModelOf(choice);
  const absl::StatusOr<HuggingFaceConfig> said = ParseHuggingFaceConfig(info.config, path);
  if (!said.ok()) return said.status();
  const absl::Status status = CheckAgainst(choice, said->model, path);
  return status.ok() ? absl::StatusOr<ModelConfig>(said->model) : status;
}

}  // namespace

absl::StatusOr<SavedRun> OpenSavedRun(const std::string& directory, std::optional<int64_t> step,
                                      const ModelChoice& choice) {
  const absl::StatusOr<std::vector<int64_t>> steps = CommittedSteps(directory);
  if (!steps.ok()) return steps.status();
  if (steps->empty()) {
    return absl::NotFoundError(absl::StrCat(directory, ": holds no committed checkpoint"));
  }
  if (step.has_value() && std::ranges::find(*steps, *step) == steps->end()) {
    return absl::NotFoundError(absl::StrCat(directory, ": holds no checkpoint of step ", *step,
                                            "; the last one is of step ", steps->back()));
  }
  absl::StatusOr<CheckpointReader> reader =
      CheckpointReader::Open(directory, step.value_or(steps->back()));
  if (!reader.ok()) return reader.status();
  const std::string path = CheckpointPath(directory, reader->info().step);
  const absl::StatusOr<ModelConfig> model = ModelOfCheckpoint(reader->info(), path, choice);
  if (!model.ok()) return model.status();
  const int64_t parameters = ParameterLayout(*model).size();
  if (reader->info().parameters != parameters) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": has ", reader->info().parameters, " parameters (", reader->info().identity,
        "), the model ", choice.name.value_or("that is meant"), " has ", parameters,
        ": set model, and what differs from it"));
  }
  return SavedRun{.model = *model, .reader = *std::move(reader)};
}

}  // namespace muster::worker
