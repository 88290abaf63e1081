// All-reduces between the ranks of a job, tried and judged: part of preflight, and before training.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/communicator/communicator.h"
#include "worker/preflight/all_reduce_checks.h"
#include "worker/program/settings.h"

namespace muster::worker {

// What all ranks must have alike.
struct AllReduceConfig {
  // GB/s of bus bandwidth (preflight/bandwidth.h), instead of the instance type's.
  std::optional<double> node_bandwidth = {};
  std::optional<double> fabric_bandwidth = {};
  std::optional<std::string> bandwidths = {};  // file of instance types
  absl::Duration time = absl::Seconds(1);      // inside nodes, and again across
  absl::Duration timeout = absl::Seconds(60);  // after which ranks that don't come are at fault
};

void AddAllReduceSettings(Settings& settings, AllReduceConfig& config);
// Those that matter inside one node.
void AddNodeAllReduceSettings(Settings& settings, AllReduceConfig& config);

// InvalidArgument for a file of bandwidths that can't be read or makes no sense.
absl::StatusOr<AllReduceExpectations> ExpectationsOf(const AllReduceConfig& config);

struct AllReduceReport {
  std::vector<Row> rows = {};
  absl::Status verdict = {};  // that this rank ends with if a row failed: see StatusOf in exit.h
};

// A collective, on GPUs or else over the communicator. Rows are the same on all ranks, and all
// verdicts are errors if any is. `node` is the number of this rank's node, `host` its name, for the
// others' messages. Errors are the communicator's and NCCL's; InvalidArgument for a file that makes
// no sense.
absl::StatusOr<AllReduceReport> CheckAllReduces(const AllReduceConfig& config,
                                                const std::string& instance_type, int node,
                                                const std::string& host, bool on_gpus,
                                                Communicator& communicator);

}  // namespace muster::worker
