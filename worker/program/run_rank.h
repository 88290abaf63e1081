// One rank's life: meet the others, work, and when one of them is lost, meet again.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/communicator/communicator.h"
#include "worker/rendezvous/job_secret.h"
#include "worker/rendezvous/round_book.h"

namespace muster::worker {

struct RankOptions {
  int rank = 0;
  int world_size = 1;
  Endpoint store = {};    // rank 0 serves it
  std::string host_name;  // for the others' messages
  std::vector<std::string> gpu_uuids;
  std::map<std::string, std::string> versions;
  JobSecret secret = {};
  absl::Duration meet_timeout = absl::Minutes(10);  // at the start
  // For a lost rank's replacement; zero: the job ends instead.
  absl::Duration replace_timeout = absl::Minutes(10);
  absl::Duration connect_timeout = absl::Seconds(20);  // of a round's members with each other
  HeartbeatOptions heartbeat = {};
  // What a user should read while the job goes on: who was lost, which generation came.
  // Called by two threads.
  std::function<void(absl::string_view)> say = nullptr;
  // Ends the waiting for others with Cancelled; the body has to look for itself.
  std::function<bool()> stop_requested = nullptr;
};

// Works with this generation's communicator until the job is done (OK), was told to stop
// (Cancelled), or can't go on. It starts from what all ranks have committed, and drops everything
// else that it had: the ranks of this generation may be other processes than before. When a rank is
// lost the communicator is aborted, and the body returns its error.
using RankBody = std::function<absl::Status(Communicator&)>;

// Calls `body` once per generation. A communicator that ended with Unavailable or DeadlineExceeded
// and names ranks (RanksAtFault) has lost them: all meet again, if replace_timeout allows. Anything
// else that the body returns is returned, and is the end of every rank. A world of one rank meets
// nobody.
absl::Status RunRank(const RankOptions& options, const RankBody& body);

}  // namespace muster::worker
