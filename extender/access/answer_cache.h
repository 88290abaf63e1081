// Answers that were given, each until its time is over; of too many those go that were asked for
// longest ago.
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/time/time.h"

namespace muster::extender {

// Not thread-safe.
template <typename Answer>
class AnswerCache {
 public:
  explicit AnswerCache(size_t capacity) : capacity_(capacity) {}

  // Null if there is none, or none any more. Valid until the next call.
  const Answer* Find(const std::string& key, absl::Time now) {
    const auto at = by_key_.find(key);
    if (at == by_key_.end()) return nullptr;
    const auto entry = at->second;
    if (now >= entry->until) {
      by_key_.erase(at);
      entries_.erase(entry);
      return nullptr;
    }
    entries_.splice(entries_.begin(), entries_, entry);
    return &entry->answer;
  }

  void Put(const std::string& key, Answer answer, absl::Time until) {
    if (const auto at = by_key_.find(key); at != by_key_.end()) {
      entries_.erase(at->second);
      by_key_.erase(at);
    }
    entries_.push_front({key, std::move(answer), until});
    by_key_.emplace(key, entries_.begin());
    if (entries_.size() <= capacity_) return;
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string key;
    Answer answer;
    absl::Time until;
  };

  const size_t capacity_;
  std::list<Entry> entries_;  // what was asked for last comes first
  std::unordered_map<std::string, typename std::list<Entry>::iterator> by_key_;
};

}  // namespace muster::extender
