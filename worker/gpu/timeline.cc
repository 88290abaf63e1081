#include "worker/gpu/timeline.h"

namespace muster::worker {

Timeline::~Timeline() { Collect(); }

void Timeline::Mark(std::string_view part) {
  cudaEvent_t event = nullptr;
  cudaEventCreate(&event);
  cudaEventRecord(event, stream_);
  entries_.push_back({.part = part, .event = event});
}

std::map<std::string, double> Timeline::Collect() {
  cudaStreamSynchronize(stream_);
  std::map<std::string, double> parts;
  for (size_t i = 1; i < entries_.size(); ++i) {
    float elapsed = 0;
    cudaEventElapsedTime(&elapsed, entries_[i - 1].event, entries_[i].event);
    parts[std::string(entries_[i].part)] += elapsed;
  }
  for (const Entry& entry : entries_) {
    cudaEventDestroy(entry.event);
  }
  entries_.clear();
  return parts;
}

}  // namespace muster::worker
