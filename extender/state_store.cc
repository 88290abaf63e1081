#include "extender/state_store.h"

#include <iterator>
#include <utility>

#include "fmt/format.h"
#include "muster/v1/admission.pb.h"

namespace muster::extender {

using coscheduling::GangKey;

// Guarded by the store's mutex, but for what doesn't change.
struct GangSubscription::State {
  const GangFilter filter;
  const std::function<void()> wake;
  // What was gone by then isn't told.
  const uint64_t since = 0;
  // What it has read, up to here.
  uint64_t position = 0;
  uint64_t concerned_by = 0;  // the last publication that it is to hear of
  bool lost = false;

  bool Matches(const GangKey& key) const {
    return (filter.name_space.empty() || filter.name_space == key.name_space) &&
           (filter.name.empty() || filter.name == key.name);
  }
  // Whether it is to hear that a gang was gone as of `version`, and hasn't yet.
  bool Awaits(uint64_t version) const { return !lost && version > position && version > since; }
};

struct ListSubscription::State {
  const Listed kind = Listed::kNodes;
  const std::function<void()> wake;
  bool changed = true;
  bool lost = false;
};

GangSubscription::GangSubscription(StateStore* store, std::shared_ptr<State> state)
    : store_(store), state_(std::move(state)) {}

GangSubscription::~GangSubscription() {
  std::lock_guard lock(store_->mutex_);
  store_->Leave(*state_);
  const auto readers = store_->gang_readers_.find(state_->filter.name_space);
  std::erase(readers->second, state_);
  if (readers->second.empty()) store_->gang_readers_.erase(readers);
  --store_->subscriptions_;
}

std::optional<GangChange> GangSubscription::Next() {
  std::lock_guard lock(store_->mutex_);
  return store_->Next(*state_);
}

bool GangSubscription::lost() const {
  std::lock_guard lock(store_->mutex_);
  return state_->lost;
}

ListSubscription::ListSubscription(StateStore* store, std::shared_ptr<State> state)
    : store_(store), state_(std::move(state)) {}

ListSubscription::~ListSubscription() {
  std::lock_guard lock(store_->mutex_);
  std::erase(store_->list_readers_, state_);
  --store_->subscriptions_;
}

bool ListSubscription::lost() const {
  std::lock_guard lock(store_->mutex_);
  return state_->lost;
}

std::shared_ptr<const MessageList> ListSubscription::Next() {
  std::lock_guard lock(store_->mutex_);
  if (!std::exchange(state_->changed, false)) return nullptr;
  return store_->lists_[static_cast<size_t>(state_->kind)];
}

StateStore::StateStore(Limits limits)
    : limits_(limits),
      lists_{std::make_shared<const MessageList>(std::make_unique<v1::ListNodesResponse>()),
             std::make_shared<const MessageList>(std::make_unique<v1::ListQueuesResponse>()),
             std::make_shared<const MessageList>(std::make_unique<v1::ListFlavorsResponse>())} {}
StateStore::~StateStore() = default;

template <typename Function>
void StateStore::ForEachReader(const GangKey& key, Function function) {
  for (const std::string_view of : {std::string_view(), std::string_view(key.name_space)}) {
    const auto readers = gang_readers_.find(of);
    if (readers == gang_readers_.end()) continue;
    for (const auto& reader : readers->second) {
      if (!reader->lost && reader->Matches(key)) function(reader);
    }
  }
}

void StateStore::Publish(const std::vector<std::pair<GangKey, GangMessage>>& gangs) {
  std::vector<SharedGang> published;
  published.reserve(gangs.size());
  for (const auto& [key, message] : gangs) {
    published.push_back(message ? std::make_shared<const PublishedGang>(message) : nullptr);
  }
  Readers concerned;
  {
    std::lock_guard lock(mutex_);
    ++publications_;
    for (size_t i = 0; i < gangs.size(); ++i) {
      PublishOne(gangs[i].first, std::move(published[i]), &concerned);
    }
  }
  for (const auto& reader : concerned) reader->wake();
}

void StateStore::PublishOne(const GangKey& key, SharedGang gang, Readers* concerned) {
  auto entry = gangs_.find(key);
  if (!gang && entry == gangs_.end()) return;
  const uint64_t version = ++version_;
  if (entry != gangs_.end()) {
    changes_.erase(entry->second.version);
    changes_in_[key.name_space].erase(entry->second.version);
  } else if (const auto gone = gone_.find(key); gone != gone_.end()) {
    Forget(gone);
  }
  size_t unread = 0;
  ForEachReader(key, [&](const std::shared_ptr<GangSubscription::State>& reader) {
    Concern(reader, concerned);
    ++unread;
  });
  if (gang) {
    gangs_[key] = {std::move(gang), version, 0};
  } else if (unread > 0) {
    gone_[key] = {std::move(entry->second.gang), version, unread};
    gangs_.erase(entry);
  } else {
    gangs_.erase(entry);
    if (changes_in_[key.name_space].empty()) changes_in_.erase(key.name_space);
    return;
  }
  changes_.emplace(version, key);
  changes_in_[key.name_space].emplace(version, key);
  if (gone_.size() > limits_.gone) ForgetTheOldest(concerned);
}

void StateStore::Concern(const std::shared_ptr<GangSubscription::State>& reader,
                         Readers* concerned) {
  if (std::exchange(reader->concerned_by, publications_) != publications_) {
    concerned->push_back(reader);
  }
}

void StateStore::Forget(Entries::iterator gone) {
  const uint64_t version = gone->second.version;
  changes_.erase(version);
  const auto in = changes_in_.find(gone->first.name_space);
  in->second.erase(version);
  if (in->second.empty()) changes_in_.erase(in);
  gone_.erase(gone);
}

void StateStore::ForgetTheOldest(Readers* concerned) {
  auto oldest = gone_.begin();
  for (auto gone = gone_.begin(); gone != gone_.end(); ++gone) {
    if (gone->second.version < oldest->second.version) oldest = gone;
  }
  const GangKey key = oldest->first;
  const uint64_t version = oldest->second.version;
  std::vector<std::shared_ptr<GangSubscription::State>> slow;
  ForEachReader(key, [&](const std::shared_ptr<GangSubscription::State>& reader) {
    if (reader->Awaits(version)) slow.push_back(reader);
  });
  for (const auto& reader : slow) {
    Concern(reader, concerned);
    Leave(*reader);
    reader->lost = true;
  }
}

void StateStore::Read(GangSubscription::State& reader, Entries::iterator gone) {
  if (!reader.Awaits(gone->second.version)) return;
  if (--gone->second.unread == 0) Forget(gone);
}

// As if it had read all.
void StateStore::Leave(GangSubscription::State& reader) {
  if (reader.lost) return;
  for (auto gone = gone_.begin(); gone != gone_.end();) {
    const auto next = std::next(gone);
    if (reader.Matches(gone->first)) Read(reader, gone);
    gone = next;
  }
}

const StateStore::Changes* StateStore::ChangesFor(const GangFilter& filter) const {
  if (filter.name_space.empty()) return &changes_;
  const auto in = changes_in_.find(filter.name_space);
  return in == changes_in_.end() ? nullptr : &in->second;
}

std::optional<GangChange> StateStore::Next(GangSubscription::State& reader) {
  if (reader.lost) return std::nullopt;
  const Changes* changes = ChangesFor(reader.filter);
  if (changes == nullptr) return std::nullopt;
  for (auto at = changes->upper_bound(reader.position); at != changes->end();) {
    const uint64_t version = at->first;
    const GangKey key = at->second;
    ++at;  // before what it stands at may be forgotten
    if (!reader.Matches(key)) {
      reader.position = version;
      continue;
    }
    if (const auto current = gangs_.find(key); current != gangs_.end()) {
      reader.position = version;
      return GangChange{current->second.gang, false};
    }
    const auto gone = gone_.find(key);
    std::optional<GangChange> change;
    if (version > reader.since) change = GangChange{gone->second.gang, true};
    Read(reader, gone);
    reader.position = version;
    if (change) return change;
  }
  return std::nullopt;
}

void StateStore::Publish(Listed kind, std::unique_ptr<const google::protobuf::Message> message) {
  auto list = std::make_shared<const MessageList>(std::move(message));
  std::vector<std::shared_ptr<ListSubscription::State>> concerned;
  {
    std::lock_guard lock(mutex_);
    lists_[static_cast<size_t>(kind)].swap(list);  // the old list is freed after the lock
    for (const auto& reader : list_readers_) {
      if (reader->kind != kind) continue;
      reader->changed = true;
      concerned.push_back(reader);
    }
  }
  for (const auto& reader : concerned) reader->wake();
}

void StateStore::SetClosed(const std::string& why) {
  std::vector<std::shared_ptr<GangSubscription::State>> of_gangs;
  std::vector<std::shared_ptr<ListSubscription::State>> of_lists;
  {
    std::lock_guard lock(mutex_);
    closed_ = why;
    if (why.empty()) return;
    for (const auto& [name_space, readers] : gang_readers_) {
      for (const auto& reader : readers) {
        if (!std::exchange(reader->lost, true)) of_gangs.push_back(reader);
      }
    }
    while (!gone_.empty()) Forget(gone_.begin());
    for (const auto& reader : list_readers_) {
      if (!std::exchange(reader->lost, true)) of_lists.push_back(reader);
    }
  }
  for (const auto& reader : of_gangs) reader->wake();
  for (const auto& reader : of_lists) reader->wake();
}

absl::Status StateStore::Readable() const {
  std::lock_guard lock(mutex_);
  return closed_.empty() ? absl::OkStatus() : absl::UnavailableError(closed_);
}

std::vector<SharedGang> StateStore::Gangs(const GangFilter& filter) const {
  std::vector<SharedGang> found;
  std::lock_guard lock(mutex_);
  auto entry = filter.name_space.empty()
                   ? gangs_.begin()
                   : gangs_.lower_bound(GangKey{filter.name_space, "", false});
  for (; entry != gangs_.end(); ++entry) {
    if (!filter.name_space.empty() && entry->first.name_space != filter.name_space) break;
    if (filter.name.empty() || entry->first.name == filter.name)
      found.push_back(entry->second.gang);
  }
  return found;
}

SharedGang StateStore::FindGang(std::string_view name_space, std::string_view name) const {
  GangKey key{std::string(name_space), std::string(name), false};
  std::lock_guard lock(mutex_);
  for (bool is_pod : {false, true}) {
    key.is_pod = is_pod;
    const auto found = gangs_.find(key);
    if (found != gangs_.end()) return found->second.gang;
  }
  return nullptr;
}

std::shared_ptr<const MessageList> StateStore::List(Listed kind) const {
  std::lock_guard lock(mutex_);
  return lists_[static_cast<size_t>(kind)];
}

absl::Status StateStore::RoomForWatch() const {
  std::lock_guard lock(mutex_);
  return RoomLocked();
}

absl::Status StateStore::RoomLocked() const {
  if (!closed_.empty()) return absl::UnavailableError(closed_);
  if (subscriptions_ < limits_.subscriptions) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("{} watches are open, the limit", limits_.subscriptions));
}

