// Where a container's command starts torchrun, and with which counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lint/manifests.h"

namespace muster::lint {

// What follows --nnodes, --nproc_per_node or a timeout, as far as it is written in numbers.
struct TorchrunCall {
  int line = 0;
  // --nnodes: one number, or the bounds of "2:4". Absent, or a variable: no value.
  std::optional<int64_t> min_nodes, max_nodes;
  int nodes_line = 0;  // 0: not given
  std::string_view nodes_said = "torchrun --nnodes", processes_said = "--nproc_per_node is";
  // --nproc_per_node; "auto", "gpu", "cpu" and variables have a line but no number.
  std::optional<int64_t> processes;
  int processes_line = 0;
  // --rdzv_conf timeout=N or join_timeout=N, in seconds.
  std::optional<int64_t> rendezvous_seconds;
};

// mpirun's or mpiexec's counts; line 0: not given, or a variable.
struct MpirunCall {
  LocatedCount processes;   // -np, -n
  LocatedCount per_node;    // -N, --npernode, --map-by ppr:8:node
  LocatedCount host_slots;  // the sum of -H's: "a:8,b:8"
};

// Every call of mpirun and mpiexec in the container's command and arguments.
std::vector<MpirunCall> FindMpirun(const Container& container);

// Every call of torchrun, torch.distributed.run and torch.distributed.launch, and of accelerate and
// deepspeed, whose options are taken for torchrun's, in the container's command and arguments;
// scripts given to a shell are read line by line.
std::vector<TorchrunCall> FindTorchrun(const Container& container);

}  // namespace muster::lint
