#include "kube/embedded/typed_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

namespace muster::kube::embedded {
namespace {

using Json = nlohmann::json;
using Type = Schema::Type;

enum class Shape { kLeaf, kMap, kList };

bool IsDeduced(const Schema* schema) { return schema == nullptr || schema->type == Type::kAny; }

Shape ShapeOf(const Schema* schema, const Json& value) {
  if (IsDeduced(schema)) return value.is_object() || value.is_null() ? Shape::kMap : Shape::kLeaf;
  if (schema->type == Type::kObject || schema->type == Type::kMap) {
    return schema->atomic ? Shape::kLeaf : Shape::kMap;
  }
  if (schema->type != Type::kList || schema->list_type == Schema::ListType::kAtomic) {
    return Shape::kLeaf;
  }
  return Shape::kList;
}

const Schema* FieldSchema(const Schema* schema, const std::string& name) {
  return IsDeduced(schema) ? nullptr : schema->Field(name);
}

const Schema* EntrySchema(const Schema* list) { return list->element.get(); }

bool Names(const Schema* schema, const std::string& field) {
  return schema != nullptr && schema->type == Type::kObject && schema->fields.contains(field);
}

std::string FieldElement(const std::string& name) { return "f:" + name; }

// The element of an entry of a list that isn't atomic; nullopt if it has none of the list's keys
// or is no primitive in a set.
std::optional<std::string> EntryElement(const Schema& list, const Json& entry) {
  if (list.list_type == Schema::ListType::kSet) {
    if (!entry.is_primitive() || entry.is_null()) return std::nullopt;
    return "v:" + entry.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  if (!entry.is_object()) return std::nullopt;
  Json keys = Json::object();
  for (const Schema::ListKey& key : list.list_keys) {
    auto value = entry.find(key.name);
    if (value != entry.end()) {
      keys[key.name] = *value;
    } else if (!key.default_value.empty()) {
      keys[key.name] = key.default_value;
    }
  }
  if (keys.empty()) return std::nullopt;
  return "k:" + keys.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool HasEntries(const Json* value) { return value != nullptr && !value->empty(); }

// A list's entries by their elements. Entries without one, which only objects from before a change
// of their schema can have, are left out.
struct Entries {
  std::vector<std::pair<std::string, const Json*>> in_order;
  std::map<std::string, std::vector<const Json*>> by_element;

  Entries(const Schema& list, const Json* value) {
    if (value == nullptr || !value->is_array()) return;
    for (const Json& entry : *value) {
      std::optional<std::string> element = EntryElement(list, entry);
      if (!element) continue;
      by_element[*element].push_back(&entry);
      in_order.emplace_back(*std::move(element), &entry);
    }
  }

  const std::vector<const Json*>& At(const std::string& element) const {
    static const auto* const kNoEntries = new std::vector<const Json*>;
    auto it = by_element.find(element);
    return it == by_element.end() ? *kNoEntries : it->second;
  }
};

void Keep(const std::string& element, FieldSet set, FieldSet* into) {
  if (!set.empty()) into->children[element] = std::move(set);
}

const Json* FieldOf(const Json* object, const std::string& name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  auto it = object->find(name);
  return it == object->end() ? nullptr : &*it;
}

// The fields of two objects, either of which may be absent.
std::set<std::string> FieldNames(const Json* a, const Json* b) {
  std::set<std::string> names;
  for (const Json* object : {a, b}) {
    if (object == nullptr || !object->is_object()) continue;
    for (const auto& [name, value] : object->items()) names.insert(name);
  }
  return names;
}

// Not both are absent. The members at the root say what became of the value itself.
Comparison CompareValues(const Schema* schema, const Json* before, const Json* after) {
  Comparison result;
  const Shape shape = ShapeOf(schema, after != nullptr ? *after : *before);
  const bool changes_shape =
      before != nullptr && after != nullptr && ShapeOf(schema, *before) != shape;
  const bool leaf =
      shape == Shape::kLeaf || changes_shape || (!HasEntries(before) && !HasEntries(after));
  result.added.member = before == nullptr;
  result.removed.member = after == nullptr;
  if (leaf) {
    result.modified.member = before != nullptr && after != nullptr && *before != *after;
    return result;
  }
  auto descend = [&](const std::string& element, const Schema* below, const Json* was,
                     const Json* is) {
    Comparison inner = CompareValues(below, was, is);
    Keep(element, std::move(inner.removed), &result.removed);
    Keep(element, std::move(inner.modified), &result.modified);
    Keep(element, std::move(inner.added), &result.added);
  };
  if (shape == Shape::kMap) {
    for (const std::string& name : FieldNames(before, after)) {
      descend(FieldElement(name), FieldSchema(schema, name), FieldOf(before, name),
              FieldOf(after, name));
    }
    return result;
  }
  const Entries was(*schema, before), is(*schema, after);
  std::set<std::string> elements;
  for (const auto& [element, entries] : was.by_element) elements.insert(element);
  for (const auto& [element, entries] : is.by_element) elements.insert(element);
  for (const std::string& element : elements) {
    const auto& old_entries = was.At(element);
    const auto& new_entries = is.At(element);
    // Entries that share a key count as one value.
    if (old_entries.size() > 1 || new_entries.size() > 1) {
      const bool same =
          std::equal(old_entries.begin(), old_entries.end(), new_entries.begin(), new_entries.end(),
                     [](const Json* a, const Json* b) { return *a == *b; });
      if (!same) result.modified.children[element].member = true;
      continue;
    }
    descend(element, EntrySchema(schema), old_entries.empty() ? nullptr : old_entries[0],
            new_entries.empty() ? nullptr : new_entries[0]);
  }
  return result;
}

Json MergeLists(const Schema& schema, const Json& live, const Json& config) {
  const Entries mine(schema, &live), theirs(schema, &config);
  std::vector<std::string> shared;  // in the order of config
  for (const auto& [element, entry] : theirs.in_order) {
    if (mine.by_element.contains(element)) shared.push_back(element);
  }
  std::set<std::string> merged;
  Json out = Json::array();
  size_t next = 0;  // of shared
  auto take = [&](const std::pair<std::string, const Json*>& given) {
    const auto& there = mine.At(given.first);
    out.push_back(there.size() == 1 ? MergeConfig(EntrySchema(&schema), *there[0], *given.second)
                                    : *given.second);
    merged.insert(given.first);
    if (next < shared.size() && shared[next] == given.first) ++next;
  };
  size_t at_live = 0, at_config = 0;
  while (at_live < mine.in_order.size() || at_config < theirs.in_order.size()) {
    if (at_live < mine.in_order.size()) {
      const auto& [element, entry] = mine.in_order[at_live];
      if (!theirs.by_element.contains(element)) {
        out.push_back(*entry);
        ++at_live;
        continue;
      }
      // One that comes later in config's order, or has come already.
      if (merged.contains(element) || (next < shared.size() && shared[next] != element)) {
        ++at_live;
        continue;
      }
    }
    if (at_config < theirs.in_order.size()) take(theirs.in_order[at_config++]);
  }
  return out;
}

std::optional<std::string> CheckList(const Schema& schema, const Json& list);

std::optional<std::string> CheckValue(const Schema* schema, const Json& value) {
  if (value.is_null() || IsDeduced(schema)) return std::nullopt;
  const bool map = schema->type == Type::kObject || schema->type == Type::kMap;
  if (map && !value.is_object()) return fmt::format(": expected map, got {}", value.dump());
  if (schema->type == Type::kList) {
    if (!value.is_array()) return fmt::format(": expected list, got {}", value.dump());
    return CheckList(*schema, value);
  }
  if (!map) return std::nullopt;
  for (const auto& [name, field] : value.items()) {
    const Schema* below = schema->Field(name);
    if (below == nullptr && schema->type == Type::kObject && !schema->preserves_unknown) {
      return fmt::format(".{}: field not declared in schema", name);
    }
    if (std::optional<std::string> why = CheckValue(below, field)) {
      return fmt::format(".{}{}", name, *why);
    }
  }
  return std::nullopt;
}

std::optional<std::string> CheckList(const Schema& schema, const Json& list) {
  std::set<std::string> seen;
  for (size_t i = 0; i < list.size(); ++i) {
    std::string shown = fmt::format("[{}]", i);
    if (schema.list_type != Schema::ListType::kAtomic) {
      std::optional<std::string> element = EntryElement(schema, list[i]);
      if (!element) {
        return fmt::format(": element {}: associative list has an element without its keys", i);
      }
      FieldSet path;
      path.children[*element].member = true;
      ForEachField(path, [&](const std::string& text) { shown = text; });
      if (!seen.insert(*element).second) {
        return fmt::format(": duplicate entries for key {}", shown);
      }
    }
    if (std::optional<std::string> why = CheckValue(EntrySchema(&schema), list[i])) {
      return shown + *why;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> WhyNotApplicable(const Schema* schema, const Json& config) {
  return CheckValue(schema, config);
}

FieldSet FieldsOf(const Schema* schema, const Json& object) {
  FieldSet set;
  switch (ShapeOf(schema, object)) {
    case Shape::kLeaf:
      set.member = true;
      break;
    case Shape::kMap:
      if (!object.is_object()) break;
      for (const auto& [name, value] : object.items()) {
        FieldSet below = FieldsOf(FieldSchema(schema, name), value);
        const bool hollow = value.is_null() || (value.is_object() && value.empty());
        if (hollow || !Names(schema, name)) below.member = true;
        Keep(FieldElement(name), std::move(below), &set);
      }
      break;
    case Shape::kList:
      const Entries entries(*schema, &object);
      for (const auto& [element, same] : entries.by_element) {
        FieldSet below;
        if (same.size() == 1) below = FieldsOf(EntrySchema(schema), *same[0]);
        below.member = true;
        set.children[element] = std::move(below);
      }
      break;
  }
  return set;
}

Comparison Compare(const Schema* schema, const Json& before, const Json& after) {
  return CompareValues(schema, &before, &after);
}

Json MergeConfig(const Schema* schema, const Json& live, const Json& config) {
  const Shape shape = ShapeOf(schema, config);
  if (shape == Shape::kLeaf || ShapeOf(schema, live) != shape) return config;
  if (!HasEntries(&live) && !HasEntries(&config)) return config;
  // A null map or list has no entries, so it takes none away.
  if (config.is_null()) return live;
  // Also where the schema has changed since.
  if (live.type() != config.type()) return config;
  if (shape == Shape::kList) return MergeLists(*schema, live, config);
  Json merged = live;
  for (const auto& [name, value] : config.items()) {
    auto there = merged.find(name);
    if (there == merged.end()) {
      merged[name] = value;
    } else {
      *there = MergeConfig(FieldSchema(schema, name), *there, value);
    }
  }
  return merged;
}

Json WithoutFields(const Schema* schema, const Json& object, const FieldSet& set) {
  const Shape shape = ShapeOf(schema, object);
  if (shape == Shape::kLeaf || object.empty()) return object;
  Json left;
  if (shape == Shape::kMap) {
    for (const auto& [name, value] : object.items()) {
      auto found = set.children.find(FieldElement(name));
      if (found == set.children.end()) {
        left[name] = value;
      } else if (!found->second.member) {
        left[name] = WithoutFields(FieldSchema(schema, name), value, found->second);
      }
    }
    return left;
  }
  for (const Json& entry : object) {
    std::optional<std::string> element = EntryElement(*schema, entry);
    auto found = element ? set.children.find(*element) : set.children.end();
    if (found == set.children.end()) {
      left.push_back(entry);
    } else if (!found->second.member) {
      left.push_back(WithoutFields(EntrySchema(schema), entry, found->second));
    }
  }
  return left;
}

FieldSet WithNamedFields(const Schema* schema, const FieldSet& set) {
  FieldSet named{.member = set.member};
  for (const auto& [element, below] : set.children) {
    const std::string name = element.substr(2);
    const bool field = element[0] == 'f';
    const Schema* inner = field                                     ? FieldSchema(schema, name)
                          : element[0] == 'k' && !IsDeduced(schema) ? EntrySchema(schema)
                                                                    : nullptr;
    FieldSet& kept = named.children[element] = WithNamedFields(inner, below);
    if (field && !below.children.empty() && Names(schema, name)) kept.member = true;
  }
  return named;
}

}  // namespace muster::kube::embedded
