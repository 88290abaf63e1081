// Kueue's groups of plain pods: a label names the group, an annotation says how many pods it has
// (kueue v0.15.2 pkg/controller/jobs/pod/constants).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kube/objects/pod.h"

namespace muster::kube {

inline constexpr std::string_view kKueueTotalCountAnnotation =
    "kueue.x-k8s.io/pod-group-total-count";

struct KueuePodGroup {
  std::string name;
  int64_t total = 1;  // its pods
  std::string fault;  // a total that isn't a count from 1 to 2^31 - 1, by name and value
};

// The group that the pod names, or nullopt. One that asks for fast admission isn't one: its pods
// start as they come.
std::optional<KueuePodGroup> KueuePodGroupOf(const Pod& pod);

}  // namespace muster::kube
