// What a scenario looks at: the feed that the engine lives on, and expectations.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "simulation/scenario.h"

namespace muster::kube::embedded {
class ApiServer;
class WatchSession;
}  // namespace muster::kube::embedded

namespace muster::coscheduling {
class Engine;
}

namespace muster::kube {
struct Pod;
}

namespace muster::simulation {

// One watched kind, handed to the engine object by object.
class Feed {
 public:
  using Deliver = void (*)(coscheduling::Engine*, bool deleted, const std::string& json);
  Feed(std::unique_ptr<kube::embedded::WatchSession> session, coscheduling::Engine* engine,
       Deliver deliver);
  ~Feed();
  Feed(Feed&&) noexcept;
  Feed& operator=(Feed&&) noexcept;

  // Everything that has arrived. True if there was anything.
  bool Read();

 private:
  std::unique_ptr<kube::embedded::WatchSession> session_;
  coscheduling::Engine* engine_;
  Deliver deliver_;
};

// "namespace/name" of the gang that observers count a pod to: its own name if nothing names one.
std::string GangOf(const kube::Pod& pod);

// All objects of a kind, or those that the selector lets through, and what happens to them, without
// end.
std::unique_ptr<kube::embedded::WatchSession> OpenWatch(kube::embedded::ApiServer* server,
                                                        const char* path,
                                                        const char* field_selector = "");

// All kinds the engine reads, from their present state on.
std::vector<Feed> WatchEverything(kube::embedded::ApiServer* server, coscheduling::Engine* engine);

// OK, or what was found where `want` says otherwise. `gang` is "namespace/name".
absl::Status Compare(const Expectation& want, const std::string& gang,
                     kube::embedded::ApiServer& server, const coscheduling::Engine& engine);

}  // namespace muster::simulation
