// Nodes by topology domain, as small numbers, so that counts per domain are arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cluster/snapshot.h"

namespace muster::cluster {

// A domain is one value of a topology key; each key numbers its domains from 0. Keys must all be
// added before the first node is asked for. Lives within one use of a snapshot: nodes are known by
// their address.
class TopologyDomains {
 public:
  static constexpr int kNone = -1;  // the node lacks the label

  // With include_virtual a virtual node has the labels of its forecast, without those of its Node.
  explicit TopologyDomains(bool include_virtual) : include_virtual_(include_virtual) {}

  // What stands for the node: its forecast or its Node; nullptr where neither counts.
  const kube::Node* Judged(const NodeInfo& info) const;

  size_t AddKey(const std::string& key);
  // The node's domain of each key, by the number that AddKey gave it. Valid until the next call.
  const std::vector<int>& Of(const NodeInfo& info);
  const std::string& ValueOf(size_t key, int domain) const { return keys_[key].values[domain]; }
  const std::string& KeyName(size_t key) const { return keys_[key].name; }

 private:
  struct Key {
    std::string name;
    absl::flat_hash_map<std::string, int> numbers;
    std::vector<std::string> values;
  };

  const bool include_virtual_;
  std::vector<Key> keys_;
  absl::flat_hash_map<const NodeInfo*, std::vector<int>> nodes_;
};

// How many pods match something, per domain of one key.
class DomainCounts {
 public:
  int64_t Get(int domain) const {
    return domain < static_cast<int>(counts_.size()) ? counts_[domain] : 0;
  }
  void Change(int domain, int64_t by) {
    if (domain >= static_cast<int>(counts_.size())) counts_.resize(domain + 1);
    counts_[domain] += by;
  }

 private:
  std::vector<int64_t> counts_;
};

// The same for topology spread, which asks for the least among the domains that take part, matching
// pods or not.
class SpreadCounts {
 public:
  void AddDomain(int domain);
  // Only domains that were added count.
  void Change(int domain, int64_t by);
  int64_t Get(int domain) const;
  int64_t Least() const { return by_count_.empty() ? 0 : by_count_.begin()->first; }
  int64_t domains() const { return domains_; }

 private:
  static constexpr int64_t kAbsent = -1;
  std::vector<int64_t> counts_;
  std::map<int64_t, int64_t> by_count_;  // count -> how many domains have it
  int64_t domains_ = 0;
};

}  // namespace muster::cluster
