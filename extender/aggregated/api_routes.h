// The query interface as an API group of Kubernetes, for the API server to hand requests on to: so
// kubectl, its plugins and the API server's audit work, and a user is who he is there.
//
//   GET /apis/visibility.muster.dev/v1beta1/[namespaces/{namespace}/]{resource}[/{name}]
//   GET /apis, /apis/visibility.muster.dev, /apis/visibility.muster.dev/v1beta1, /openapi/v2, /v3
//
// Resources are those of api_resources.h, read and watched (api_watch.h), also as tables for
// kubectl. Each takes the right of its own name, by which the API server itself has judged before;
// the documents are everyone's. Errors are metav1.Status.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "extender/access/access_control.h"
#include "extender/access/front_proxy.h"
#include "extender/state_store.h"
#include "http/server.h"

namespace muster::extender {

// All must outlive the server, and `access` be stopped before it is.
struct ApiSources {
  StateStore* store = nullptr;
  AccessControl* access = nullptr;
  const FrontProxy* proxy = nullptr;
  std::function<absl::Time()> clock;
  // So long at least, and at most twice, a watch goes on by one answer of `access`.
  absl::Duration watch_life = absl::Minutes(10);
};

std::vector<http::Route> ApiRoutes(const ApiSources& sources);

// A refusal of the server's own, for http::ServerOptions::refusal.
http::Response ApiRefusal(int status, std::string message);

}  // namespace muster::extender
