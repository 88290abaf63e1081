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
#include "absl/time/time.h"
#include "coscheduling/engine.h"
#include "extender/published.h"

namespace muster::v1 {
class Node;
class Queue;
}  // namespace muster::v1

namespace muster::extender {

// What is published as a whole: v1::ListNodesResponse, ListQueuesResponse, ListFlavorsResponse.
enum class Listed { kNodes, kQueues, kFlavors };
inline constexpr size_t kListedKinds = 3;

// Empty fields match everything.
struct GangFilter {
  std::string name_space;
  std::string name;
};

// A part of a list, in its order.
struct GangPage {
  size_t limit = 0;       // gangs at most; 0: all
  std::string from = {};  // GangPages::next of the page before; "" for the first
};
struct GangPages {
  std::vector<SharedGang> gangs;
  std::string next;      // names the page after; "" if this is the last
  uint64_t version = 0;  // of the store: a watch since then tells of what isn't in `gangs`
};
// InvalidArgument, naming `continue`, if no page is called so.
absl::Status Check(const GangPage& page);

struct GangChange {
  SharedGang gang;  // never null; if deleted, as it was last
  bool deleted = false;
  // It came since the change that the reader had read before. A slow reader may read of it first
  // when it has changed since.
  bool is_new = false;
  uint64_t version = 0;  // of this change
};

class StateStore;

// The ClusterQueue of that name, or with a namespace the LocalQueue, as published last.
std::optional<v1::Queue> FindQueue(const StateStore& store, std::string_view name_space,
                                   std::string_view name);

// Its name, or that of its NodeClaim while it has none.
const std::string& NameOf(const v1::Node& node);
// As published last, by its name, or by that of its NodeClaim while it has none.
std::optional<v1::Node> FindNode(const StateStore& store, std::string_view name);

// First every gang as it is, then each that changes; or what changed since a version, then
// likewise. Used by one thread at a time.
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

// How whoever reads a subscription for a stream passes it on: pieces of about so many bytes, so
// that many changes share a write, and a rest after each, so that what thousands of watches cost is
// bounded however much changes.
inline constexpr size_t kWatchPieceBytes = 64 << 10;
inline constexpr absl::Duration kWatchRest = absl::Milliseconds(250);

class StateStore {
 public:
  struct Limits {
    size_t subscriptions = 256;
    // Gangs that are gone: those that some reader has yet to hear of, and how many of the last ones
    // are remembered in any case, for readers that come back.
    size_t gone = 10'000;
    size_t remembered = 256;
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
  // Which time it is that it is open: another number after each time it was closed, and greater. In
  // microseconds of the clock, so that it is greater than those of earlier processes, too.
  uint64_t epoch() const;

  // In order of namespace and name.
  std::vector<SharedGang> Gangs(const GangFilter& filter) const;
  // One that came or went since the page before is on this page or on none, and no other is left
  // out or comes twice. `page` has been checked.
  GangPages GangsOn(const GangFilter& filter, const GangPage& page) const;
  // The PodGroup's gang if a pod's gang has the same name. Null if there is none.
  SharedGang FindGang(std::string_view name_space, std::string_view name) const;
  // Never null.
  std::shared_ptr<const MessageList> List(Listed kind) const;

  // With `since`, only what changed after that version is read: OutOfRange if that isn't known any
  // more, or never was by this process.
  // `wake` is called on the publishing thread whenever Next has something again, perhaps once more
  // after the subscription has ended; it must not block. ResourceExhausted past the limit,
  // Unavailable while closed.
  absl::StatusOr<std::unique_ptr<GangSubscription>> WatchGangs(
      GangFilter filter, std::function<void()> wake, std::optional<uint64_t> since = std::nullopt);
  absl::StatusOr<std::unique_ptr<ListSubscription>> WatchList(Listed kind,
                                                              std::function<void()> wake);
  size_t subscriptions() const;
  // OK, or the error that WatchGangs and WatchList would give now.
  absl::Status RoomForWatch(std::optional<uint64_t> since = std::nullopt) const;

 private:
  friend class GangSubscription;
  friend class ListSubscription;
  using Changes = std::map<uint64_t, coscheduling::GangKey>;
  using Readers = std::vector<std::shared_ptr<GangSubscription::State>>;
  struct Entry {
    SharedGang gang;  // if it is gone, as it was last
    uint64_t version = 0;
    uint64_t born = 0;  // the version with which it came
    size_t unread = 0;  // of one that is gone: how many have yet to hear of it
  };
  using Entries = std::map<coscheduling::GangKey, Entry>;

  // All of these with the lock.
  absl::Status RoomLocked(std::optional<uint64_t> since) const;
  const Changes* ChangesFor(const GangFilter& filter) const;
  std::optional<GangChange> Next(GangSubscription::State& reader);
  void PublishOne(const coscheduling::GangKey& key, SharedGang gang, Readers* concerned);
  void Erase(Entries::iterator gone);
  void ForgetOldest();
  void LoseReadersOfOldest(Readers* concerned);
  void Trim(Readers* concerned);
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
  std::map<uint64_t, coscheduling::GangKey> gone_order_;  // by version
  // Grows with each change, and begins anew whenever the store opens, with the time in
  // microseconds: so it grows from one process to the next, too.
  uint64_t version_;
  uint64_t epoch_;      // that version when it was opened last
  uint64_t forgotten_;  // no deletion after it is
  std::array<std::shared_ptr<const MessageList>, kListedKinds> lists_;
  // By the namespace that they read, "" if all.
  std::map<std::string, Readers, std::less<>> gang_readers_;
  std::vector<std::shared_ptr<ListSubscription::State>> list_readers_;
  uint64_t publications_ = 0;
  size_t subscriptions_ = 0;
};

}  // namespace muster::extender
