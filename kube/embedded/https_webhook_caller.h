// Admission webhooks over HTTPS, as the front calls them.
#pragma once

#include <atomic>
#include <string>

#include "absl/status/statusor.h"
#include "kube/embedded/webhook_caller.h"

namespace muster::kube::embedded {

// A connection per call: TLS verified against the call's CA and the URL's host.
class HttpsWebhookCaller : public WebhookCaller {
 public:
  absl::StatusOr<std::string> Call(const WebhookCall& call) override;

  // Calls under way fail within a tenth of a second, later ones at once.
  void Stop() { stopped_ = true; }

 private:
  std::atomic<bool> stopped_ = false;
};

}  // namespace muster::kube::embedded
