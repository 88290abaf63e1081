#include "extender/state_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "muster/v1/admission.pb.h"

namespace muster::extender {

using coscheduling::GangKey;

namespace {

constexpr std::string_view kPodGroupPage = "group/";
constexpr std::string_view kPodPage = "pod/";

// A page is called by the first gang that may be on it.
std::string NameOfPageFrom(const GangKey& key) {
  return fmt::format("{}{}/{}", key.is_pod ? kPodPage : kPodGroupPage, key.name_space, key.name);
}

std::optional<GangKey> KeyIn(std::string_view page) {
  GangKey key;
  key.is_pod = page.starts_with(kPodPage);
  if (!key.is_pod && !page.starts_with(kPodGroupPage)) return std::nullopt;
  page.remove_prefix(key.is_pod ? kPodPage.size() : kPodGroupPage.size());
  const size_t slash = page.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  key.name_space = page.substr(0, slash);
  key.name = page.substr(slash + 1);
  return key;
}

uint64_t Now() { return static_cast<uint64_t>(absl::ToUnixMicros(absl::Now())); }

}  // namespace

absl::Status Check(const GangPage& page) {
  if (page.from.empty() || KeyIn(page.from)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("continue: want what the answer before named, got \"{}\"", page.from));
}

// Guarded by the store's mutex, but for what doesn't change.
struct GangSubscription::State {
  const GangFilter filter;
  const std::function<void()> wake;
  // What was gone by then isn't told, and what hasn't changed since is new to it.
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
      version_(Now()),
      epoch_(version_),
      forgotten_(version_),
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
    Erase(gone);
  }
  size_t unread = 0;
  ForEachReader(key, [&](const std::shared_ptr<GangSubscription::State>& reader) {
    Concern(reader, concerned);
    ++unread;
  });
  if (gang) {
    Entry& known = gangs_[key];
    if (known.born == 0) known.born = version;
    known.gang = std::move(gang);
    known.version = version;
  } else {
    gone_[key] = {std::move(entry->second.gang), version, entry->second.born, unread};
    gone_order_.emplace(version, key);
    gangs_.erase(entry);
  }
  changes_.emplace(version, key);
  changes_in_[key.name_space].emplace(version, key);
  Trim(concerned);
}

void StateStore::Concern(const std::shared_ptr<GangSubscription::State>& reader,
                         Readers* concerned) {
  if (std::exchange(reader->concerned_by, publications_) != publications_) {
    concerned->push_back(reader);
  }
}

void StateStore::Erase(Entries::iterator gone) {
  const uint64_t version = gone->second.version;
  changes_.erase(version);
  const auto in = changes_in_.find(gone->first.name_space);
  in->second.erase(version);
  if (in->second.empty()) changes_in_.erase(in);
  gone_order_.erase(version);
  gone_.erase(gone);
}

void StateStore::ForgetOldest() {
  forgotten_ = gone_order_.begin()->first;
  Erase(gone_.find(gone_order_.begin()->second));
}

