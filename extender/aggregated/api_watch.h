// A watch of gangs as Kubernetes has it: a stream of ADDED, MODIFIED and DELETED, each with the
// whole object, and ERROR before it ends where it can't go on from what it told.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "extender/state_store.h"
#include "http/server.h"

namespace muster::extender {

struct ApiWatch {
  StateStore* store = nullptr;  // must outlive the server
  GangFilter filter = {};
  // metadata.resourceVersion of a list or an event; nullopt: first all that are there.
  std::optional<uint64_t> since = {};
  absl::Time until = absl::InfiniteFuture();
  // A gang, at that version, in the form that was asked for.
  std::function<std::string(const SharedGang& gang, uint64_t version)> object;
  // metav1.Status: what changed isn't known any more.
  std::string expired;
};

std::unique_ptr<http::StreamSource> WatchOf(ApiWatch watch);

}  // namespace muster::extender
