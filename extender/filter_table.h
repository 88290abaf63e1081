// What /filter answers, by pod: written by the engine's thread, read by io threads.
//
// Readers never wait for the engine: a shard's lock is held only to copy or swap one pointer.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coscheduling/engine.h"

namespace muster::extender {

class FilterTable {
 public:
  // StepOutput::filter_answers: an empty optional removes the pod.
  using Change = std::pair<std::string, std::optional<coscheduling::FilterAnswer>>;
  void Apply(const std::vector<Change>& changes);

  // Null for a pod that is unknown here.
  std::shared_ptr<const coscheduling::FilterAnswer> Find(std::string_view pod_uid) const;
  size_t size() const;

 private:
  static constexpr size_t kShards = 64;
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  struct Shard {
    mutable std::mutex mutex;
    std::unordered_map<std::string, std::shared_ptr<const coscheduling::FilterAnswer>, Hash,
                       std::equal_to<>>
        answers;
  };
  Shard& ShardOf(std::string_view uid) { return shards_[Hash()(uid) % kShards]; }
  const Shard& ShardOf(std::string_view uid) const { return shards_[Hash()(uid) % kShards]; }

  std::array<Shard, kShards> shards_;
};

}  // namespace muster::extender
