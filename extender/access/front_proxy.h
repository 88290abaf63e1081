// Who a request is from that the API server hands on: it says so in headers (X-Remote-User and the
// like), and shows by its client certificate that it is the API server. Without that certificate
// the headers are nobody's word, and aren't looked at.
//
// What is trusted stands in ConfigMap extension-apiserver-authentication of kube-system, where the
// API server itself puts it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "extender/access/reviews.h"
#include "http/server.h"

namespace muster::extender {

struct FrontProxyConfig {
  std::string authorities;                 // PEM
  std::vector<std::string> allowed_names;  // common names; none: whatever they signed
  std::vector<std::string> user_headers, uid_headers, group_headers, extra_prefixes;
};

// Of the ConfigMap's JSON. FailedPrecondition if it names no authority or no header: then the API
// server doesn't hand requests on.
absl::StatusOr<FrontProxyConfig> ReadFrontProxyConfig(std::string_view config_map);

// Thread-safe.
class FrontProxy {
 public:
  FrontProxy();
  ~FrontProxy();
  FrontProxy(const FrontProxy&) = delete;
  FrontProxy& operator=(const FrontProxy&) = delete;

  void Trust(FrontProxyConfig config);
  bool IsKnown() const;

  // Nobody (nullopt) if the client has shown no certificate, or has named no user. Unauthenticated
  // if it has shown one that isn't the API server's; Unavailable while it isn't known what that is.
  absl::StatusOr<std::optional<Caller>> CallerOf(const http::Request& request,
                                                 absl::Time now) const;

 private:
  struct Trusted;
  std::shared_ptr<const Trusted> trusted() const;

  mutable std::mutex mutex_;
  std::shared_ptr<const Trusted> trusted_;  // guarded by it; null: not known yet
};

}  // namespace muster::extender
