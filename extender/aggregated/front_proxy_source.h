// Keeps FrontProxy's trust as the API server says it, in ConfigMap
// kube-system/extension-apiserver-authentication: read at first, and every minute, for the API
// server renews its certificates.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "extender/access/front_proxy.h"
#include "kube/api.h"

namespace muster::extender {

// One owner calls Tick.
class FrontProxySource {
 public:
  // Both must outlive this; answers that come later go nowhere.
  FrontProxySource(kube::Transport& transport, FrontProxy& proxy);
  ~FrontProxySource();

  // Does what is due. What was known stays so while it can't be read.
  void Tick(absl::Time now);

 private:
  struct Inbox;
  void OnAnswer(absl::Time now, const absl::StatusOr<kube::Response>& answer);

  kube::Transport& transport_;
  FrontProxy& proxy_;
  const std::shared_ptr<Inbox> inbox_;
  bool asked_ = false;
  absl::Time next_ = absl::InfinitePast();
  std::string last_failure_;
};

}  // namespace muster::extender
