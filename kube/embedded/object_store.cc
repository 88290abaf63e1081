#include "kube/embedded/object_store.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace muster::kube::embedded {

using Json = nlohmann::json;

StoredObject::StoredObject(Json value, uint64_t revision)
    : value_(std::make_unique<const Json>(std::move(value))), revision_(revision) {}

StoredObject::~StoredObject() = default;

const std::string& StoredObject::bytes() const {
  std::call_once(serialised_, [this] { bytes_ = value_->dump(); });
  return bytes_;
}

ObjectStore::ObjectStore(size_t history_limit) : history_limit_(history_limit) {}

ObjectStore::Collection& ObjectStore::At(size_t kind) {
  if (kind >= collections_.size()) collections_.resize(kind + 1);
  if (!collections_[kind]) collections_[kind] = std::make_unique<Collection>();
  return *collections_[kind];
}

const ObjectStore::Collection* ObjectStore::Peek(size_t kind) const {
  return kind < collections_.size() ? collections_[kind].get() : nullptr;
}

ObjectPtr ObjectStore::Find(size_t kind, std::string_view key) const {
  const Collection* collection = Peek(kind);
  if (collection == nullptr) return nullptr;
  auto it = collection->objects.find(key);
  return it == collection->objects.end() ? nullptr : it->second;
}

size_t ObjectStore::Count(size_t kind) const {
  const Collection* collection = Peek(kind);
  return collection == nullptr ? 0 : collection->objects.size();
}

void ObjectStore::Record(Collection& collection, Change change) {
  collection.changes.push_back(std::move(change));
  while (collection.changes.size() > history_limit_) {
    collection.compacted = collection.changes.front().object->revision();
    collection.changes.pop_front();
    ++collection.first_change;
  }
}

ObjectPtr ObjectStore::Put(size_t kind, const std::string& key, Json object) {
  Collection& collection = At(kind);
  uint64_t revision = ++revision_;
  object["metadata"]["resourceVersion"] = std::to_string(revision);
  auto stored = std::make_shared<const StoredObject>(std::move(object), revision);
  ObjectPtr& slot = collection.objects[key];
  Record(collection, {slot ? ChangeType::kModified : ChangeType::kAdded, key, stored, slot});
  slot = stored;
  return stored;
}

ObjectPtr ObjectStore::Remove(size_t kind, const std::string& key, Json last) {
  Collection& collection = At(kind);
  uint64_t revision = ++revision_;
  last["metadata"]["resourceVersion"] = std::to_string(revision);
  auto stored = std::make_shared<const StoredObject>(std::move(last), revision);
  auto it = collection.objects.find(key);
  Record(collection, {ChangeType::kDeleted, key, stored, it->second});
  collection.objects.erase(it);
  return stored;
}

void ObjectStore::Scan(
    size_t kind, std::string_view prefix, std::string_view after,
    const std::function<bool(const std::string&, const ObjectPtr&)>& visit) const {
  const Collection* collection = Peek(kind);
  if (collection == nullptr) return;
  auto it = after.empty() ? collection->objects.lower_bound(prefix)
                          : collection->objects.upper_bound(std::max(after, prefix));
  for (; it != collection->objects.end() && it->first.starts_with(prefix); ++it) {
    if (!visit(it->first, it->second)) return;
  }
}

bool ObjectStore::ScanAt(
    size_t kind, uint64_t revision, std::string_view prefix, std::string_view after,
    const std::function<bool(const std::string&, const ObjectPtr&)>& visit) const {
  std::optional<uint64_t> first = FirstChangeAfter(kind, revision);
  if (!first) return false;
  // What each key that changed since was then; null: not there.
  std::map<std::string, ObjectPtr, std::less<>> then;
  for (uint64_t number = *first; number < EndOfChanges(kind); ++number) {
    const Change* change = FindChange(kind, number);
    then.emplace(change->key, change->previous);
  }
  auto wanted = [&](const std::string& key) { return key.starts_with(prefix) && key > after; };
  bool go_on = true;
  auto old = then.begin();
  auto visit_old_before = [&](const std::string* key) {
    for (; go_on && old != then.end() && (key == nullptr || old->first < *key); ++old) {
      if (old->second && wanted(old->first)) go_on = visit(old->first, old->second);
    }
  };
  Scan(kind, prefix, after, [&](const std::string& key, const ObjectPtr& now) {
    visit_old_before(&key);
    if (!go_on) return false;
    auto changed = then.find(key);
    if (changed == then.end()) return go_on = visit(key, now);
    return true;  // visit_old_before shows it once it has passed this key
  });
  visit_old_before(nullptr);
  return true;
}

std::optional<uint64_t> ObjectStore::FirstChangeAfter(size_t kind, uint64_t revision) const {
  const Collection* collection = Peek(kind);
  if (collection == nullptr) return 0;
  if (revision < collection->compacted) return std::nullopt;
  auto it = std::partition_point(
      collection->changes.begin(), collection->changes.end(),
      [&](const Change& change) { return change.object->revision() <= revision; });
  return collection->first_change + static_cast<uint64_t>(it - collection->changes.begin());
}

uint64_t ObjectStore::EndOfChanges(size_t kind) const {
  const Collection* collection = Peek(kind);
  return collection == nullptr ? 0 : collection->first_change + collection->changes.size();
}

const Change* ObjectStore::FindChange(size_t kind, uint64_t number) const {
  const Collection* collection = Peek(kind);
  if (collection == nullptr || number < collection->first_change) return nullptr;
  uint64_t offset = number - collection->first_change;
  return offset < collection->changes.size() ? &collection->changes[offset] : nullptr;
}

void ObjectStore::Compact() {
  for (const auto& collection : collections_) {
    if (!collection) continue;
    collection->first_change += collection->changes.size();
    collection->changes.clear();
    collection->compacted = revision_;
  }
}

uint64_t ObjectStore::CompactedRevision(size_t kind) const {
  const Collection* collection = Peek(kind);
  return collection == nullptr ? 0 : collection->compacted;
}

}  // namespace muster::kube::embedded
