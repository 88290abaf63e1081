// From a request's target to its route.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/server.h"

namespace muster::http {

// "/v1/gangs/a%20b?watch=true" split and unescaped. nullopt if it is no origin-form target or an
// escape is malformed. An escaped slash stays inside its segment: matching splits first.
struct Target {
  std::vector<std::string> segments;  // {"v1", "gangs", "a b"}; "/" has none
  std::string path;
  std::vector<std::pair<std::string, std::string>> query;
};
std::optional<Target> ParseTarget(std::string_view target);

// Immutable after construction, so read by any thread.
class Router {
 public:
  explicit Router(std::vector<Route> routes);

  struct Match {
    const Route* route = nullptr;  // null: no route for this path, or for this method
    std::vector<std::string> captures;
    std::string allow;  // methods of the path if only the method didn't match: "GET, POST"
  };
  Match Find(std::string_view method, const Target& target) const;

 private:
  struct Entry {
    Route route;
    std::vector<std::string> segments;
  };
  std::vector<Entry> entries_;
};

}  // namespace muster::http
