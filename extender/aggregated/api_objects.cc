#include "extender/aggregated/api_objects.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "fmt/format.h"
#include "muster/v1/admission.pb.h"

namespace muster::extender {
namespace {

constexpr size_t kRemembered = 256;

// A PodGroup's gang hides a pod's of the same name: one object has a name.
class GangChanges : public ApiChanges {
 public:
  GangChanges(StateStore* store, std::unique_ptr<GangSubscription> subscription)
      : store_(store), subscription_(std::move(subscription)) {}

  std::optional<ApiChange> Next() override {
    while (const std::optional<GangChange> change = subscription_->Next()) {
      const v1::Gang& gang = change->gang->gang();
      const SharedGang shown = store_->FindGang(gang.namespace_(), gang.name());
      if (change->deleted && shown != nullptr) {
        return Tell(ApiChange::Type::kModified, shown, change->version);
      }
      if (shown != nullptr && shown->gang().kind() != gang.kind()) continue;
      const auto type = change->deleted  ? ApiChange::Type::kDeleted
                        : change->is_new ? ApiChange::Type::kAdded
                                         : ApiChange::Type::kModified;
      return Tell(type, change->gang, change->version);
    }
    return std::nullopt;
  }
  bool lost() const override { return subscription_->lost(); }

 private:
  static ApiChange Tell(ApiChange::Type type, const SharedGang& gang, uint64_t version) {
    ApiChange change{type, ItemOf(gang)};
    change.item.version = std::to_string(version);
    return change;
  }

  StateStore* const store_;
  const std::unique_ptr<GangSubscription> subscription_;
};

class GangObjects : public ApiObjects {
 public:
  explicit GangObjects(StateStore* store) : store_(store) {}

  ApiItems Find(const GangFilter& filter) override {
    const GangPages found = store_->GangsOn(filter, {});
    ApiItems all{.items = {}, .version = std::to_string(found.version)};
    std::string last;
    for (const SharedGang& gang : found.gangs) {
      ApiItem item = ItemOf(gang);
      std::string key = item.name_space + "/" + item.name;
      if (key == std::exchange(last, key)) {
        if (gang->gang().kind() == "PodGroup") all.items.back() = std::move(item);
        continue;
      }
      all.items.push_back(std::move(item));
    }
    return all;
  }
  absl::StatusOr<std::unique_ptr<ApiChanges>> Watch(const GangFilter& filter,
                                                    std::optional<uint64_t> since,
                                                    std::function<void()> wake) override {
    auto subscription = store_->WatchGangs(filter, std::move(wake), since);
    if (!subscription.ok()) return subscription.status();
    return std::make_unique<GangChanges>(store_, *std::move(subscription));
  }
  absl::Status RoomForWatch(std::optional<uint64_t> since) override {
    return store_->RoomForWatch(since);
  }

 private:
  StateStore* const store_;
};

class ListedObjects : public ApiObjects, public std::enable_shared_from_this<ListedObjects> {
 public:
  ListedObjects(const ApiResource& resource, StateStore* store)
      : resource_(resource), store_(store) {}

  ApiItems Find(const GangFilter& filter) override {
    const std::lock_guard lock(mutex_);
    Update();
    ApiItems found{.items = {}, .version = std::to_string(version_)};
    for (const auto& [key, entry] : objects_) {
      if (Matches(key, filter)) found.items.push_back(entry.item);
    }
    return found;
  }

  absl::StatusOr<std::unique_ptr<ApiChanges>> Watch(const GangFilter& filter,
                                                    std::optional<uint64_t> since,
                                                    std::function<void()> wake) override;

  absl::Status RoomForWatch(std::optional<uint64_t> since) override {
    if (absl::Status room = store_->RoomForWatch(); !room.ok() || !since) return room;
    const std::lock_guard lock(mutex_);
    Update();
    if (*since >= forgotten_ && *since <= version_) return absl::OkStatus();
    return absl::OutOfRangeError(
        fmt::format("what changed since {} isn't known here: versions {} to {} are", *since,
                    forgotten_, version_));
  }

 private:
  class Changes;
  using Key = std::pair<std::string, std::string>;  // namespace, name
  struct Entry {
    ApiItem item;  // with the version of its last change
    uint64_t version = 0;
    uint64_t born = 0;  // the version with which it came
  };

  static bool Matches(const Key& key, const GangFilter& filter) {
    return (filter.name_space.empty() || filter.name_space == key.first) &&
           (filter.name.empty() || filter.name == key.second);
  }

  // All of these with the lock.

