#include "cluster/free_devices.h"

#include <algorithm>

#include "kube/objects/resource_list.h"

namespace muster::cluster {

bool FreeDevices::Counts(std::string_view resource) {
  return resource.find('/') != std::string_view::npos &&
         resource.find("kubernetes.io/") == std::string_view::npos && resource != kube::kEfa;
}

int64_t FreeDevices::On(const NodeInfo& info) {
  const std::vector<size_t>& kinds = kinds_.Get(info.family, [&] {
    std::vector<size_t> positions;
    const auto& entries = info.node->allocatable.entries();
    for (size_t i = 0; i < entries.size(); ++i) {
      if (Counts(entries[i].first)) positions.push_back(i);
    }
    return positions;
  });
  int64_t devices = 0;
  for (size_t kind : kinds) devices += std::min(info.free[kind], kMost);
  return std::min(devices, kMost);
}

bool FreeDevices::AllTaken(const NodeInfo& info) {
  bool has = false;
  const auto& entries = info.node->allocatable.entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].second == 0 || !Counts(entries[i].first)) continue;
    if (info.free[i] > 0) return false;
    has = true;
  }
  return has;
}

std::optional<kube::ResourceList> FreeInAll(const Snapshot& snapshot) {
  kube::ResourceList free;
  for (const auto& [name, info] : snapshot.nodes()) {
    if (info.UsableNow() && !free.Add(info.FreeResources()).ok()) return std::nullopt;
  }
  return free;
}

}  // namespace muster::cluster
