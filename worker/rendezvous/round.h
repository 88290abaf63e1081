// What ranks tell each other when they meet.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "worker/communicator/tcp_socket.h"

namespace muster::worker {

struct Member {
  int rank = 0;
  int world_size = 1;
  std::string host;  // the pod's name: for messages
  int64_t pid = 0;
  // Where its communicator listens. An empty host means: where it reaches the store from.
  Endpoint endpoint;
  std::vector<std::string> gpu_uuids;           // no other member may have one of them
  std::map<std::string, std::string> versions;  // "nccl" -> "2.28.9"; equal on all members
  std::string blob;                             // for the others, as it is: rank 0's NCCL id
};

// One meeting of all ranks. A member that is replaced needs a new one.
struct Round {
  int64_t generation = 0;       // above that of every round that a member has been in
  uint64_t token = 0;           // random
  std::vector<Member> members;  // by rank
};

}  // namespace muster::worker
