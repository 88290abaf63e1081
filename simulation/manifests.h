// The API objects and requests that a scenario's short forms stand for.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kube/api.h"
#include "kube/simulators/karpenter_simulator.h"
#include "simulation/scenario.h"

namespace muster::simulation {

struct Manifest {
  std::string path;  // of the collection
  std::string json;
};

// On simulated pods whose gang no label names: the gang that observers and invariants count them
// to.
inline constexpr const char* kGangForObservers = "muster.dev/simulated-gang";

// The path of "KIND/NAME" or "KIND/NAMESPACE/NAME". InvalidArgument for a kind that scenarios can't
// name.
absl::StatusOr<std::string> ObjectPath(const std::string& object);

kube::Request CreateRequest(const Manifest& manifest);

// Nodes and NodePools the scenario starts with.
std::vector<Manifest> ClusterManifests(const Scenario& scenario);

kube::simulators::KarpenterConfig KarpenterConfigOf(const Scenario& scenario, uint64_t seed,
                                                    absl::Time start);

// What a step asks of the API server, in order. InvalidArgument for an object kind that scenarios
// can't name. Pods of the scenario's scheduler carry the gate that the webhook would add.
absl::StatusOr<std::vector<kube::Request>> RequestsOf(const Action& action,
                                                      const std::string& scheduler_name);

}  // namespace muster::simulation
