// What a scenario looks at: the feed that the engine lives on, and expectations.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kube/embedded/object_store.h"
#include "simulation/faults.h"
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

struct WatchedKind {
  const char* name;  // "pod", as objects are named in scenarios
  const char* path;
  void (*deliver)(coscheduling::Engine*, bool deleted, const std::string& json);
  const char* field_selector = "";
};

// One watched kind, handed to the engine object by object, as the reflector of kube/client would
// hand it over: with `faults`, late, cut off and read anew, and twice.
class Feed {
 public:
  // Everything that is there is handed over at once.
  Feed(kube::embedded::ApiServer* server, const WatchedKind& kind, coscheduling::Engine* engine,
       Faults* faults, absl::Time now);
  ~Feed();
  Feed(Feed&&) noexcept;
  Feed& operator=(Feed&&) noexcept;

  // False where the server doesn't know the kind.
  bool is_open() const { return session_ != nullptr; }
  // Everything that has arrived. True if there was anything.
  bool Read(absl::Time now);
  // When something arrives that is under way now; InfiniteFuture if nothing is.
  absl::Time NextArrival() const;

 private:
  struct Item {
    absl::Time arrival;
    std::string key;  // "namespace/name"
    bool deleted = false;
    bool repeats_older = false;  // the version before comes once more, after it
    kube::embedded::ObjectPtr object;
  };
  void Open();
  void Deliver(const Item& item);
  // What the server has sent, on its way.
  bool Receive(absl::Time now);
  bool ReadAnew(absl::Time now);

  kube::embedded::ApiServer* server_;
  WatchedKind kind_;
  coscheduling::Engine* engine_;
  Faults* faults_;
  std::unique_ptr<kube::embedded::WatchSession> session_;
  absl::Time reopens_ = absl::InfiniteFuture();  // while it is broken
  absl::Time last_arrival_ = absl::InfinitePast();
  std::deque<Item> coming_;
  std::map<std::string, kube::embedded::ObjectPtr> known_;  // as delivered
};

// "namespace/name" of the gang that observers count a pod to: its own name if nothing names one.
std::string GangOf(const kube::Pod& pod);

// All objects of a kind, or those that the selector lets through, and what happens to them, without
// end.
std::unique_ptr<kube::embedded::WatchSession> OpenWatch(kube::embedded::ApiServer* server,
                                                        const char* path,
                                                        const char* field_selector = "");

// All kinds the engine reads, from their present state on, which it has been handed.
std::vector<Feed> WatchEverything(kube::embedded::ApiServer* server, coscheduling::Engine* engine,
                                  Faults* faults, absl::Time now);

// OK, or what was found where `want` says otherwise. `gang` is "namespace/name".
absl::Status Compare(const Expectation& want, const std::string& gang,
                     kube::embedded::ApiServer& server, const coscheduling::Engine& engine);

}  // namespace muster::simulation
