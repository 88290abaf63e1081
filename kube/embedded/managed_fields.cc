#include "kube/embedded/managed_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "kube/embedded/field_set.h"
#include "kube/embedded/json_fields.h"
#include "kube/embedded/schema.h"
#include "kube/embedded/typed_merge.h"
#include "kube/objects/time_text.h"

namespace muster::kube::embedded {
namespace {

using Json = nlohmann::json;

constexpr const char* kApply = "Apply";
constexpr const char* kUpdate = "Update";
constexpr const char* kBeforeFirstApply = "before-first-apply";
// More managers of updates than that share entries (DefaultMaxUpdateManagers).
constexpr size_t kMaxUpdateManagers = 10;
constexpr const char* kAncientChanges = "ancient-changes";

// An entry's identity; an applier's doesn't name the version that it applied.
struct ManagerId {
  std::string manager;
  std::string operation;
  std::string api_version;
  std::string subresource;
  auto operator<=>(const ManagerId&) const = default;
};

struct Managed {
  std::string api_version;
  std::string time;  // "" if there is none
  FieldSet fields;
};

using Managers = std::map<ManagerId, Managed>;

ManagerId Applier(const FieldWriter& writer) {
  return {writer.manager, kApply, "", writer.subresource};
}

ManagerId Updater(const ResourceType& type, const FieldWriter& writer) {
  return {writer.manager, kUpdate, type.ApiVersion(), writer.subresource};
}

Managers Decode(const Json& object) {
  Managers managers;
  for (const Json& entry : ListAt(object, {"metadata", "managedFields"})) {
    ManagerId id{StringAt(entry, {"manager"}), StringAt(entry, {"operation"}),
                 StringAt(entry, {"apiVersion"}), StringAt(entry, {"subresource"})};
    Managed managed{id.api_version, StringAt(entry, {"time"}),
                    FieldSetFromJson(MapAt(entry, {"fieldsV1"}))};
    if (id.operation == kApply) id.api_version.clear();
    managers[std::move(id)] = std::move(managed);
  }
  return managers;
}

void Encode(const Managers& managers, Json* object) {
  std::vector<const Managers::value_type*> order;
  for (const auto& entry : managers) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::tie(a->first.operation, a->second.time, a->first) <
           std::tie(b->first.operation, b->second.time, b->first);
  });
  Json list = Json::array();
  for (const auto* entry : order) {
    const auto& [id, managed] = *entry;
    Json written = {{"manager", id.manager},
                    {"operation", id.operation},
                    {"apiVersion", managed.api_version},
                    {"fieldsType", "FieldsV1"},
                    {"fieldsV1", FieldSetJson(managed.fields)}};
    if (!managed.time.empty()) written["time"] = managed.time;
    if (!id.subresource.empty()) written["subresource"] = id.subresource;
    list.push_back(std::move(written));
  }
  Json& metadata = (*object)["metadata"];
  if (list.empty()) {
    metadata.erase("managedFields");
  } else {
    metadata["managedFields"] = std::move(list);
  }
}

Json WithoutManagers(const Json& object) {
  Json bare = object;
  auto metadata = bare.find("metadata");
  if (metadata != bare.end() && metadata->is_object()) metadata->erase("managedFields");
  return bare;
}

// Fields that a subresource doesn't write count for nobody who writes there (GetResetFields of the
// kinds' strategies): status in the object's own path; in its status the spec of a built-in kind,
// and of a custom one all but the status.
FieldSet Writable(const ResourceType& type, const std::string& subresource, const FieldSet& set) {
  FieldSet writable = set;
  if (subresource.empty()) {
    if (type.status_subresource) writable.children.erase("f:status");
  } else if (!type.custom) {
    writable.children.erase("f:spec");
  } else {
    std::erase_if(writable.children, [](const auto& child) { return child.first != "f:status"; });
  }
  return writable;
}

