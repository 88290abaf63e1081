// Ranks of a test: a thread each, in one process.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "worker/communicator/local_communicator.h"

namespace muster::worker {

// Runs `body(communicator)`, which returns a Status, on that many ranks at once; their statuses.
template <typename Body>
std::vector<absl::Status> OnRanks(int world_size, Body body) {
  const std::vector<std::unique_ptr<Communicator>> group = MakeLocalCommunicators(world_size);
  std::vector<absl::Status> statuses(group.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&, rank] { statuses[rank] = body(*group[rank]); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return statuses;
}

}  // namespace muster::worker
