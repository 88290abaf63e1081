// Puts AccessControl before handlers of HTTP.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "extender/access/access_control.h"
#include "extender/access/front_proxy.h"
#include "extender/access/reviews.h"
#include "http/server.h"

namespace muster::extender {

// Answers by `handler`, on an io thread, once whoever asks is known and may have what `wanted` says
// of his request. Others get a refusal. Without `access`, which must outlive the server: always.
http::Handler Guarded(AccessControl* access, std::function<Wanted(const http::Request&)> wanted,
                      http::Handler handler);

// The same where the API server hands requests on: he is whom it names, if it is the API server,
// else whose token he brings. For a server with TLS alone and client certificates. `access` and
// `proxy` must outlive it.
struct ProxiedGuard {
  AccessControl* access = nullptr;
  const FrontProxy* proxy = nullptr;
  std::function<absl::Time()> clock;
  std::function<http::Response(const absl::Status&)> refuse;
};
http::Handler Guarded(const ProxiedGuard& guard, std::function<Wanted(const http::Request&)> wanted,
                      http::Handler handler);

// A refusal (access_control.h, or StateStore::RoomForWatch) as RFC 9457 has it: 401, 403, 410, 429
// or 503.
http::Response ProblemOf(const absl::Status& refusal);
int StatusOf(const absl::Status& refusal);
// WWW-Authenticate and Retry-After, where they belong.
void AddRefusalHeaders(int status, http::Response* response);

// Until when a watch that begins now goes on, for rights may be taken back meanwhile: `life` from
// now or up to twice that, so that those that began together don't come back together. For ever
// without `access`.
absl::Time WatchedUntil(const AccessControl* access, absl::Duration life);

// When to ask again, after Unavailable and ResourceExhausted.
inline constexpr absl::Duration kRetryAfter = absl::Seconds(5);

}  // namespace muster::extender
