#include "extender/planes.h"

#include <algorithm>
#include <utility>

namespace muster::extender {
namespace {

// A filter call names every node, or, without nodeCacheCapable, holds them.
constexpr uint64_t kExtenderBodyLimit = 64 << 20;
// kube-scheduler holds a connection per bind call under way.
constexpr size_t kExtenderConnections = 20'000;

constexpr size_t kQueryConnections = 8'192;
constexpr size_t kGrpcConnections = 1'024;
// Of answers that nobody takes.
constexpr size_t kQueryMemory = 64 << 20;
// A reader that takes less than this in ten seconds loses its connection; what is published
// meanwhile is kept for it no longer.
constexpr int kQuerySendBuffer = 32 << 10;
constexpr absl::Duration kQueryWriteTimeout = absl::Seconds(10);

// API servers keep some each; others reach the port as well.
constexpr size_t kAggregatedConnections = 512;
// A user's groups and the like come as headers.
constexpr size_t kAggregatedHeaders = 64 << 10;

// The kubelet makes one for each probe.
constexpr size_t kHealthConnections = 64;
constexpr size_t kHealthConnectionsPerPeer = 16;

}  // namespace

http::ServerOptions ControlPlane(std::string listen) {
  return {.listen = std::move(listen),
          .threads = 4,
          .max_connections = kExtenderConnections,
          .body_limit = kExtenderBodyLimit};
}

http::ServerOptions QueryPlane(std::string listen, size_t files) {
  return {.listen = std::move(listen),
          .niceness = kQueryNiceness,
          .max_connections = std::min(kQueryConnections, files / 2),
          .body_limit = 0,
          .memory_limit = kQueryMemory,
          .send_buffer = kQuerySendBuffer,
          .write_timeout = kQueryWriteTimeout,
          .when_full = http::ServerOptions::WhenFull::kEndOldestIdle};
}

http::ServerOptions AggregatedPlane(std::string listen) {
  return {.listen = std::move(listen),
          .niceness = kQueryNiceness,
          .max_connections = kAggregatedConnections,
          .header_limit = kAggregatedHeaders,
          .body_limit = 0,
          .memory_limit = kQueryMemory,
          .send_buffer = kQuerySendBuffer,
          .write_timeout = kQueryWriteTimeout,
          .client_certificates = true,
          .when_full = http::ServerOptions::WhenFull::kEndOldestIdle};
}

http::ServerOptions HealthPlane(std::string listen) {
  return {.listen = std::move(listen),
          .threads = 1,
          .max_connections = kHealthConnections,
          .header_limit = 4 << 10,
          .body_limit = 0,
          .header_timeout = absl::Seconds(2),
          .write_timeout = absl::Seconds(2),
          .idle_timeout = absl::Seconds(30),
          .max_connections_per_peer = kHealthConnectionsPerPeer,
          .when_full = http::ServerOptions::WhenFull::kEndOldestIdle};
}

// Each is two files (bounded_acceptor.h).
size_t GrpcConnections(size_t files) { return std::min(kGrpcConnections, files / 16); }

}  // namespace muster::extender