void StateStore::LoseReadersOfOldest(Readers* concerned) {
  const auto& [version, key] = *gone_order_.begin();
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

void StateStore::Trim(Readers* concerned) {
  while (gone_.size() > limits_.gone) {
    LoseReadersOfOldest(concerned);
    ForgetOldest();
  }
  while (gone_.size() > limits_.remembered && gone_.at(gone_order_.begin()->second).unread == 0) {
    ForgetOldest();
  }
}

void StateStore::Read(GangSubscription::State& reader, Entries::iterator gone) {
  if (reader.Awaits(gone->second.version)) --gone->second.unread;
}

// As if it had read all.
void StateStore::Leave(GangSubscription::State& reader) {
  if (reader.lost) return;
  for (auto at = gone_order_.upper_bound(reader.position); at != gone_order_.end(); ++at) {
    if (reader.Matches(at->second)) Read(reader, gone_.find(at->second));
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
  for (auto at = changes->upper_bound(reader.position); at != changes->end(); ++at) {
    const auto& [version, key] = *at;
    std::optional<GangChange> change;
    if (!reader.Matches(key)) {
      // Somebody else's.
    } else if (const auto current = gangs_.find(key); current != gangs_.end()) {
      const Entry& entry = current->second;
      const bool is_new = entry.born > reader.position || version <= reader.since;
      change = {entry.gang, false, is_new, version};
    } else {
      const auto gone = gone_.find(key);
      if (version > reader.since) change = {gone->second.gang, true, false, version};
      Read(reader, gone);
    }
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
    const bool opens = !closed_.empty() && why.empty();
    closed_ = why;
    // What others told meanwhile isn't known here.
    if (opens) epoch_ = forgotten_ = version_ = std::max(version_ + 1, Now());
    if (why.empty()) return;
    for (const auto& [name_space, readers] : gang_readers_) {
      for (const auto& reader : readers) {
        if (!std::exchange(reader->lost, true)) of_gangs.push_back(reader);
      }
    }
    while (!gone_.empty()) ForgetOldest();
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

uint64_t StateStore::epoch() const {
  std::lock_guard lock(mutex_);
  return epoch_;
}

std::vector<SharedGang> StateStore::Gangs(const GangFilter& filter) const {
  return GangsOn(filter, {}).gangs;
}

GangPages StateStore::GangsOn(const GangFilter& filter, const GangPage& page) const {
  GangPages found;
  std::lock_guard lock(mutex_);
  found.version = version_;
  GangKey from = {filter.name_space, filter.name_space.empty() ? "" : filter.name, false};
  if (!page.from.empty()) from = std::max(from, *KeyIn(page.from));
  for (auto entry = gangs_.lower_bound(from); entry != gangs_.end(); ++entry) {
    const auto& [key, known] = *entry;
    if (!filter.name_space.empty() && key.name_space != filter.name_space) break;
    if (!filter.name.empty() && key.name != filter.name) {
      if (!filter.name_space.empty()) break;
      continue;
    }
    if (page.limit > 0 && found.gangs.size() == page.limit) {
      found.next = NameOfPageFrom(key);
      break;
    }
    found.gangs.push_back(known.gang);
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

absl::Status StateStore::RoomForWatch(std::optional<uint64_t> since) const {
  std::lock_guard lock(mutex_);
  return RoomLocked(since);
}

absl::Status StateStore::RoomLocked(std::optional<uint64_t> since) const {
  if (!closed_.empty()) return absl::UnavailableError(closed_);
  if (since && (*since < forgotten_ || *since > version_)) {
    return absl::OutOfRangeError(
        fmt::format("what changed since {} isn't known here: versions {} to {} are", *since,
                    forgotten_, version_));
  }
  if (subscriptions_ < limits_.subscriptions) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("{} watches are open, the limit", limits_.subscriptions));
}

absl::StatusOr<std::unique_ptr<GangSubscription>> StateStore::WatchGangs(
    GangFilter filter, std::function<void()> wake, std::optional<uint64_t> since) {
  std::lock_guard lock(mutex_);
  if (absl::Status status = RoomLocked(since); !status.ok()) return status;
  auto state = std::make_shared<GangSubscription::State>(GangSubscription::State{
      std::move(filter), std::move(wake), since.value_or(version_), since.value_or(0)});
  for (auto at = gone_order_.upper_bound(state->since); at != gone_order_.end(); ++at) {
    if (state->Matches(at->second)) ++gone_.at(at->second).unread;
  }
  gang_readers_[state->filter.name_space].push_back(state);
  ++subscriptions_;
  return std::unique_ptr<GangSubscription>(new GangSubscription(this, std::move(state)));
}

absl::StatusOr<std::unique_ptr<ListSubscription>> StateStore::WatchList(
    Listed kind, std::function<void()> wake) {
  std::lock_guard lock(mutex_);
  if (absl::Status status = RoomLocked(std::nullopt); !status.ok()) return status;
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

const std::string& NameOf(const v1::Node& node) {
  return node.name().empty() ? node.node_claim() : node.name();
}

std::optional<v1::Node> FindNode(const StateStore& store, std::string_view name) {
  const std::shared_ptr<const MessageList> list = store.List(Listed::kNodes);
  const auto& all = dynamic_cast<const v1::ListNodesResponse&>(list->message());
  for (const v1::Node& node : all.nodes()) {
    if (NameOf(node) == name) return node;
  }
  return std::nullopt;
}

size_t StateStore::subscriptions() const {
  std::lock_guard lock(mutex_);
  return subscriptions_;
}

}  // namespace muster::extender
