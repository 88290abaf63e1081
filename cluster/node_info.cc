// What one node offers.

#include <algorithm>

#include "cluster/snapshot.h"

namespace muster::cluster {
namespace {

int64_t FreeOf(int64_t allocatable, int64_t requested) {
  int64_t free = 0;
  if (__builtin_sub_overflow(allocatable, requested, &free)) return 0;
  return std::max<int64_t>(free, 0);
}

}  // namespace

int64_t NodeInfo::Free(std::string_view resource) const {
  return FreeOf(node->allocatable.Get(resource), requested.Get(resource));
}

kube::ResourceList NodeInfo::FreeResources() const {
  kube::ResourceList free = node->allocatable;
  for (const auto& [resource, amount] : node->allocatable.entries()) {
    free.Set(resource, FreeOf(amount, requested.Get(resource)));
  }
  return free;
}

const PlacedPod* NodeInfo::FindPod(std::string_view uid) const {
  auto it = std::lower_bound(
      pods.begin(), pods.end(), uid,
      [](const PlacedPod& placed, std::string_view key) { return placed.pod->meta.uid < key; });
  return it != pods.end() && it->pod->meta.uid == uid ? &*it : nullptr;
}

}  // namespace muster::cluster
