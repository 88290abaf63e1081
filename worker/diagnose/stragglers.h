// Which rank the others wait for, by what PyTorch's watchdogs and barriers write.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace muster::worker {

// How far ranks had come with the collectives of their process groups when their watchdogs spoke,
// and what a barrier, or PyTorch's own analysis, says of those who didn't come. Bounded.
class CollectiveProgress {
 public:
  // Reads "[PG ID 1 PG GUID 1 Rank 0] ... last enqueued work: 7755, last completed work: 7752",
  // "Ranks 1, 3 failed to pass monitoredBarrier", "ranks [3] are the lagging ranks",
  // "[3] finished collective #7, but didn't join collective #8", and "Rank 1 is running collective:
  // ..., but Rank 3 is running ...", and Horovod's list of "Missing ranks:"; other lines say
  // nothing.
  void Read(std::string_view line);

  // This rank was seen at work after others had given up waiting.
  void WentOn(int rank) { went_on_.insert(rank); }

  void Merge(const CollectiveProgress& other);

  struct Behind {
    std::vector<int> ranks;  // at most kMaxNamed; empty if nobody is known to be
    std::string detail;      // half a sentence
  };

  // Those that had enqueued fewer operations than the others of their group.
  Behind Stragglers() const;

  // The rank whose collectives more of the others found to differ than any other's, if there is
  // one.
  std::optional<int> Odd() const;

  static constexpr size_t kMaxNamed = 8;

 private:
  bool ReadStalled(std::string_view line);

  std::map<std::string, std::map<int, int64_t>> enqueued_;  // by group, by rank
  std::set<int> missed_;                                    // a barrier
  std::set<int> stalled_;                                   // by Horovod's last report
  bool in_stalled_ = false;                                 // it is being read
  std::set<int> went_on_;
  std::map<int, std::set<int>> differ_;  // a rank, and those who found that it differs
  size_t size_ = 0;
};

}  // namespace muster::worker
