// What queries read: the newest message of each gang and node, published by the engine's thread.
//
// Messages are immutable once published, so a reader shares them and never waits for the engine.
// A subscription remembers WHICH gangs have changed, not how often: a slow reader misses versions
// in between, never the last, and what waits for it is bounded by the number of gangs. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coscheduling/engine.h"

namespace muster::v1 {
class ListNodesResponse;
}

namespace muster::extender {

using GangMessage = std::shared_ptr<const v1::Gang>;

// The nodes at one moment, and their JSON, made once when it is first asked for.
class NodeList {
 public:
  explicit NodeList(std::unique_ptr<const v1::ListNodesResponse> message);
  ~NodeList();
  const v1::ListNodesResponse& message() const { return *message_; }
  const std::string& Json() const;

 private:
  const std::unique_ptr<const v1::ListNodesResponse> message_;
  mutable std::once_flag once_;
  mutable std::string json_;
};

// Empty fields match everything.
struct GangFilter {
  std::string name_space;
  std::string name;
};

struct GangChange {
  GangMessage gang;  // never null
  bool deleted = false;
};

class StateStore;

// First every gang as it is, then each that changes. Used by one thread at a time.
class GangSubscription {
 public:
  ~GangSubscription();
  // nullopt: nothing now, `wake` will be called.
  std::optional<GangChange> Next();
  // Fell so far behind that deletions had to be forgotten, or the store was closed: the reader must
  // start anew.
  bool lost() const;

 private:
  friend class StateStore;
  struct State;
  GangSubscription(StateStore* store, std::shared_ptr<State> state);
  StateStore* const store_;
  const std::shared_ptr<State> state_;
};

// First the nodes as they are, then the newest after each change.
class NodeSubscription {
 public:
  ~NodeSubscription();
  // Null: nothing new.
  std::shared_ptr<const NodeList> Next();
  // The store was closed: the reader must start anew.
  bool lost() const;

 private:
  friend class StateStore;
  struct State;
  NodeSubscription(StateStore* store, std::shared_ptr<State> state);
  StateStore* const store_;
  const std::shared_ptr<State> state_;
};

class StateStore {
 public:
  struct Limits {
    size_t subscriptions = 256;
    // Changes that may wait for one reader.
    size_t waiting = 100'000;
  };
  explicit StateStore(Limits limits);
  StateStore() : StateStore(Limits()) {}
  // After all subscriptions.
  ~StateStore();
  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;

  // A null message: the gang is gone.
  void Publish(const std::vector<std::pair<coscheduling::GangKey, GangMessage>>& gangs);
  void Publish(std::unique_ptr<const v1::ListNodesResponse> nodes);

  // What is here isn't kept up at the moment, with the reason: nobody should be shown it. Open
  // subscriptions are lost. "" opens it again.
  void SetClosed(const std::string& why);
  // OK, or Unavailable with that reason. To be asked before anything below is read for somebody.
  absl::Status Readable() const;

  // In order of namespace and name.
  std::vector<GangMessage> Gangs(const GangFilter& filter) const;
  // The PodGroup's gang if a pod's gang has the same name. Null if there is none.
  GangMessage FindGang(std::string_view name_space, std::string_view name) const;
  // Never null.
  std::shared_ptr<const NodeList> Nodes() const;

  // `wake` is called on the publishing thread whenever Next has something again, perhaps once more
  // after the subscription has ended; it must not block. ResourceExhausted past the limit,
  // Unavailable while closed.
  absl::StatusOr<std::unique_ptr<GangSubscription>> WatchGangs(GangFilter filter,
                                                               std::function<void()> wake);
  absl::StatusOr<std::unique_ptr<NodeSubscription>> WatchNodes(std::function<void()> wake);
  size_t subscriptions() const;
  // OK, or the error that WatchGangs and WatchNodes would give now.
  absl::Status RoomForWatch() const;

 private:
  friend class GangSubscription;
  friend class NodeSubscription;
  absl::Status RoomLocked() const;

  const Limits limits_;
  mutable std::mutex mutex_;  // guards what follows, and the state of all subscriptions
  std::string closed_;
  std::map<coscheduling::GangKey, GangMessage> gangs_;
  std::shared_ptr<const NodeList> nodes_;
  std::vector<std::shared_ptr<GangSubscription::State>> gang_readers_;
  std::vector<std::shared_ptr<NodeSubscription::State>> node_readers_;
};

}  // namespace muster::extender
