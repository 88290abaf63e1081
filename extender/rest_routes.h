// The query interface: what is known of gangs and nodes, for people and tools, over HTTP.
//
//   GET /v1/gangs[?namespace=N][&limit=L][&continue=C]  ListGangsResponse
//   GET /v1/gangs?watch=true[&namespace=N]       GangEvent
//   GET /v1/gangs/{namespace}/{name}[?watch=true]    Gang
//   GET /v1/nodes[?watch=true]                   ListNodesResponse
//   GET /v1/nodes/{name}                         Node
//   GET /v1/queues[?watch=true]                  ListQueuesResponse
//   GET /v1/queues/{name}, /v1/queues/{namespace}/{name}    Queue
//   GET /v1/flavors[?watch=true]                 ListFlavorsResponse
//   GET /openapi.json, /metrics, /healthz, /readyz, / and its files (web page)
//
// Bodies are the JSON mapping of proto/muster/v1/admission.proto. A watch sends one object per
// line: GangEvent for gangs, ListNodesResponse for nodes. Errors are application/problem+json
// (access/problem.h); 503 from /v1 of a process that doesn't lead names the one that does, 429 says
// that too many watches are open. Of /v1 each path asks AccessControl first; the others are
// everyone's.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "extender/access/access_control.h"
#include "extender/state_store.h"
#include "http/server.h"

namespace muster::extender {

struct RestSources {
  // Must outlive the server.
  StateStore* store = nullptr;
  // The Prometheus text exposition.
  std::function<std::string()> metrics;
  // "" if ready, else what is missing.
  std::function<std::string()> not_ready_reason;
  // "" while a live leader is known, else why not: gangs wait, though this process may be ready.
  std::function<std::string()> no_leader_reason;
  // Must outlive the server, and be stopped before it is; null: everyone may ask.
  AccessControl* access = nullptr;
  // So long at least, and at most twice, a watch goes on by one answer of `access`.
  absl::Duration watch_life = absl::Minutes(10);
};

std::vector<http::Route> RestRoutes(RestSources sources);

}  // namespace muster::extender
