// Objects by kind and key, with one revision counter and a bounded history of changes.
//
// Plays the part of etcd and of the watch cache: a change gets the next revision, is kept for
// watches until history_limit changes of its kind came after it, and an older state can be read
// back while its changes are still there. Knows nothing of what the objects mean. Not thread-safe:
// the server's lock covers it; a StoredObject may be read from any thread and outlives the store.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json_fwd.hpp"

namespace muster::kube::embedded {

// One version of an object; immutable.
class StoredObject {
 public:
  StoredObject(nlohmann::json value, uint64_t revision);
  ~StoredObject();
  StoredObject(const StoredObject&) = delete;
  StoredObject& operator=(const StoredObject&) = delete;

  const nlohmann::json& value() const { return *value_; }
  uint64_t revision() const { return revision_; }
  // JSON text, made on first use and kept. Thread-safe.
  const std::string& bytes() const;

 private:
  const std::unique_ptr<const nlohmann::json> value_;
  const uint64_t revision_;
  mutable std::once_flag serialised_;
  mutable std::string bytes_;
};

using ObjectPtr = std::shared_ptr<const StoredObject>;

enum class ChangeType { kAdded, kModified, kDeleted };

struct Change {
  ChangeType type = ChangeType::kAdded;
  std::string key;
  // The new version; for kDeleted the last one, with the revision of the deletion.
  ObjectPtr object;
  ObjectPtr previous;  // null for kAdded
};

class ObjectStore {
 public:
  // `history_limit` changes are kept per kind.
  explicit ObjectStore(size_t history_limit);

  // Of the latest change of any kind.
  uint64_t revision() const { return revision_; }

  // `kind` is ResourceType::index. Keys are "namespace/name", or "name" for cluster-scoped kinds.
  ObjectPtr Find(size_t kind, std::string_view key) const;
  size_t Count(size_t kind) const;

  // Stores `object` as the next revision and returns it with metadata.resourceVersion set.
  ObjectPtr Put(size_t kind, const std::string& key, nlohmann::json object);
  // Removes what is there (it must be) and records `last`, the state to show in the watch.
  ObjectPtr Remove(size_t kind, const std::string& key, nlohmann::json last);

  // Visits objects whose key starts with `prefix` and is greater than `after`, in key order, until
  // `visit` returns false.
  void Scan(size_t kind, std::string_view prefix, std::string_view after,
            const std::function<bool(const std::string& key, const ObjectPtr&)>& visit) const;
  // The same at an earlier revision. False if that revision is compacted.
  bool ScanAt(size_t kind, uint64_t revision, std::string_view prefix, std::string_view after,
              const std::function<bool(const std::string& key, const ObjectPtr&)>& visit) const;

  // Changes of a kind are numbered from 0 on. The first one later than `revision`, or nullopt if
  // changes after `revision` are already gone.
  std::optional<uint64_t> FirstChangeAfter(size_t kind, uint64_t revision) const;
  // One past the last change.
  uint64_t EndOfChanges(size_t kind) const;
  // nullptr if it is gone or not there yet.
  const Change* FindChange(size_t kind, uint64_t number) const;

  // Forgets all changes so far, so that earlier revisions answer 410.
  void Compact();
  // The newest revision whose changes are partly gone.
  uint64_t CompactedRevision(size_t kind) const;

 private:
  struct Collection {
    std::map<std::string, ObjectPtr, std::less<>> objects;
    std::deque<Change> changes;
    uint64_t first_change = 0;  // number of changes.front()
    uint64_t compacted = 0;     // revision of the newest change that is gone
  };
  Collection& At(size_t kind);
  const Collection* Peek(size_t kind) const;
  void Record(Collection& collection, Change change);

  const size_t history_limit_;
  uint64_t revision_ = 1;
  std::vector<std::unique_ptr<Collection>> collections_;
};

}  // namespace muster::kube::embedded
