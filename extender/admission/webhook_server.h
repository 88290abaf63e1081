// Serves the gate, and lint's warnings, over HTTPS with certificates that renew themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "extender/admission/serving_certificates.h"
#include "extender/admission/warnings.h"
#include "extender/admission/webhook.h"
#include "http/server.h"

namespace muster::extender {

struct WebhookServerOptions {
  std::string listen = "127.0.0.1:9443";
  GateOptions gate;
  ServingCertificatesOptions certificates;
  // Serves kWarningsPath too, and is the gate's linter. Called on the HTTP server's threads; null:
  // not served.
  ObjectLinter linter;
  // As http::ServerOptions::observe.
  std::function<void(std::string_view pattern, int status, absl::Duration took)> observe;
};

// Owned by one thread; requests are answered on the HTTP server's own. Tick's time is the wall
// clock's.
class WebhookServer {
 public:
  // Listens and serves. The errors of http::Server::Start and certificates.h.
  static absl::StatusOr<std::unique_ptr<WebhookServer>> Start(WebhookServerOptions options,
                                                              absl::Time now);

  uint16_t port() const { return http_->port(); }
  http::Server::ConnectionCounts connection_counts() const { return http_->connection_counts(); }
  absl::Duration silent_for() const { return http_->silent_for(); }
  // What is served now, for others who serve by the same names.
  http::Certificate certificate() const;
  // Until when the served certificate is valid.
  absl::Time certificate_expires() const { return certificates_.serving().not_after; }
  // What the registration has to hold: every authority that is or will be served.
  std::string CaBundlePem() const { return certificates_.CaBundle(); }
  // What the registration does hold, once it is known.
  void SetTrusted(std::string bundle) { certificates_.SetTrusted(std::move(bundle)); }

  // Renews certificates that are due: new connections get them, those that are open go on. True if
  // certificate() has changed.
  bool Tick(absl::Time now);
  absl::Time NextTick() const { return certificates_.NextTick(); }

  // Not OK while no caller can trust what is served, with the reason.
  absl::Status Health(absl::Time now) const { return certificates_.Health(now); }
  // Why given files aren't used as they are now, though what was read before still serves.
  const absl::Status& file_error() const { return certificates_.file_error(); }

  // As http::Server::Stop.
  void Stop(absl::Duration grace) { http_->Stop(grace); }

 private:
  WebhookServer(ServingCertificates certificates, std::unique_ptr<http::Server> http)
      : certificates_(std::move(certificates)), http_(std::move(http)) {}

  ServingCertificates certificates_;
  std::unique_ptr<http::Server> http_;
  absl::Status logged_;  // the last fault of given files that was logged
};

}  // namespace muster::extender
