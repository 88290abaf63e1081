// A world of threads in one process: for tests of what is built on communicators.
//
//   auto group = MakeLocalCommunicators(4);
//   std::vector<std::jthread> ranks;
//   for (auto& communicator : group) ranks.emplace_back([&] { Train(*communicator); });
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/communicator/communicator.h"

namespace muster::worker {

// One communicator per rank, rank 0 first; they share what they need and may die in any order. A
// communicator that is destroyed while others still run operations counts as a rank that is gone.
std::vector<std::unique_ptr<Communicator>> MakeLocalCommunicators(int world_size,
                                                                  int64_t generation = 1);

}  // namespace muster::worker
