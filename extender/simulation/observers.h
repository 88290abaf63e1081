// What a scenario looks at: the feed that the engine lives on, expectations, and invariants.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "extender/simulation/scenario.h"
#include "kube/api.h"

namespace muster::kube::embedded {
class ApiServer;
class WatchSession;
}  // namespace muster::kube::embedded

namespace muster::coscheduling {
class Engine;
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

// All kinds the engine reads, from their present state on.
std::vector<Feed> WatchEverything(kube::embedded::ApiServer* server, coscheduling::Engine* engine);

// OK, or what was found where `want` says otherwise. `gang` is "namespace/name".
absl::Status Compare(const Expectation& want, const std::string& gang,
                     kube::embedded::ApiServer& server, const coscheduling::Engine& engine);

// What holds at every moment of every scenario.
class Invariants {
 public:
  // With `undisturbed_commits`, a commit is whole at every moment unless the world outside touched
  // a pod; without (writes get lost), it may be partial for a bounded time.
  explicit Invariants(bool undisturbed_commits) : undisturbed_commits_(undisturbed_commits) {}

  // A request of the world outside: a deleted or failed member excuses its gang from being whole.
  void Note(const kube::Request& request);
  absl::Status Check(kube::embedded::ApiServer& server, const coscheduling::Engine& engine,
                     absl::Time now);

 private:
  bool undisturbed_commits_;
  bool disturbed_ = false;  // a pod was deleted or changed from outside
  std::map<std::string, absl::Time> partial_since_;
};

}  // namespace muster::simulation
