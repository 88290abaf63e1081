// What the demo submits: the four pods of a PyTorchJob and their PodGroup, as the training operator
// makes them, and the NodePool and instance type they ask for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kube/api.h"
#include "kube/simulators/simulated_cloud.h"

namespace muster::lab {

inline constexpr int kDemoMembers = 4;

// POSTs in order.
std::vector<kube::Request> DemoClusterRequests();

// A PodGroup with minMember 4, and NAME-master-0, NAME-worker-0 ... NAME-worker-2 with a GPU each.
std::vector<kube::Request> DemoJobRequests(const std::string& name,
                                           std::optional<int64_t> schedule_timeout_seconds);

// The NodePool's name, and the one type it is sold: 8 CPUs, 32 GiB, one GPU.
inline constexpr const char* kDemoNodePool = "gpu";
kube::simulators::InstanceType DemoInstanceType();

}  // namespace muster::lab
