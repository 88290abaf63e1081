// gRPC service muster.v1.Admission: the same messages as REST, to whom AccessControl lets have
// them. Beside it grpc.health.v1.Health. Without a certificate in the clear, for callers on the
// same host or behind a mesh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "extender/access/access_control.h"
#include "extender/state_store.h"
#include "http/server.h"

namespace muster::extender {

struct GrpcServerOptions {
  std::string listen = {};  // as for http::Server
  size_t max_connections = 1024;
  int niceness = 0;                                   // of gRPC's threads, as for http::Server
  std::optional<http::Certificate> certificate = {};  // TLS, if set
  // Must outlive the server, and be stopped before it is; null: everyone may ask.
  AccessControl* access = nullptr;
  // So long at least, and at most twice, a watch goes on by one answer of `access`.
  absl::Duration watch_life = absl::Minutes(10);
};

class GrpcServer {
 public:
  // `store` must outlive the server. Unavailable if the address can't be bound.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(GrpcServerOptions options,
                                                           StateStore* store);
  // Stop without grace.
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // For new connections from now on. Only for a server that was started with a certificate.
  void SetCertificate(http::Certificate certificate);

  // What grpc.health.v1.Health, which asks nobody, says of the server and of its service. It begins
  // as serving.
  void SetServing(bool serving);

  uint16_t port() const;
  http::Server::ConnectionCounts connection_counts() const;
  // Ends watches, gives other calls `grace` to complete, then cancels them.
  void Stop(absl::Duration grace);

 private:
  class Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::extender
