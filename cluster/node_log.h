// In which order nodes changed, for readers that keep something about each node and come back at
// any time: each remembers how far it has read. (journal.h says what changed, to one reader, once.)
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace muster::cluster {

// Nothing is forgotten: of each node it keeps when it was noted last.
class NodeLog {
 public:
  // The node in this slot came, went, or changed.
  void Note(int slot) {
    if (newest_.size() <= static_cast<size_t>(slot)) newest_.resize(slot + 1);
    newest_[slot] = ++end_;
    if (entries_.size() >= 2 * newest_.size() + kSpare) {
      std::erase_if(entries_, [this](const Entry& entry) { return !IsNewest(entry); });
    }
    entries_.push_back({end_, slot});
  }

  // Where a reader stands that has read everything. One that has read nothing stands at 0.
  uint64_t end() const { return end_; }

  // What was noted since, each slot once, in the order in which they were noted last.
  std::vector<int> Since(uint64_t position) const {
    std::vector<int> slots;
    auto entry = std::ranges::upper_bound(entries_, position, {}, &Entry::number);
    for (; entry != entries_.end(); ++entry) {
      if (IsNewest(*entry)) slots.push_back(entry->slot);
    }
    return slots;
  }

 private:
  static constexpr size_t kSpare = 64;
  struct Entry {
    uint64_t number = 0;
    int slot = 0;
  };
  bool IsNewest(const Entry& entry) const { return newest_[entry.slot] == entry.number; }

  std::vector<Entry> entries_;    // some of slots that were noted again since
  std::vector<uint64_t> newest_;  // by slot; 0: never noted
  uint64_t end_ = 0;
};

}  // namespace muster::cluster