  // Takes what was published last.
  void Update() {
    if (const uint64_t epoch = store_->epoch(); epoch != epoch_) {
      epoch_ = epoch;
      version_ = forgotten_ = std::max(version_ + 1, epoch);
      objects_.clear();
      gone_.clear();
      changes_.clear();
      seen_ = nullptr;
    }
    std::shared_ptr<const MessageList> list = store_->List(*resource_.list);
    if (list == seen_) return;
    seen_ = std::move(list);
    std::map<Key, Entry> before = std::exchange(objects_, {});
    for (ApiItem& item : resource_.items_in(*seen_)) {
      Key key{item.name_space, item.name};
      const auto known = before.find(key);
      Entry entry;
      if (known != before.end()) {
        entry = std::move(known->second);
        before.erase(known);
        if (entry.item.status == item.status) {
          objects_.emplace(std::move(key), std::move(entry));
          continue;
        }
        changes_.erase(entry.version);
      }
      Note(key, std::move(item), &entry);
      objects_.insert_or_assign(std::move(key), std::move(entry));
    }
    for (auto& [key, entry] : before) {
      changes_.erase(entry.version);
      ApiItem item = std::move(entry.item);
      Note(key, std::move(item), &entry);
      gone_.emplace(entry.version, std::move(entry));
    }
    while (gone_.size() > kRemembered) {
      forgotten_ = gone_.begin()->first;
      changes_.erase(forgotten_);
      gone_.erase(gone_.begin());
    }
  }

  void Note(const Key& key, ApiItem item, Entry* entry) {
    entry->version = ++version_;
    if (entry->born == 0) entry->born = version_;
    entry->item = std::move(item);
    entry->item.version = std::to_string(version_);
    changes_.emplace(version_, key);
  }

  const ApiResource& resource_;
  StateStore* const store_;
  std::mutex mutex_;  // guards what follows
  uint64_t epoch_ = 0;
  uint64_t version_ = 0;
  uint64_t forgotten_ = 0;  // nothing that is gone after it is
  std::shared_ptr<const MessageList> seen_;
  std::map<Key, Entry> objects_;
  std::map<uint64_t, Entry> gone_;   // by version
  std::map<uint64_t, Key> changes_;  // of both, by the newest version of each
};

class ListedObjects::Changes : public ApiChanges {
 public:
  Changes(std::shared_ptr<ListedObjects> objects, GangFilter filter,
          std::unique_ptr<ListSubscription> subscription, uint64_t epoch, uint64_t since,
          uint64_t position)
      : objects_(std::move(objects)),
        filter_(std::move(filter)),
        subscription_(std::move(subscription)),
        epoch_(epoch),
        since_(since),
        position_(position) {}

  std::optional<ApiChange> Next() override {
    // Only that there is something new matters: what it is, is worked out once for all.
    subscription_->Next();
    if (lost_ |= subscription_->lost(); lost_) return std::nullopt;
    const std::lock_guard lock(objects_->mutex_);
    objects_->Update();
    // What was gone by `since_` isn't told.
    lost_ = objects_->epoch_ != epoch_ || std::max(position_, since_) < objects_->forgotten_;
    if (lost_) return std::nullopt;
    const auto& changes = objects_->changes_;
    for (auto at = changes.upper_bound(position_); at != changes.end(); ++at) {
      const auto& [version, key] = *at;
      const uint64_t before = std::exchange(position_, version);
      if (!Matches(key, filter_)) continue;
      if (const auto gone = objects_->gone_.find(version); gone != objects_->gone_.end()) {
        if (version > since_) return ApiChange{ApiChange::Type::kDeleted, gone->second.item};
        continue;
      }
      const Entry& entry = objects_->objects_.at(key);
      const bool is_new = entry.born > before || version <= since_;
      return ApiChange{is_new ? ApiChange::Type::kAdded : ApiChange::Type::kModified, entry.item};
    }
    return std::nullopt;
  }
  bool lost() const override { return lost_ || subscription_->lost(); }

 private:
  const std::shared_ptr<ListedObjects> objects_;
  const GangFilter filter_;
  const std::unique_ptr<ListSubscription> subscription_;
  const uint64_t epoch_;
  const uint64_t since_;  // what was gone by then isn't told; what hasn't changed since is new
  uint64_t position_;     // what it has read, up to here
  bool lost_ = false;
};

absl::StatusOr<std::unique_ptr<ApiChanges>> ListedObjects::Watch(const GangFilter& filter,
                                                                 std::optional<uint64_t> since,
                                                                 std::function<void()> wake) {
  if (absl::Status room = RoomForWatch(since); !room.ok()) return room;
  auto subscription = store_->WatchList(*resource_.list, std::move(wake));
  if (!subscription.ok()) return subscription.status();
  const std::lock_guard lock(mutex_);
  Update();
  return std::make_unique<Changes>(shared_from_this(), filter, *std::move(subscription), epoch_,
                                   since.value_or(version_), since.value_or(0));
}

}  // namespace

std::shared_ptr<ApiObjects> ObjectsOf(const ApiResource& resource, StateStore* store) {
  if (!resource.list) return std::make_shared<GangObjects>(store);
  return std::make_shared<ListedObjects>(resource, store);
}

}  // namespace muster::extender
