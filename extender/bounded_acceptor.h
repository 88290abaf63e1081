// Accepts connections for a server that can't count its own: gRPC takes as many as there are files.
//
// Past the limit the newest comes in, and of the peer with most connections the oldest goes:
// whether it is busy only gRPC knows. Each connection takes two files, gRPC's and the one that
// tells here of its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "http/listen_address.h"
#include "http/server.h"

namespace muster::extender {

class BoundedAcceptor {
 public:
  BoundedAcceptor();
  // Stop.
  ~BoundedAcceptor();
  BoundedAcceptor(const BoundedAcceptor&) = delete;
  BoundedAcceptor& operator=(const BoundedAcceptor&) = delete;

  // Unavailable if the address can't be bound, InvalidArgument if it is none.
  absl::Status Listen(const http::ListenAddress& address);
  // From now on `take` gets a file for each connection, on one thread, which is as nice as the
  // caller's; it owns the file.
  void Start(size_t max_connections, std::function<void(int connection)> take);
  // Accepts no more. What was accepted stays as it is.
  void Stop();

  uint16_t port() const;
  http::Server::ConnectionCounts counts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::extender
