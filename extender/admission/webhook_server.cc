#include "extender/admission/webhook_server.h"

#include <spdlog/spdlog.h>

#include <cstdlib>
#include <utility>

#include "kube/objects/time_text.h"

namespace muster::extender {
namespace {

// An API server keeps 25 connections that are idle (client-go 1.37, transport/cache.go), and opens
// one for each pod that is being created at the moment: all of the requests that it serves at a
// time may be such, 600 by default (--max-requests-inflight, --max-mutating-requests-inflight).
// Others reach the port as well, and must not be able to fill it.
constexpr size_t kMaxConnections = 2'048;
constexpr size_t kMaxConnectionsPerPeer = 1'024;
// Of reviews that are being read: eight of the largest, or some thousand as they usually are.
constexpr size_t kMaxMemory = 64 << 20;
// Whoever reaches the port may ask for a handshake, which takes the processor: a third of it while
// the engine wants all.
constexpr int kNiceness = 5;

http::Certificate ToHttp(const KeyedCertificate& certificate) {
  return {certificate.chain, certificate.key};
}

}  // namespace

absl::StatusOr<std::unique_ptr<WebhookServer>> WebhookServer::Start(WebhookServerOptions options,
                                                                    absl::Time now) {
  absl::StatusOr<ServingCertificates> certificates =
      ServingCertificates::Create(std::move(options.certificates), now);
  if (!certificates.ok()) return certificates.status();
  http::ServerOptions serving;
  serving.listen = std::move(options.listen);
  serving.max_connections = kMaxConnections;
  serving.max_connections_per_peer = kMaxConnectionsPerPeer;
  serving.when_full = http::ServerOptions::WhenFull::kEndOldestIdle;
  serving.body_limit = kMaxReviewBytes;
  serving.memory_limit = kMaxMemory;
  serving.niceness = kNiceness;
  serving.certificate = ToHttp(certificates->serving());
  serving.observe = std::move(options.observe);
  std::vector<http::Route> routes;
  options.gate.linter = options.linter;
  routes.push_back(MutatePodsRoute(std::move(options.gate)));
  if (options.linter != nullptr) routes.push_back(WarningsRoute(std::move(options.linter)));
  absl::StatusOr<std::unique_ptr<http::Server>> server =
      http::Server::Start(std::move(serving), std::move(routes));
  if (!server.ok()) return server.status();
  return std::unique_ptr<WebhookServer>(
      new WebhookServer(*std::move(certificates), *std::move(server)));
}

http::Certificate WebhookServer::certificate() const { return ToHttp(certificates_.serving()); }

bool WebhookServer::Tick(absl::Time now) {
  const bool changed = certificates_.Tick(now);
  if (certificates_.file_error() != logged_) {
    logged_ = certificates_.file_error();
    if (!logged_.ok()) spdlog::warn("webhook: files not used: {}", std::string(logged_.message()));
  }
  if (!changed) return false;
  // What ServingCertificates hands out has been checked or made here.
  spdlog::info("webhook: new certificate, valid until {}", kube::TimeText(certificate_expires()));
  if (!http_->SetCertificate(certificate()).ok()) std::abort();
  return true;
}

}  // namespace muster::extender
