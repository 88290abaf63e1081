// What a directory of checkpoints holds, for commands that read one without training.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/model/model_config.h"
#include "worker/program/train_config.h"

namespace muster::worker {

struct SavedRun {
  ModelConfig model;
  CheckpointReader reader;
};

// Of that step, or of the last one. The model is the one that it was made with, to which the choice
// must not object; where the checkpoint doesn't say (version 0.1's), the one that is chosen, which
// must have as many parameters. NotFound if no such checkpoint is committed.
absl::StatusOr<SavedRun> OpenSavedRun(const std::string& directory, std::optional<int64_t> step,
                                      const ModelChoice& choice);

}  // namespace muster::worker