absl::StatusOr<std::unique_ptr<GangSubscription>> StateStore::WatchGangs(
    GangFilter filter, std::function<void()> wake) {
  std::lock_guard lock(mutex_);
  if (absl::Status status = RoomLocked(); !status.ok()) return status;
  auto state = std::make_shared<GangSubscription::State>(
      GangSubscription::State{std::move(filter), std::move(wake), version_});
  gang_readers_[state->filter.name_space].push_back(state);
  ++subscriptions_;
  return std::unique_ptr<GangSubscription>(new GangSubscription(this, std::move(state)));
}

absl::StatusOr<std::unique_ptr<ListSubscription>> StateStore::WatchList(
    Listed kind, std::function<void()> wake) {
  std::lock_guard lock(mutex_);
  if (absl::Status status = RoomLocked(); !status.ok()) return status;
  auto state =
      std::make_shared<ListSubscription::State>(ListSubscription::State{kind, std::move(wake)});
  list_readers_.push_back(state);
  ++subscriptions_;
  return std::unique_ptr<ListSubscription>(new ListSubscription(this, std::move(state)));
}

std::optional<v1::Queue> FindQueue(const StateStore& store, std::string_view name_space,
                                   std::string_view name) {
  const std::shared_ptr<const MessageList> list = store.List(Listed::kQueues);
  const auto& all = dynamic_cast<const v1::ListQueuesResponse&>(list->message());
  for (const v1::Queue& queue : all.queues()) {
    if (queue.namespace_() == name_space && queue.name() == name) return queue;
  }
  return std::nullopt;
}

size_t StateStore::subscriptions() const {
  std::lock_guard lock(mutex_);
  return subscriptions_;
}

}  // namespace muster::extender
