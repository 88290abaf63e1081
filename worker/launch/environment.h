// Who this pod is, among which others: what each launcher's environment means, in one form.
//
// The same names mean different things. PyTorchJob's RANK is the pod's number, torchrun's the
// process's; PyTorchJob's WORLD_SIZE counts processes only if nprocPerNode is set; TrainJob sets
// neither. What is counted here is nodes (pods) and processes per node; a WORLD_SIZE that disagrees
// with that is overruled, and a note says so.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/communicator/tcp_socket.h"

namespace muster::worker {

using Environment = std::map<std::string, std::string>;

// What the machine says of itself.
struct Host {
  // Fully qualified if it can be, "train-workers-0-1.train.default.svc.cluster.local".
  std::string name;
  int devices = 0;  // visible GPUs; 0: ranks compute on the CPU
};

// What flags or the configuration file say; they win over the environment.
struct LaunchOverrides {
  std::optional<int> nodes;
  std::optional<int> node_rank;
  std::optional<int> processes_per_node;
  std::optional<std::string> master_address;
  std::optional<int> master_port;
};

struct LaunchPlan {
  std::string source;  // whose environment it is, for messages: "TrainJob", "torchrun", ...
  int nodes = 1;
  int node_rank = 0;
  int processes_per_node = 1;
  int first_rank = 0;  // of this node
  int world_size = 1;
  // Set in a process that is a rank itself (torchrun's child, or this launcher's); not set in one
  // that has to start its ranks.
  std::optional<int> local_rank;
  Endpoint store;                  // of rank 0's rendezvous
  std::vector<std::string> notes;  // what was overruled or assumed, one sentence each
};

// InvalidArgument, with the variable and its value, for what makes no sense or is missing.
absl::StatusOr<LaunchPlan> ReadLaunch(const Environment& environment, const Host& host,
                                      const LaunchOverrides& overrides);

// The variables of one of the plan's ranks, as torchrun would set them; on top of the pod's own.
Environment RankEnvironment(const LaunchPlan& plan, int local_rank);

// This process's environment.
Environment CurrentEnvironment();

}  // namespace muster::worker
