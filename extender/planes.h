// The listeners of the service, and what each may take of the process.
//
//   control   kube-scheduler's calls, on loopback
//   webhook   the gate and lint's warnings, for the API server (admission/webhook_server.h)
//   query     REST, the page and metrics; gRPC beside it (grpc_server.h), and for the API server,
//             which hands requests on, the aggregated API (aggregated/api_routes.h)
//   health    the kubelet's probes
//
// Each has a port, io threads and limits of its own, so that whoever fills one finds the others as
// they were. What they share, files, memory and the processor, is divided here: the query plane
// can't take the last of any.
#pragma once

#include <cstddef>
#include <string>

#include "http/server.h"

namespace muster::extender {

// A tenth of the processor that the engine and the control plane get while they want all of it.
inline constexpr int kQueryNiceness = 10;

// Watches of gangs and lists, REST and gRPC together: fewer than connections, so that they leave
// room for those who ask once.
inline constexpr size_t kWatches = 6'000;

http::ServerOptions ControlPlane(std::string listen);
// `files`: how many the process may have open.
http::ServerOptions QueryPlane(std::string listen, size_t files);
http::ServerOptions AggregatedPlane(std::string listen);
http::ServerOptions HealthPlane(std::string listen);

// Connections that gRPC may have.
size_t GrpcConnections(size_t files);

}  // namespace muster::extender
