// Where a container's command starts torchrun, and with which counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lint/manifests.h"

namespace muster::lint {

// What follows --nnodes, --nproc_per_node or a timeout, as far as it is written in numbers.
struct TorchrunCall {
  int line = 0;
  // --nnodes: one number, or the bounds of "2:4". Absent, or a variable: no value.
  std::optional<int64_t> min_nodes, max_nodes;
  int nodes_line = 0;  // 0: not given
  // --nproc_per_node; "auto", "gpu", "cpu" and variables have a line but no number.
  std::optional<int64_t> processes;
  int processes_line = 0;
  // --rdzv_conf timeout=N or join_timeout=N, in seconds.
  std::optional<int64_t> rendezvous_seconds;
};

// Every call of torchrun, torch.distributed.run and torch.distributed.launch in the container's
// command and arguments; scripts given to a shell are read line by line.
std::vector<TorchrunCall> FindTorchrun(const Container& container);

}  // namespace muster::lint
