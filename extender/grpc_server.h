// gRPC service muster.v1.Admission: the same messages as REST, without TLS, for callers on the same
// host or behind a mesh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "extender/state_store.h"
#include "http/server.h"

namespace muster::extender {

struct GrpcServerOptions {
  std::string listen = {};  // as for http::Server
  size_t max_connections = 1024;
  int niceness = 0;  // of gRPC's threads, as for http::Server
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