// What nobody owns (pkg/util/managedfields/internal/stripmeta.go).
FieldSet WithoutIdentity(FieldSet set) {
  for (const char* field : {"f:apiVersion", "f:kind"}) set.children.erase(field);
  auto metadata = set.children.find("f:metadata");
  if (metadata == set.children.end()) return set;
  metadata->second.member = false;
  for (const char* field :
       {"f:name", "f:namespace", "f:creationTimestamp", "f:selfLink", "f:uid", "f:clusterName",
        "f:generation", "f:managedFields", "f:resourceVersion"}) {
    metadata->second.children.erase(field);
  }
  if (metadata->second.empty()) set.children.erase(metadata);
  return set;
}

void DropEmpty(Managers* managers) {
  std::erase_if(*managers, [](const auto& entry) { return entry.second.fields.empty(); });
}

// Everybody but `writer` loses what it took from them or took away.
void TakeOver(const Comparison& changes, const ManagerId& writer, Managers* managers) {
  const FieldSet taken = Union(Union(changes.modified, changes.added), changes.removed);
  for (auto& [id, managed] : *managers) {
    if (id != writer) managed.fields = Difference(managed.fields, taken);
  }
  DropEmpty(managers);
}

Comparison WritableChanges(const ResourceType& type, const std::string& subresource,
                           const Json& before, const Json& after) {
  Comparison changes = Compare(type.schema.get(), before, after);
  for (FieldSet* set : {&changes.removed, &changes.modified, &changes.added}) {
    *set = Writable(type, subresource, *set);
  }
  return changes;
}

// Who owns what an object held before its first apply.
Managers Earlier(const ResourceType& type, const Json& live, absl::Time now) {
  Managers managers;
  const FieldSet all = WithoutIdentity(Compare(type.schema.get(), Json::object(), live).added);
  for (const char* subresource : {"", "status"}) {
    FieldSet fields = Writable(type, subresource, all);
    if (*subresource != 0) {
      std::erase_if(fields.children, [](const auto& child) { return child.first != "f:status"; });
    }
    const FieldWriter writer{kBeforeFirstApply, subresource, now};
    managers[Updater(type, writer)] = {type.ApiVersion(), TimeText(now), std::move(fields)};
    if (!type.status_subresource) break;
  }
  DropEmpty(&managers);
  return managers;
}

std::string Shown(const ManagerId& id, const Managed& managed) {
  std::string shown = Quoted(id.manager);
  if (!id.subresource.empty()) shown += " with subresource " + Quoted(id.subresource);
  if (id.operation == kUpdate) shown += " using " + managed.api_version;
  return shown;
}

// pkg/util/managedfields/internal/conflict.go
MaybeError Conflicts(const Comparison& changes, const ManagerId& writer, const Managers& managers) {
  const FieldSet changed = Union(changes.modified, changes.added);
  ApiError error;
  std::vector<std::string> lines;
  for (const auto& [id, managed] : managers) {
    if (id == writer) continue;
    const std::string shown = Shown(id, managed);
    const size_t before = error.causes.size();
    ForEachField(Intersection(managed.fields, changed), [&](const std::string& path) {
      if (error.causes.size() == before) lines.push_back(fmt::format("conflicts with {}:", shown));
      lines.push_back("- " + path);
      error.causes.push_back({"FieldManagerConflict", "conflict with " + shown, path});
    });
  }
  if (error.causes.empty()) return std::nullopt;
  error.code = 409;
  error.reason = "Conflict";
  error.message = error.causes.size() == 1
                      ? fmt::format("Apply failed with 1 conflict: {}: {}", error.causes[0].message,
                                    error.causes[0].field)
                      : fmt::format("Apply failed with {} conflicts: {}", error.causes.size(),
                                    fmt::join(lines, "\n"));
  return error;
}

