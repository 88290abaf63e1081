// What one node offers.

#include <algorithm>

#include "cluster/snapshot.h"

namespace muster::cluster {

int64_t NodeInfo::Free(std::string_view resource) const {
  const auto& entries = node->allocatable.entries();
  auto it = std::lower_bound(
      entries.begin(), entries.end(), resource,
      [](const auto& entry, std::string_view wanted) { return entry.first < wanted; });
  return it != entries.end() && it->first == resource ? free[it - entries.begin()] : 0;
}

kube::ResourceList NodeInfo::FreeResources() const {
  kube::ResourceList resources = node->allocatable;
  for (size_t i = 0; i < free.size(); ++i) {
    resources.Set(node->allocatable.entries()[i].first, free[i]);
  }
  return resources;
}

const PlacedPod* NodeInfo::FindPod(std::string_view uid) const {
  auto it = std::lower_bound(
      pods.begin(), pods.end(), uid,
      [](const PlacedPod& placed, std::string_view key) { return placed.pod->meta.uid < key; });
  return it != pods.end() && it->pod->meta.uid == uid ? &*it : nullptr;
}

}  // namespace muster::cluster
