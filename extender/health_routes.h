// What the kubelet asks, and whoever wants to know which part of the service is ill.
//
//   GET /healthz             200 while the control plane is well: the process should live
//   GET /healthz/{plane}     control, query, webhook: 200 while it is well
//   GET /readyz              200 once the process may have traffic
//
// A plane that is flooded is slow and well. It is ill once its threads have done nothing for a
// minute: then they hang.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "http/server.h"

namespace muster::extender {

struct HealthSources {
  // "" if ready, else what is missing.
  std::function<std::string()> not_ready_reason;
  // "" while a live leader is known, else why not: gangs wait, though this process may be ready.
  std::function<std::string()> no_leader_reason;
  // "" while it is well, else what is wrong. The process lives as long as the first one is.
  struct Plane {
    std::string name;
    std::function<std::string()> fault;
  };
  std::vector<Plane> planes;
};

std::vector<http::Route> HealthRoutes(HealthSources sources);

// How long a thread may do nothing, although it is asked to each second.
inline constexpr absl::Duration kLongestSilence = absl::Minutes(1);

// "" or, past kLongestSilence, that `who` has done nothing for so long.
std::string SilenceOf(const std::string& who, absl::Duration silent);

// What /readyz answers, on whichever port.
http::Response Readiness(const std::string& not_ready_reason, const std::string& no_leader_reason);

}  // namespace muster::extender
