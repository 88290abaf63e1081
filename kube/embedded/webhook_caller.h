// The way from the server to an admission webhook.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::kube::embedded {

struct WebhookCall {
  std::string url;
  std::string ca_bundle;  // PEM; empty: the system's roots
  std::string body;       // an AdmissionReview (admission.k8s.io/v1)
  absl::Duration timeout = absl::Seconds(10);
};

class WebhookCaller {
 public:
  virtual ~WebhookCaller() = default;

  // The body of a 200 answer. Anything else is an error whose message says what happened. Blocks
  // at most for the call's timeout. Thread-safe.
  virtual absl::StatusOr<std::string> Call(const WebhookCall& call) = 0;
};

}  // namespace muster::kube::embedded
