#include "extender/filter_table.h"

namespace muster::extender {

void FilterTable::Apply(const std::vector<Change>& changes) {
  for (const auto& [uid, answer] : changes) {
    std::shared_ptr<const coscheduling::FilterAnswer> next;
    if (answer) next = std::make_shared<const coscheduling::FilterAnswer>(*answer);
    Shard& shard = ShardOf(uid);
    std::lock_guard lock(shard.mutex);
    if (!next) {
      shard.answers.erase(uid);
    } else {
      // The old answer is freed after the lock, with `next`.
      std::swap(shard.answers[uid], next);
    }
  }
}

std::shared_ptr<const coscheduling::FilterAnswer> FilterTable::Find(
    std::string_view pod_uid) const {
  const Shard& shard = ShardOf(pod_uid);
  std::lock_guard lock(shard.mutex);
  const auto found = shard.answers.find(pod_uid);
  return found == shard.answers.end() ? nullptr : found->second;
}

size_t FilterTable::size() const {
  size_t total = 0;
  for (const Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    total += shard.answers.size();
  }
  return total;
}

}  // namespace muster::extender
