// An embedded server on a socket: HTTP/1.1 with keep-alive, on loopback only, with or without TLS.
//
// A few io threads serve every connection. A request that may call a webhook goes to a second,
// bounded pool, so that a webhook which asks this server something while it decides finds the io
// threads free. Watches are pulled from the server's history as fast as their reader takes them: a
// connection holds one chunk, and a reader that takes nothing for `write_timeout` is cut off.
// Connections past the bound wait in the kernel's queue until one closes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kube/embedded/api_server.h"
#include "kube/embedded/faults.h"

namespace muster::kube::embedded {

struct HttpFrontOptions {
  std::string address = "127.0.0.1";  // must be a loopback address
  uint16_t port = 0;                  // 0: any free one
  // With a certificate of its own making, for the address and localhost.
  bool tls = false;
  Faults* faults = nullptr;  // not owned, must outlive the front; null: none
  int io_threads = 2;
  int webhook_threads = 8;
  size_t max_waiting_for_webhooks = 256;  // past that 429
  size_t max_connections = 1024;
  size_t max_header_bytes = 32 << 10;  // past that 431
  size_t max_body_bytes = 3 << 20;     // past that 413
  size_t watch_chunk_bytes = 256 << 10;
  absl::Duration idle_timeout = absl::Minutes(2);
  absl::Duration read_timeout = absl::Seconds(30);  // of one request, and of the TLS handshake
  absl::Duration write_timeout = absl::Seconds(20);
};

class HttpFront {
 public:
  // Listens when it returns, and gives the server an HTTPS client for its webhooks. `server` must
  // outlive the front. InvalidArgument for an address that isn't loopback, Unavailable if it can't
  // listen there.
  static absl::StatusOr<std::unique_ptr<HttpFront>> Start(ApiServer* server,
                                                          HttpFrontOptions options = {});
  // Closes every connection at once and waits for its threads.
  ~HttpFront();
  HttpFront(const HttpFront&) = delete;
  HttpFront& operator=(const HttpFront&) = delete;

  uint16_t port() const;
  std::string url() const;            // "https://127.0.0.1:40123"
  const std::string& ca_pem() const;  // empty without TLS
  std::string Kubeconfig() const;     // YAML for kubectl and any other client
  size_t open_connections() const;

 private:
  class Impl;
  explicit HttpFront(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster::kube::embedded
