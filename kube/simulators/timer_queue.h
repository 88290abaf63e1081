// One timer per key, in order of time and then key.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace muster::kube::simulators {

class TimerQueue {
 public:
  // Replaces the key's timer; InfiniteFuture removes it.
  void Set(const std::string& key, absl::Time at) {
    Cancel(key);
    if (at == absl::InfiniteFuture()) return;
    times_.emplace(key, at);
    order_.emplace(at, key);
  }

  void SetIfEarlier(const std::string& key, absl::Time at) {
    auto it = times_.find(key);
    if (it == times_.end() || at < it->second) Set(key, at);
  }

  void Cancel(const std::string& key) {
    auto it = times_.find(key);
    if (it == times_.end()) return;
    order_.erase({it->second, key});
    times_.erase(it);
  }

  // Removes and returns the first key that is due.
  std::optional<std::string> PopDue(absl::Time now) {
    if (order_.empty() || order_.begin()->first > now) return std::nullopt;
    std::string key = order_.begin()->second;
    Cancel(key);
    return key;
  }

  // InfiniteFuture if there is none.
  absl::Time Next() const {
    return order_.empty() ? absl::InfiniteFuture() : order_.begin()->first;
  }

 private:
  std::map<std::string, absl::Time> times_;
  std::set<std::pair<absl::Time, std::string>> order_;
};

}  // namespace muster::kube::simulators
