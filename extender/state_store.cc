#include "extender/state_store.h"

#include <algorithm>

#include "extender/message_json.h"
#include "fmt/format.h"
#include "muster/v1/admission.pb.h"

namespace muster::extender {

using coscheduling::GangKey;

// Guarded by the store's mutex.
struct GangSubscription::State {
  GangFilter filter;
  std::function<void()> wake;
  // What has changed since it was last read; the last message of those that are gone.
  std::map<GangKey, GangMessage> waiting;
  bool lost = false;

  bool Matches(const GangKey& key) const {
    return (filter.name_space.empty() || filter.name_space == key.name_space) &&
           (filter.name.empty() || filter.name == key.name);
  }
};

struct ListSubscription::State {
  Listed kind = Listed::kNodes;
  std::function<void()> wake;
  bool changed = true;
  bool lost = false;
};

MessageList::MessageList(std::unique_ptr<const google::protobuf::Message> message)
    : message_(std::move(message)) {}
MessageList::~MessageList() = default;

const std::string& MessageList::Json() const {
  std::call_once(once_, [this] { json_ = ToJson(*message_); });
  return json_;
}

GangSubscription::GangSubscription(StateStore* store, std::shared_ptr<State> state)
    : store_(store), state_(std::move(state)) {}

GangSubscription::~GangSubscription() {
  std::lock_guard lock(store_->mutex_);
  std::erase(store_->gang_readers_, state_);
}

std::optional<GangChange> GangSubscription::Next() {
  std::lock_guard lock(store_->mutex_);
  if (state_->waiting.empty()) return std::nullopt;
  auto first = state_->waiting.extract(state_->waiting.begin());
  const auto current = store_->gangs_.find(first.key());
  if (current == store_->gangs_.end()) return GangChange{std::move(first.mapped()), true};
  return GangChange{current->second, false};
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

void StateStore::Publish(const std::vector<std::pair<GangKey, GangMessage>>& gangs) {
  std::vector<std::function<void()>> wakes;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, message] : gangs) {
      GangMessage shown = message;
      if (message) {
        gangs_[key] = message;
      } else {
        const auto gone = gangs_.find(key);
        if (gone == gangs_.end()) continue;
        shown = std::move(gone->second);
        gangs_.erase(gone);
      }
      for (const auto& reader : gang_readers_) {
        if (!reader->lost && reader->Matches(key)) reader->waiting[key] = shown;
      }
    }
    for (const auto& reader : gang_readers_) {
      if (reader->waiting.size() > limits_.waiting) {
        reader->lost = true;
        reader->waiting.clear();
      }
      if (reader->lost || !reader->waiting.empty()) wakes.push_back(reader->wake);
    }
  }
  for (const std::function<void()>& wake : wakes) wake();
}

void StateStore::Publish(Listed kind, std::unique_ptr<const google::protobuf::Message> message) {
  auto list = std::make_shared<const MessageList>(std::move(message));
  std::vector<std::function<void()>> wakes;
  {
    std::lock_guard lock(mutex_);
    lists_[static_cast<size_t>(kind)].swap(list);  // the old list is freed after the lock
    for (const auto& reader : list_readers_) {
      if (reader->kind != kind) continue;
      reader->changed = true;
      wakes.push_back(reader->wake);
    }
  }
  for (const std::function<void()>& wake : wakes) wake();
}

void StateStore::SetClosed(const std::string& why) {
  std::vector<std::function<void()>> wakes;
  {
    std::lock_guard lock(mutex_);
    closed_ = why;
    if (why.empty()) return;
    for (const auto& reader : gang_readers_) {
      if (!std::exchange(reader->lost, true)) wakes.push_back(reader->wake);
      reader->waiting.clear();
    }
    for (const auto& reader : list_readers_) {
      if (!std::exchange(reader->lost, true)) wakes.push_back(reader->wake);
    }
  }
  for (const std::function<void()>& wake : wakes) wake();
}

absl::Status StateStore::Readable() const {
  std::lock_guard lock(mutex_);
  return closed_.empty() ? absl::OkStatus() : absl::UnavailableError(closed_);
}

std::vector<GangMessage> StateStore::Gangs(const GangFilter& filter) const {
  const GangSubscription::State match{filter, nullptr, {}, false};
  std::vector<GangMessage> found;
  std::lock_guard lock(mutex_);
  for (const auto& [key, message] : gangs_) {
    if (match.Matches(key)) found.push_back(message);
  }
  return found;
}

GangMessage StateStore::FindGang(std::string_view name_space, std::string_view name) const {
  GangKey key{std::string(name_space), std::string(name), false};
  std::lock_guard lock(mutex_);
  for (bool is_pod : {false, true}) {
    key.is_pod = is_pod;
    const auto found = gangs_.find(key);
    if (found != gangs_.end()) return found->second;
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
  if (gang_readers_.size() + list_readers_.size() < limits_.subscriptions) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      fmt::format("{} watches are open, the limit", limits_.subscriptions));
}

absl::StatusOr<std::unique_ptr<GangSubscription>> StateStore::WatchGangs(
    GangFilter filter, std::function<void()> wake) {
  auto state = std::make_shared<GangSubscription::State>();
  state->filter = std::move(filter);
  state->wake = std::move(wake);
  std::lock_guard lock(mutex_);
  if (absl::Status status = RoomLocked(); !status.ok()) return status;
  for (const auto& [key, message] : gangs_) {
    if (state->Matches(key)) state->waiting.emplace(key, message);
  }
  gang_readers_.push_back(state);
  return std::unique_ptr<GangSubscription>(new GangSubscription(this, std::move(state)));
}

absl::StatusOr<std::unique_ptr<ListSubscription>> StateStore::WatchList(
    Listed kind, std::function<void()> wake) {
  auto state = std::make_shared<ListSubscription::State>();
  state->kind = kind;
  state->wake = std::move(wake);
  std::lock_guard lock(mutex_);
  if (absl::Status status = RoomLocked(); !status.ok()) return status;
  list_readers_.push_back(state);
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
  return gang_readers_.size() + list_readers_.size();
}

}  // namespace muster::extender
