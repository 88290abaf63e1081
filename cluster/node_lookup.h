// Looking the same label or resource up on thousands of nodes, which are of few families.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cluster/attached_volumes.h"
#include "cluster/node_families.h"
#include "cluster/snapshot.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {

// One label of NodeInfo::node. Nodes of one family have the same value, but for the hostname.
class NodeLabel {
 public:
  explicit NodeLabel(std::string_view key)
      : key_(key), differs_in_families_(key == kube::kHostnameLabel) {}

  // A small number of the value, in the order in which the values were first asked for; -1 if the
  // node lacks the label.
  int NumberOf(const NodeInfo& info) {
    return by_family_.Get(differs_in_families_ ? -1 : info.family,
                          [&] { return NumberOf(*info.node); });
  }
  int NumberOf(const kube::Node& node) {
    const std::string* value = node.meta.Label(key_);
    if (value == nullptr) return -1;
    auto [it, added] = numbers_.try_emplace(*value, static_cast<int>(values_.size()));
    if (added) values_.push_back(it->first);
    return it->second;
  }
  // By number. They live as long as the nodes.
  const std::vector<std::string_view>& values() const { return values_; }

 private:
  const std::string key_;
  const bool differs_in_families_;
  absl::flat_hash_map<std::string_view, int> numbers_;
  std::vector<std::string_view> values_;
  PerFamily<int> by_family_;
};

// NodeInfo::Free of one resource, or what is left of another need (attached_volumes.h).
class FreeAmount {
 public:
  explicit FreeAmount(std::string_view need) : resource_(need), is_resource_(IsResource(need)) {}

  int64_t Of(const Snapshot& snapshot, const NodeInfo& info) {
    if (!is_resource_) return FreeFor(snapshot, info, resource_);
    const int at = at_.Get(info.family, [&] { return PositionIn(info.node->allocatable); });
    return at < 0 ? 0 : info.free[at];
  }

 private:
  int PositionIn(const kube::ResourceList& resources) const {
    const auto& entries = resources.entries();
    const auto it = std::find_if(entries.begin(), entries.end(),
                                 [&](const auto& entry) { return entry.first == resource_; });
    return it == entries.end() ? -1 : static_cast<int>(it - entries.begin());
  }

  const std::string resource_;
  const bool is_resource_;
  PerFamily<int> at_;
};

}  // namespace muster::cluster
