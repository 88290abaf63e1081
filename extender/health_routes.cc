#include "extender/health_routes.h"

#include <memory>
#include <utility>

#include "fmt/format.h"

namespace muster::extender {
namespace {

http::Response PlainText(int status, std::string text) {
  return {status, "text/plain; charset=utf-8", std::move(text), {}};
}

http::Response Health(const HealthSources::Plane& plane) {
  const std::string fault = plane.fault();
  return fault.empty() ? PlainText(200, "ok")
                       : PlainText(503, fmt::format("{}: {}", plane.name, fault));
}

}  // namespace

std::string SilenceOf(const std::string& who, absl::Duration silent) {
  if (silent <= kLongestSilence) return "";
  return fmt::format("{} has done nothing for {:.0f} s", who, absl::ToDoubleSeconds(silent));
}

http::Response Readiness(const std::string& not_ready_reason, const std::string& no_leader_reason) {
  if (!not_ready_reason.empty()) return PlainText(503, "not ready: " + not_ready_reason);
  return PlainText(200, no_leader_reason.empty() ? "ok" : "ok; " + no_leader_reason);
}

std::vector<http::Route> HealthRoutes(HealthSources sources) {
  const auto shared = std::make_shared<const HealthSources>(std::move(sources));
  return {
      {"GET", "/healthz",
       [shared](const http::Request&, const http::Responder& responder) {
         responder.Send(Health(shared->planes.front()));
       }},
      {"GET", "/healthz/{plane}",
       [shared](const http::Request& request, const http::Responder& responder) {
         for (const HealthSources::Plane& plane : shared->planes) {
           if (plane.name == request.captures[0]) return responder.Send(Health(plane));
         }
         responder.Send(PlainText(404, "there is no plane " + request.captures[0]));
       }},
      {"GET", "/readyz",
       [shared](const http::Request&, const http::Responder& responder) {
         responder.Send(Readiness(shared->not_ready_reason(), shared->no_leader_reason()));
       }},
  };
}

}  // namespace muster::extender
