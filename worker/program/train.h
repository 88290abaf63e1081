// `muster-worker train [--SETTING=VALUE...]`: one pod, or one rank, of a training job.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/communicator/communicator.h"
#include "worker/program/job.h"
#include "worker/program/train_config.h"

namespace muster::worker {

struct TrainSettings {
  JobConfig job;
  TrainConfig train;
  NodeConfig node;
};

// OK if all ranks have the same text, of lines that are settings; otherwise the error of the lowest
// rank that differs from rank 0, with the line. A collective.
absl::Status AgreeOnSettings(const std::string& mine, absl::Duration timeout,
                             Communicator& communicator);

// One generation's work: makes sure that all ranks were told the same and see the same checkpoints,
// resumes, and trains until the end, or until a rank is told to stop (Cancelled). `observers` are
// asked for by rank 0 only. `check_gpus` is a collective that is called before GPUs are taken.
absl::Status TrainOneGeneration(const TrainConfig& config, Communicator& communicator,
                                const std::function<absl::Status(Communicator&)>& check_gpus,
                                const std::function<std::vector<TrainingObserver*>()>& observers);

// All-reduces between the ranks' GPUs, if there are several and these train. Rank 0 writes the rows
// to `err`. A generation that has lost a rank doesn't wait for it: its survivors were checked.
absl::Status CheckGpusTogether(const TrainSettings& settings, Communicator& communicator,
                               std::ostream& err);

// What this pod must have before it meets the others, as preflight's checks see it; nothing if it
// has all. Rows that aren't ok go to `err`.
std::optional<Failure> CheckNode(const TrainSettings& settings, const LaunchPlan& plan,
                                 std::ostream& err);

// `arguments` are the program's, "train" included; all ranks must have one `version` of it. Returns
// the exit code.
int RunTrain(const std::vector<std::string>& arguments, const std::string& version,
             std::ostream& out, std::ostream& err);

}  // namespace muster::worker
