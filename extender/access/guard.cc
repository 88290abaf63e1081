#include "extender/access/guard.h"

#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "extender/access/problem.h"

namespace muster::extender {
namespace {

// Goes on with a request once it is known whether it may be answered.
AccessControl::Done GoOn(std::shared_ptr<http::Request> request, const http::Responder& responder,
                         const http::Handler& handler,
                         std::function<http::Response(const absl::Status&)> refuse) {
  return [request = std::move(request), responder, handler, refuse = std::move(refuse),
          asked_on = std::this_thread::get_id()](const absl::Status& answer) {
    if (!answer.ok()) return responder.Send(refuse(answer));
    if (std::this_thread::get_id() == asked_on) return handler(*request, responder);
    responder.Resume([=] { handler(*request, responder); });
  };
}

}  // namespace

int StatusOf(const absl::Status& refusal) {
  switch (refusal.code()) {
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kOutOfRange:
      return 410;
    default:
      return 503;
  }
}

void AddRefusalHeaders(int status, http::Response* response) {
  if (status == 401) response->headers.emplace_back("WWW-Authenticate", "Bearer realm=\"muster\"");
  if (status == 429 || status == 503) {
    response->headers.emplace_back("Retry-After",
                                   std::to_string(absl::ToInt64Seconds(kRetryAfter)));
  }
}

http::Response ProblemOf(const absl::Status& refusal) {
  const int status = StatusOf(refusal);
  http::Response response = Problem(status, std::string(refusal.message()));
  AddRefusalHeaders(status, &response);
  return response;
}

absl::Time WatchedUntil(const AccessControl* access, absl::Duration life) {
  if (access == nullptr) return absl::InfiniteFuture();
  std::random_device random;
  return absl::Now() + life * std::uniform_real_distribution<double>(1, 2)(random);
}

http::Handler Guarded(AccessControl* access, std::function<Wanted(const http::Request&)> wanted,
                      http::Handler handler) {
  if (access == nullptr) return handler;
  return [access, wanted = std::move(wanted), handler = std::move(handler)](
             http::Request& request, const http::Responder& responder) {
    // The token may have been read by others already; that none is taken here makes it noticed.
    if (!request.secret) {
      return responder.Send(ProblemOf(
          absl::PermissionDeniedError("this is answered over TLS only: https, at the same port")));
    }
    const auto kept = std::make_shared<http::Request>(std::move(request));
    access->Check(kept->authorization, kept->peer, wanted(*kept),
                  GoOn(kept, responder, handler, ProblemOf));
  };
}

http::Handler Guarded(const ProxiedGuard& guard, std::function<Wanted(const http::Request&)> wanted,
                      http::Handler handler) {
  return [guard, wanted = std::move(wanted), handler = std::move(handler)](
             http::Request& request, const http::Responder& responder) {
    const absl::StatusOr<std::optional<Caller>> caller =
        guard.proxy->CallerOf(request, guard.clock());
    if (!caller.ok()) return responder.Send(guard.refuse(caller.status()));
    const auto kept = std::make_shared<http::Request>(std::move(request));
    const AccessControl::Done done = GoOn(kept, responder, handler, guard.refuse);
    if (*caller) {
      // All come from the API server's address.
      guard.access->CheckCaller(**caller, (*caller)->user, wanted(*kept), done);
    } else {
      guard.access->Check(kept->authorization, kept->peer, wanted(*kept), done);
    }
  };
}

}  // namespace muster::extender
