// The API objects and requests that a scenario's short forms stand for.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "extender/simulation/scenario.h"
#include "kube/api.h"
#include "kube/simulators/karpenter_simulator.h"

namespace muster::simulation {

struct Manifest {
  std::string path;  // of the collection
  std::string json;
};

kube::Request CreateRequest(const Manifest& manifest);

// Nodes and NodePools the scenario starts with.
std::vector<Manifest> ClusterManifests(const Scenario& scenario);

kube::simulators::KarpenterConfig KarpenterConfigOf(const Scenario& scenario, uint64_t seed);

// What a step asks of the API server, in order. InvalidArgument for an object kind that scenarios
// can't name. Pods of the scenario's scheduler carry the gate that the webhook would add.
absl::StatusOr<std::vector<kube::Request>> RequestsOf(const Action& action,
                                                      const std::string& scheduler_name);

}  // namespace muster::simulation
