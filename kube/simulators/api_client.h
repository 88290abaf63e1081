// What a simulator asks of the API server: writes, and objects followed by a watch.
//
// Goes straight to an embedded::ApiServer, without a network, so that in virtual time every answer
// and every watch event is there at once and equal runs are equal.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kube/api.h"
#include "kube/embedded/api_server.h"
#include "kube/objects/decode.h"
#include "kube/objects/resource_list.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::kube::simulators {

// How long a simulator waits before it repeats a write that failed.
inline constexpr absl::Duration kWriteRetry = absl::Seconds(1);

// {"cpu": "1500m", "nvidia.com/gpu": "8"}
nlohmann::json AmountsJson(const ResourceList& amounts);

// An event's subject.
struct ObjectReference {
  std::string api_version;
  std::string kind;
  std::string name_space;  // empty for cluster-scoped objects
  std::string name;
  std::string uid;
};

// Not thread-safe; the server must outlive it.
class ApiClient {
 public:
  // `component` is the source of its events.
  ApiClient(embedded::ApiServer* server, std::string component);

  embedded::ApiServer* server() const { return server_; }

  // The object as it was stored.
  absl::StatusOr<nlohmann::json> Create(const std::string& path, const nlohmann::json& object);
  absl::Status Patch(const std::string& path, const nlohmann::json& patch,
                     std::string_view type = kMergePatch);
  // Precondition: uid. A grace period stands for pods only.
  absl::Status Delete(const std::string& path, const std::string& uid,
                      std::optional<int> grace_period_seconds = std::nullopt);
  // Asks for the pod's eviction; 429 (ResourceExhausted) if a disruption budget forbids it.
  absl::Status Evict(const std::string& name_space, const std::string& name,
                     const std::string& uid);
  // Best effort, as events are.
  void RecordEvent(const ObjectReference& about, bool warning, const std::string& reason,
                   const std::string& message);

 private:
  embedded::ApiServer* const server_;
  const std::string component_;
  uint64_t events_ = 0;
};

std::string PodPath(std::string_view name_space, std::string_view name);
std::string NodePath(std::string_view name);
std::string NodeClaimPath(std::string_view name);
std::string NodePoolPath(std::string_view name);

// One watch of all objects of a kind from its construction on, opened anew when it ends or falls
// behind.
class WatchFollower {
 public:
  struct Change {
    std::string key;             // "namespace/name", or "name" for cluster-scoped kinds
    embedded::ObjectPtr object;  // null: deleted
  };

  // `forever`: it isn't ended by the server, which draws no time for that: whoever follows what is
  // to be told, and no more, changes nothing of what is drawn.
  WatchFollower(embedded::ApiServer* server, std::string collection_path, bool forever);
  ~WatchFollower();
  WatchFollower(WatchFollower&&) = default;

  // Appends what has arrived. Objects that went while the watch was down come as deletions.
  void Read(std::vector<Change>* out);

 private:
  void Open();
  void Take(const embedded::WatchItem& item, std::vector<Change>* out);

  embedded::ApiServer* server_;
  std::string path_;
  bool forever_;
  std::unique_ptr<embedded::WatchSession> session_;
  std::set<std::string> keys_;
  // Keys known from before the watch was opened again that it hasn't shown yet.
  std::set<std::string> unconfirmed_;
  std::vector<embedded::WatchItem> items_;
};

// All objects of a kind, decoded. An object that can't be decoded counts as absent.
template <typename T>
class ObjectCache {
 public:
  struct Entry {
    T object;
    embedded::ObjectPtr stored;
  };
  using EntryPtr = std::shared_ptr<const Entry>;
  // `before` is null for a new object, `now` for one that is gone. The cache has `now` already.
  using OnChange =
      std::function<void(const std::string& key, const Entry* before, const Entry* now)>;

  ObjectCache(embedded::ApiServer* server, std::string collection_path, bool forever = false)
      : follower_(server, std::move(collection_path), forever) {}

  // Takes in what has arrived, in order. True if anything did.
  bool Sync(const OnChange& on_change) {
    changes_.clear();
    follower_.Read(&changes_);
    for (const WatchFollower::Change& change : changes_) Apply(change, on_change);
    return !changes_.empty();
  }

  // nullptr if absent.
  const Entry* Find(std::string_view key) const {
    auto it = entries_.find(key);
    return it == entries_.end() ? nullptr : it->second.get();
  }
  const std::map<std::string, EntryPtr, std::less<>>& entries() const { return entries_; }

 private:
  void Apply(const WatchFollower::Change& change, const OnChange& on_change) {
    EntryPtr before;
    auto it = entries_.find(change.key);
    if (it != entries_.end()) {
      before = std::move(it->second);
      entries_.erase(it);
    }
    EntryPtr now;
    if (change.object != nullptr) {
      absl::StatusOr<T> decoded = Decode<T>(change.object->bytes());
      if (decoded.ok()) {
        now = std::make_shared<const Entry>(Entry{*std::move(decoded), change.object});
        entries_.emplace(change.key, now);
      }
    }
    if (before != nullptr || now != nullptr) on_change(change.key, before.get(), now.get());
  }

  WatchFollower follower_;
  std::map<std::string, EntryPtr, std::less<>> entries_;
  std::vector<WatchFollower::Change> changes_;
};

}  // namespace muster::kube::simulators
