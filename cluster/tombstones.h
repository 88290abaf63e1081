// Objects that are gone, by UID, so that what is heard of one later (the answer to a write, which
// may come after the watch told of the deletion) doesn't revive it.
#pragma once

#include <deque>
#include <string>

#include "absl/container/flat_hash_set.h"

namespace muster::cluster {

class Tombstones {
 public:
  // An answer is given up long before so many objects have gone; some 2 MB.
  static constexpr size_t kRemembered = 20'000;

  bool Has(const std::string& uid) const { return gone_.contains(uid); }
  // The oldest go first.
  void Add(const std::string& uid) {
    if (uid.empty() || !gone_.insert(uid).second) return;
    order_.push_back(uid);
    if (order_.size() <= kRemembered) return;
    gone_.erase(order_.front());
    order_.pop_front();
  }

 private:
  absl::flat_hash_set<std::string> gone_;
  std::deque<std::string> order_;
};

}  // namespace muster::cluster
