// What one would regret to leave idle beside a pod: accelerators and the like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "cluster/node_families.h"
#include "cluster/snapshot.h"

namespace muster::cluster {

// Counts a node's free devices of all kinds. Network devices come with the others and don't count.
class FreeDevices {
 public:
  // More devices than a node can have; keeps sums over nodes within 64 bits.
  static constexpr int64_t kMost = 1'000'000'000;
  static bool Counts(std::string_view resource);

  int64_t On(const NodeInfo& info);
  // It has devices, and none is free.
  static bool AllTaken(const NodeInfo& info);

 private:
  PerFamily<std::vector<size_t>> kinds_;  // positions in NodeInfo::free
};

// What all usable nodes have free; nullopt if that is more than int64 holds.
std::optional<kube::ResourceList> FreeInAll(const Snapshot& snapshot);

}  // namespace muster::cluster
