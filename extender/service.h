// `muster serve`: the parts of the service, and how they are joined.
//
//   kube/client --> ClusterWatch --> EngineLoop --> FilterTable, Publisher (read by the servers)
//        ^                               |
//        +------------ Executor <--------+  actions
//
// One process, a fixed number of threads: the transport's, the timer's, the engine's, and the io
// threads of the servers. Every queue between them is bounded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "extender/config.h"
#include "kube/client/client_config.h"

namespace muster::extender {

class Service {
 public:
  // Listens everywhere and begins to watch; not ready yet when it returns. The errors of listening,
  // of the API server's address, and of given certificates.
  static absl::StatusOr<std::unique_ptr<Service>> Start(ServeOptions options,
                                                        kube::ClientConfig cluster);
  // Stop.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // "" when ready: caches whole and fresh, the webhook registered and served with a certificate
  // that is valid, the Lease can be read, and since the start a live leader has been known once.
  // Else what is missing.
  std::string NotReadyReason() const;

  // Ports that were listened on.
  uint16_t extender_port() const;  // 0: standalone
  uint16_t rest_port() const;
  uint16_t grpc_port() const;
  uint16_t webhook_port() const;
  uint16_t health_port() const;
  uint16_t aggregated_port() const;  // 0 where it isn't served

  // Refuses new bind calls, lets a commit under way be completed for at most options.stop_grace,
  // gives the lead up, and ends all threads. Idempotent.
  void Stop();

 private:
  struct Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::extender
