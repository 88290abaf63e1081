// Which rank the others wait for, by what PyTorch's watchdogs and barriers write.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace muster::worker {

// How far ranks had come with the collectives of their process groups when their watchdogs spoke,
// and what a barrier says of those who didn't come. Bounded.
class CollectiveProgress {
 public:
  // Reads "[PG ID 1 PG GUID 1 Rank 0] ... last enqueued work: 7755, last completed work: 7752", and
  // "Ranks 1, 3 failed to pass monitoredBarrier"; other lines say nothing.
  void Read(std::string_view line);

  void Merge(const CollectiveProgress& other);

  struct Behind {
    std::vector<int> ranks;  // at most kMaxNamed; empty if nobody is known to be
    std::string detail;      // half a sentence
  };

  // Those that had enqueued fewer operations than the others of their group.
  Behind Stragglers() const;

  static constexpr size_t kMaxNamed = 8;

 private:
  std::map<std::string, std::map<int, int64_t>> enqueued_;  // by group, by rank
  std::set<int> missed_;                                    // a barrier
  size_t size_ = 0;
};

}  // namespace muster::worker
