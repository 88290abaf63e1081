// Where a step's time goes: events between its parts.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace muster::worker {

// Used by one thread, for one stream.
class Timeline {
 public:
  explicit Timeline(cudaStream_t stream) : stream_(stream) {}
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;
  ~Timeline();

  // The work put on the stream since the last mark belongs to `part`, which must stay alive.
  void Mark(std::string_view part);
  // Waits for the stream and returns the milliseconds of each part, then forgets them.
  std::map<std::string, double> Collect();

 private:
  struct Entry {
    std::string_view part;
    cudaEvent_t event;
  };
  cudaStream_t stream_;
  std::vector<Entry> entries_;
};

}  // namespace muster::worker
