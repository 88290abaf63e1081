// What queries read: the newest message of each gang, and the newest lists of nodes, queues and
// flavors, published by the engine's thread.
//
// Messages are immutable once published, so a reader shares them and never waits for the engine.
// A subscription remembers WHICH gangs have changed, not how often: a slow reader misses versions
// in between, never the last, and what waits for it is bounded by the number of gangs. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
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

namespace google::protobuf {
class Message;
}

namespace muster::v1 {
class Queue;
}

namespace muster::extender {

using GangMessage = std::shared_ptr<const v1::Gang>;

// What is published as a whole: v1::ListNodesResponse, ListQueuesResponse, ListFlavorsResponse.
enum class Listed { kNodes, kQueues, kFlavors };
inline constexpr size_t kListedKinds = 3;

// A list at one moment, and its JSON, made once when it is first asked for.
class MessageList {
 public:
  explicit MessageList(std::unique_ptr<const google::protobuf::Message> message);
  ~MessageList();
  const google::protobuf::Message& message() const { return *message_; }
  const std::string& Json() const;

 private:
  const std::unique_ptr<const google::protobuf::Message> message_;
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

// The ClusterQueue of that name, or with a namespace the LocalQueue, as published last.
std::optional<v1::Queue> FindQueue(const StateStore& store, std::string_view name_space,
                                   std::string_view name);

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

// First the list as it is, then the newest after each change.
class ListSubscription {
 public:
  ~ListSubscription();
  // Null: nothing new.
  std::shared_ptr<const MessageList> Next();
  // The store was closed: the reader must start anew.
  bool lost() const;

 private:
  friend class StateStore;
  struct State;
  ListSubscription(StateStore* store, std::shared_ptr<State> state);
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
  void Publish(Listed kind, std::unique_ptr<const google::protobuf::Message> message);

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
  std::shared_ptr<const MessageList> List(Listed kind) const;

  // `wake` is called on the publishing thread whenever Next has something again, perhaps once more
  // after the subscription has ended; it must not block. ResourceExhausted past the limit,
  // Unavailable while closed.
  absl::StatusOr<std::unique_ptr<GangSubscription>> WatchGangs(GangFilter filter,
                                                               std::function<void()> wake);
  absl::StatusOr<std::unique_ptr<ListSubscription>> WatchList(Listed kind,
                                                              std::function<void()> wake);
  size_t subscriptions() const;
  // OK, or the error that WatchGangs and WatchList would give now.
  absl::Status RoomForWatch() const;

 private:
  friend class GangSubscription;
  friend class ListSubscription;
  absl::Status RoomLocked() const;

  const Limits limits_;
  mutable std::mutex mutex_;  // guards what follows, and the state of all subscriptions
  std::string closed_;
  std::map<coscheduling::GangKey, GangMessage> gangs_;
  std::array<std::shared_ptr<const MessageList>, kListedKinds> lists_;
  std::vector<std::shared_ptr<GangSubscription::State>> gang_readers_;
  std::vector<std::shared_ptr<ListSubscription::State>> list_readers_;
};

}  // namespace muster::extender
