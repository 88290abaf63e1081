// What queries read: the newest version of each gang, and the newest lists of nodes, queues and
// flavors, as they were published.
//
// What is published is immutable, so a reader shares it. A subscription remembers up to WHICH
// change it has read, and each gang has one place in the order of changes, that of its newest: a
// slow reader misses versions in between, never the last, and costs no memory; a reader finds its
// next change without looking at others. Thread-safe.
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
#include "extender/published.h"

namespace muster::v1 {
class Queue;
}

namespace muster::extender {

// What is published as a whole: v1::ListNodesResponse, ListQueuesResponse, ListFlavorsResponse.
enum class Listed { kNodes, kQueues, kFlavors };
inline constexpr size_t kListedKinds = 3;

// Empty fields match everything.
struct GangFilter {
  std::string name_space;
  std::string name;
};

struct GangChange {
  SharedGang gang;  // never null
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
  // Deletions that it hadn't read had to be forgotten, or the store was closed: the reader must
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
    // Gangs that are gone, and that some reader has yet to hear of.
    size_t gone = 10'000;
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
  std::vector<SharedGang> Gangs(const GangFilter& filter) const;
  // The PodGroup's gang if a pod's gang has the same name. Null if there is none.
  SharedGang FindGang(std::string_view name_space, std::string_view name) const;
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
  using Changes = std::map<uint64_t, coscheduling::GangKey>;
  using Readers = std::vector<std::shared_ptr<GangSubscription::State>>;
  struct Entry {
    SharedGang gang;  // if it is gone, as it was last
    uint64_t version = 0;
    size_t unread = 0;  // of one that is gone: how many have yet to hear of it
  };
  using Entries = std::map<coscheduling::GangKey, Entry>;

  // All of these with the lock.
  absl::Status RoomLocked() const;
  const Changes* ChangesFor(const GangFilter& filter) const;
  std::optional<GangChange> Next(GangSubscription::State& reader);
  void PublishOne(const coscheduling::GangKey& key, SharedGang gang, Readers* concerned);
  void Forget(Entries::iterator gone);
  void ForgetTheOldest(Readers* concerned);
  void Read(GangSubscription::State& reader, Entries::iterator gone);
  void Leave(GangSubscription::State& reader);
  void Concern(const std::shared_ptr<GangSubscription::State>& reader, Readers* concerned);
  template <typename Function>
  void ForEachReader(const coscheduling::GangKey& key, Function function);

  const Limits limits_;
  mutable std::mutex mutex_;  // guards what follows, and the state of all subscriptions
  std::string closed_;
  Entries gangs_;
  Entries gone_;
  // Of both, by the newest version of each; all, and by namespace.
  Changes changes_;
  std::map<std::string, Changes, std::less<>> changes_in_;
  uint64_t version_ = 0;
  std::array<std::shared_ptr<const MessageList>, kListedKinds> lists_;
  // By the namespace that they read, "" if all.
  std::map<std::string, Readers, std::less<>> gang_readers_;
  std::vector<std::shared_ptr<ListSubscription::State>> list_readers_;
  uint64_t publications_ = 0;
  size_t subscriptions_ = 0;
};

}  // namespace muster::extender
