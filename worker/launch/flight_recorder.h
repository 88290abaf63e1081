// PyTorch's flight recorder (since 2.2): each rank remembers its last collectives, and writes them
// to a file when its watchdog times out, or when something comes through a pipe of its own. The
// file is a pickle, as torch/csrc/distributed/c10d/FlightRecorder.hpp makes it (versions 1.x
// and 2.x).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "worker/launch/environment.h"
#include "worker/launch/standstill.h"

namespace muster::worker {

// What one rank had done when it wrote.
struct Recording {
  struct Group {
    int64_t enqueued = 0;   // the number of the last collective of this process group
    std::string last = {};  // its name: "nccl:all_reduce"
  };
  std::map<std::string, Group> groups;
};

// Nothing if it isn't such a dump. Reads any bytes.
std::optional<Recording> ReadRecording(std::string_view dump);

// The rank that has enqueued fewer collectives of a process group than others of it; no rank and no
// detail if there is none.
Standstill WhoIsBehind(const std::map<int, Recording>& recordings);

// The recorders of a pod's ranks, in a folder of this object's own, which goes with it.
class FlightRecorders {
 public:
  // Takes the system's folder for temporary files. Where none can be made, nothing is recorded.
  FlightRecorders();
  ~FlightRecorders();
  FlightRecorders(const FlightRecorders&) = delete;
  FlightRecorders& operator=(const FlightRecorders&) = delete;

  // What makes ranks record, unless `pod` says itself how.
  Environment Variables(const Environment& pod) const;

  // Asks all ranks that listen; those that have written by `patience`.
  std::map<int, Recording> Ask(absl::Duration patience) const;

 private:
  std::string folder_;
};

}  // namespace muster::worker
