// A watch as Kubernetes has it: a stream of ADDED, MODIFIED and DELETED, each with the whole
// object, and ERROR before it ends where it can't go on from what it told.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "extender/aggregated/api_objects.h"
#include "http/server.h"

namespace muster::extender {

struct ApiWatch {
  std::shared_ptr<ApiObjects> objects;
  GangFilter filter = {};
  // metadata.resourceVersion of a list or an event; nullopt: first all that are there.
  std::optional<uint64_t> since = {};
  absl::Time until = absl::InfiniteFuture();
  // An object in the form that was asked for.
  std::function<std::string(const ApiItem& item)> object;
  // metav1.Status: what changed isn't known any more.
  std::string expired;
};

std::unique_ptr<http::StreamSource> WatchOf(ApiWatch watch);

}  // namespace muster::extender