// `merged` without what is in `last` alone (Updater.prune).
Json Prune(const Schema* schema, const Json& merged, const Managers& managers,
           const FieldSet& last) {
  const FieldSet all = WithNamedFields(schema, FieldsOf(schema, merged));
  FieldSet owned;
  for (const auto& [id, managed] : managers) owned = Union(owned, managed.fields);
  owned = WithNamedFields(schema, owned);
  const FieldSet dropped = WithNamedFields(schema, last);
  auto left_of = [&](const Json& object) {
    return WithNamedFields(schema, FieldsOf(schema, object));
  };
  Json pruned = WithoutFields(schema, merged, dropped);
  // What is beneath something that goes, but is somebody's, comes back; then what nobody owns.
  pruned = WithoutFields(schema, merged, Difference(all, Union(left_of(pruned), owned)));
  return WithoutFields(schema, merged, Intersection(Difference(all, left_of(pruned)), dropped));
}

// The oldest managers of updates become one, so that their number has a bound (capmanagers.go).
void CapUpdateManagers(const ResourceType& type, Managers* managers) {
  std::vector<std::pair<std::string, ManagerId>> updates;
  for (const auto& [id, managed] : *managers) {
    if (id.operation == kUpdate) updates.emplace_back(managed.time, id);
  }
  if (updates.size() <= kMaxUpdateManagers) return;
  std::sort(updates.begin(), updates.end());
  const ManagerId bucket{kAncientChanges, kUpdate, type.ApiVersion(), ""};
  Managed together{type.ApiVersion(), "", {}};
  // One more than are too many, for the new one takes a place.
  updates.resize(updates.size() - kMaxUpdateManagers + 1);
  for (const auto& [time, id] : updates) {
    together.time = time;
    together.fields = Union(together.fields, managers->at(id).fields);
    managers->erase(id);
  }
  managers->insert_or_assign(bucket, std::move(together));
}

}  // namespace

ApiResult<Json> ApplyConfig(const ResourceType& type, const Json& live, const Json& config,
                            const FieldWriter& writer, bool force) {
  const Schema* schema = type.schema.get();
  const Json bare = WithoutManagers(live);
  const ManagerId self = Applier(writer);
  Managers managers = Decode(live);
  if (managers.empty() && !bare.empty()) managers = Earlier(type, bare, writer.now);

  auto found = managers.find(self);
  const Managed last = found == managers.end() ? Managed() : found->second;
  Json merged = MergeConfig(schema, bare, config);
  managers[self] = {type.ApiVersion(), last.time,
                    Writable(type, writer.subresource, FieldsOf(schema, config))};
  if (!last.fields.empty()) merged = Prune(schema, merged, managers, last.fields);

  const Comparison changes = WritableChanges(type, writer.subresource, bare, merged);
  if (!force) {
    if (MaybeError conflict = Conflicts(changes, self, managers)) return *conflict;
  }
  TakeOver(changes, self, &managers);
  Managed& mine = managers[self];
  mine.fields = WithoutIdentity(std::move(mine.fields));
  if (merged != bare) mine.time = TimeText(writer.now);
  DropEmpty(&managers);
  Encode(managers, &merged);
  return merged;
}

void TrackUpdate(const ResourceType& type, const Json& before, const FieldWriter& writer,
                 Json* after) {
  Managers managers = Decode(before);
  if (managers.empty()) return;
  const Comparison changes =
      WritableChanges(type, writer.subresource, WithoutManagers(before), WithoutManagers(*after));
  TakeOver(changes, {}, &managers);
  FieldSet taken = WithoutIdentity(Union(changes.modified, changes.added));
  if (!taken.empty()) {
    Managed& mine = managers[Updater(type, writer)];
    mine = {type.ApiVersion(), TimeText(writer.now), Union(mine.fields, taken)};
  }
  CapUpdateManagers(type, &managers);
  Encode(managers, after);
}

bool SameButTimes(const Json& before, const Json& after) {
  if (FieldAt(after, {"metadata", "managedFields"}) == nullptr) return false;
  if (WithoutManagers(before) != WithoutManagers(after)) return false;
  Managers was = Decode(before), is = Decode(after);
  return std::equal(was.begin(), was.end(), is.begin(), is.end(), [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.api_version == b.second.api_version &&
           a.second.fields == b.second.fields;
  });
}

}  // namespace muster::kube::embedded
