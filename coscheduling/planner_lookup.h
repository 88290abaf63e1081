// Looking the same key up in thousands of small sorted lists that are mostly laid out alike: labels
// and resources of nodes.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "cluster/node_families.h"
#include "cluster/snapshot.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling::planner {

// Tries the place where the key was, or would have been, last time before it searches.
class SameKey {
 public:
  explicit SameKey(std::string_view key) : key_(key) {}

  const std::string& key() const { return key_; }

  // The value in `entries`, sorted pairs with random access; nullptr if the key is absent.
  template <typename Entries>
  auto Find(const Entries& entries) -> decltype(&entries.begin()->second) {
    auto it = entries.begin() + std::min(at_, entries.size());
    if (it != entries.end() && it->first == key_) return &it->second;
    bool would_be_here = (it == entries.end() || it->first > key_) &&
                         (it == entries.begin() || (it - 1)->first < key_);
    if (would_be_here) return nullptr;
    it = std::lower_bound(
        entries.begin(), entries.end(), key_,
        [](const auto& entry, const std::string& wanted) { return entry.first < wanted; });
    at_ = it - entries.begin();
    return it != entries.end() && it->first == key_ ? &it->second : nullptr;
  }

 private:
  std::string key_;
  size_t at_ = 0;
};

// One label of NodeInfo::node.
class NodeLabel {
 public:
  explicit NodeLabel(std::string_view key) : lookup_(key) {}

  // nullptr if the node lacks it. What comes back may lie in another node of the family.
  const std::string* Of(const cluster::NodeInfo& info) {
    const int family = lookup_.key() == kube::kHostnameLabel ? -1 : info.family;
    return by_family_.Get(family, [&] { return lookup_.Find(info.node->meta.labels); });
  }

 private:
  SameKey lookup_;
  cluster::PerFamily<const std::string*> by_family_;
};

// NodeInfo::Free of one resource.
class FreeAmount {
 public:
  explicit FreeAmount(std::string_view resource) : allocatable_(resource), requested_(resource) {}

  const std::string& resource() const { return allocatable_.key(); }

  int64_t Of(const cluster::NodeInfo& info) {
    const int64_t* allocatable = allocatable_.Find(info.node->allocatable.entries());
    if (allocatable == nullptr) return 0;
    const int64_t* requested = requested_.Find(info.requested.entries());
    int64_t free = 0;
    if (requested == nullptr) return std::max<int64_t>(0, *allocatable);
    if (__builtin_sub_overflow(*allocatable, *requested, &free)) return 0;
    return std::max<int64_t>(0, free);
  }

 private:
  SameKey allocatable_, requested_;
};

}  // namespace muster::coscheduling::planner
