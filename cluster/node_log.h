// In which order nodes changed, for readers that keep something about each node and come back at
// any time: each remembers how far it has read. (journal.h says what changed, to one reader, once.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace muster::cluster {

class NodeLog {
 public:
  // The node in this slot came, went, or changed in what a predicate reads.
  void Note(int slot) {
    if (entries_.size() >= kMost) {
      dropped_ += kMost / 2;
      entries_.erase(entries_.begin(), entries_.begin() + kMost / 2);
    }
    entries_.push_back(slot);
  }

  // Where a reader stands that has read everything.
  uint64_t end() const { return dropped_ + entries_.size(); }

  // What was noted since; nullopt if not all of that is remembered: any node may have changed.
  std::optional<std::span<const int>> Since(uint64_t position) const {
    if (position < dropped_ || position > end()) return std::nullopt;
    return std::span(entries_).subspan(position - dropped_);
  }

 private:
  static constexpr size_t kMost = 1 << 15;

  std::vector<int> entries_;
  uint64_t dropped_ = 0;
};

}  // namespace muster::cluster
