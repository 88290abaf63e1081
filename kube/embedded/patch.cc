#include "kube/embedded/patch.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kube/embedded/json_fields.h"

namespace muster::kube::embedded {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxOperations = 10000;  // apiserver/pkg/endpoints/handlers/patch.go

// A JSON pointer's tokens; nullopt if it is malformed.
std::optional<std::vector<std::string>> PointerTokens(const std::string& pointer) {
  std::vector<std::string> tokens;
  if (pointer.empty()) return tokens;
  if (pointer[0] != '/') return std::nullopt;
  for (size_t i = 0; i < pointer.size(); ++i) {
    if (pointer[i] == '/') {
      tokens.emplace_back();
      continue;
    }
    if (pointer[i] != '~') {
      tokens.back() += pointer[i];
      continue;
    }
    if (++i == pointer.size() || (pointer[i] != '0' && pointer[i] != '1')) return std::nullopt;
    tokens.back() += pointer[i] == '0' ? '~' : '/';
  }
  return tokens;
}

// An array index below or at `limit`; nullopt otherwise.
std::optional<size_t> IndexToken(const std::string& token, size_t limit) {
  if (token.empty() || token.size() > 9) return std::nullopt;
  if (token.size() > 1 && token[0] == '0') return std::nullopt;
  size_t index = 0;
  for (char c : token) {
    if (c < '0' || c > '9') return std::nullopt;
    index = index * 10 + static_cast<size_t>(c - '0');
  }
  if (index > limit) return std::nullopt;
  return index;
}

// nullptr if the path leads nowhere.
Json* Resolve(Json* at, const std::vector<std::string>& tokens, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (at->is_object()) {
      auto it = at->find(tokens[i]);
      if (it == at->end()) return nullptr;
      at = &*it;
    } else if (at->is_array()) {
      std::optional<size_t> index = IndexToken(tokens[i], at->size());
      if (!index || *index == at->size()) return nullptr;
      at = &(*at)[*index];
    } else {
      return nullptr;
    }
  }
  return at;
}

bool AddAt(Json* target, const std::vector<std::string>& tokens, Json value) {
  if (tokens.empty()) {
    *target = std::move(value);
    return true;
  }
  Json* parent = Resolve(target, tokens, tokens.size() - 1);
  if (parent == nullptr) return false;
  const std::string& last = tokens.back();
  if (parent->is_object()) {
    (*parent)[last] = std::move(value);
    return true;
  }
  if (!parent->is_array()) return false;
  std::optional<size_t> index =
      last == "-" ? std::optional<size_t>(parent->size()) : IndexToken(last, parent->size());
  if (!index) return false;
  parent->insert(parent->begin() + static_cast<std::ptrdiff_t>(*index), std::move(value));
  return true;
}

bool RemoveAt(Json* target, const std::vector<std::string>& tokens) {
  if (tokens.empty()) return false;
  Json* parent = Resolve(target, tokens, tokens.size() - 1);
  if (parent == nullptr || Resolve(parent, {tokens.back()}, 1) == nullptr) return false;
  if (parent->is_object()) {
    parent->erase(tokens.back());
  } else {
    parent->erase(*IndexToken(tokens.back(), parent->size()));
  }
  return true;
}

bool StartsWith(const std::vector<std::string>& tokens, const std::vector<std::string>& prefix) {
  return tokens.size() > prefix.size() && std::equal(prefix.begin(), prefix.end(), tokens.begin());
}

MaybeError ApplyOperation(const Json& operation, size_t number, Json* target) {
  const std::string& op = StringAt(operation, {"op"});
  const std::string& path = StringAt(operation, {"path"});
  auto fail = [&](std::string_view why) {
    return Unprocessable(
        fmt::format("JSON patch operation {} ({} {}): {}", number, op, Quoted(path), why));
  };
  auto malformed = [&](std::string_view why) {
    return BadRequest(
        fmt::format("JSON patch operation {} ({} {}): {}", number, op, Quoted(path), why));
  };
  std::optional<std::vector<std::string>> tokens = PointerTokens(path);
  if (!operation.contains("path") || !tokens) return malformed("path must be a JSON pointer");
  if (op == "remove") {
    if (!RemoveAt(target, *tokens)) return fail("nothing there");
    return std::nullopt;
  }
  if (op == "move" || op == "copy") {
    std::optional<std::vector<std::string>> from = PointerTokens(StringAt(operation, {"from"}));
    if (!operation.contains("from") || !from) return malformed("from must be a JSON pointer");
    Json* source = Resolve(target, *from, from->size());
    if (source == nullptr) return fail("nothing at from");
    if (op == "move" && StartsWith(*tokens, *from)) return fail("can't move into itself");
    Json value = *source;
    if (op == "move" && !RemoveAt(target, *from)) return fail("can't move the whole document");
    if (!AddAt(target, *tokens, std::move(value))) return fail("no such place");
    return std::nullopt;
  }
  if (!operation.contains("value")) return malformed("value is missing");
  const Json& value = operation["value"];
  if (op == "add") {
    if (!AddAt(target, *tokens, value)) return fail("no such place");
    return std::nullopt;
  }
  Json* at = Resolve(target, *tokens, tokens->size());
  if (op == "replace") {
    if (at != nullptr) {
      *at = value;
      return std::nullopt;
    }
    // RFC 6902 wants it to be there; the library of the real server adds a field that isn't.
    Json* parent = tokens->empty() ? nullptr : Resolve(target, *tokens, tokens->size() - 1);
    if (parent == nullptr || !parent->is_object()) return fail("nothing there");
    (*parent)[tokens->back()] = value;
    return std::nullopt;
  }
  if (op == "test") {
    if ((at == nullptr ? Json() : *at) != value) return fail("testing value failed");
    return std::nullopt;
  }
  return malformed("unknown op");
}

constexpr const char* kDirective = "$patch";
constexpr const char* kRetainKeys = "$retainKeys";
constexpr std::string_view kDeleteFrom = "$deleteFromPrimitiveList/";
constexpr std::string_view kElementOrder = "$setElementOrder/";

class StrategicMerge {
 public:
  // The error of the first malformed directive.
  MaybeError failure;

  void Object(const Schema* schema, const Json& patch, Json* target) {
    const std::string& directive = StringAt(patch, {kDirective});
    if (directive == "delete") {
      *target = Json::object();
      return;
    }
    if (directive == "replace") *target = Json::object();
    if (!target->is_object()) *target = Json::object();
    RetainKeys(patch, target);
    for (const auto& [name, value] : patch.items()) {
      if (name.starts_with(kDeleteFrom)) {
        DeleteFromPrimitives(name.substr(kDeleteFrom.size()), value, target);
      }
    }
    for (const auto& [name, value] : patch.items()) {
      if (name[0] != '$') Field(schema, name, value, patch, target);
    }
    OrderUnpatchedLists(schema, patch, target);
  }

 private:
  void Field(const Schema* schema, const std::string& name, const Json& value, const Json& patch,
             Json* target) {
    const Schema* field = schema == nullptr ? nullptr : schema->Field(name);
    if (value.is_null()) {
      target->erase(name);
    } else if (value.is_object()) {
      if (StringAt(value, {kDirective}) == "delete") {
        target->erase(name);
      } else {
        Object(field, value, &(*target)[name]);
      }
    } else if (value.is_array() && field != nullptr && field->merges) {
      Json& list = (*target)[name];
      if (!list.is_array()) list = Json::array();
      Json before = list;
      List(*field, name, value, &list);
      auto order = patch.find(std::string(kElementOrder) + name);
      if (order != patch.end()) Reorder(*field, *order, before, &list);
    } else {
      (*target)[name] = value;
    }
  }

  void RetainKeys(const Json& patch, Json* target) {
    auto retain = patch.find(kRetainKeys);
    if (retain == patch.end()) return;
    if (!retain->is_array()) return Fail("$retainKeys: want a list");
    for (auto it = target->begin(); it != target->end();) {
      bool kept = std::find(retain->begin(), retain->end(), it.key()) != retain->end();
      it = kept ? std::next(it) : target->erase(it);
    }
  }

  void DeleteFromPrimitives(const std::string& name, const Json& values, Json* target) {
    if (!values.is_array()) return Fail(std::string(kDeleteFrom) + name + ": want a list");
    auto list = target->find(name);
    if (list == target->end() || !list->is_array()) return;
    for (const Json& value : values) {
      list->erase(std::remove(list->begin(), list->end(), value), list->end());
    }
  }

  void List(const Schema& field, const std::string& name, const Json& patch, Json* list) {
    if (field.merge_key.empty()) {
      for (const Json& value : patch) {
        if (std::find(list->begin(), list->end(), value) == list->end()) list->push_back(value);
      }
      return;
    }
    for (const Json& entry : patch) {
      if (StringAt(entry, {kDirective}) == "replace") {
        *list = Json::array();
        for (const Json& other : patch) {
          if (other.is_object() && !other.contains(kDirective)) list->push_back(other);
        }
        return;
      }
    }
    for (const Json& entry : patch) Entry(field, name, entry, list);
  }

  void Entry(const Schema& field, const std::string& name, const Json& entry, Json* list) {
    if (!entry.is_object() || !entry.contains(field.merge_key)) {
      return Fail(fmt::format("{}: an entry doesn't contain the merge key {}", name,
                              Quoted(field.merge_key)));
    }
    const Json& key = entry[field.merge_key];
    auto same_key = [&](const Json& other) { return KeyOf(field, other) == key; };
    if (StringAt(entry, {kDirective}) == "delete") {
      list->erase(std::remove_if(list->begin(), list->end(), same_key), list->end());
      return;
    }
    auto there = std::find_if(list->begin(), list->end(), same_key);
    if (there != list->end()) return Object(field.element.get(), entry, &*there);
    Json added = Json::object();
    Object(field.element.get(), entry, &added);
    list->push_back(std::move(added));
  }

  static const Json& KeyOf(const Schema& field, const Json& entry) {
    static const auto* const kNone = new Json;
    const Json* key = field.merge_key.empty() ? &entry : FieldAt(entry, {field.merge_key.c_str()});
    return key == nullptr ? *kNone : *key;
  }

  // Lists that only change their order.
  void OrderUnpatchedLists(const Schema* schema, const Json& patch, Json* target) {
    for (const auto& [name, order] : patch.items()) {
      if (!name.starts_with(kElementOrder)) continue;
      std::string list_name = name.substr(kElementOrder.size());
      auto list = target->find(list_name);
      const Schema* field = schema == nullptr ? nullptr : schema->Field(list_name);
      if (patch.contains(list_name) || list == target->end() || !list->is_array()) continue;
      if (field == nullptr || !field->merges) continue;
      Reorder(*field, order, Json(*list), &*list);
    }
  }

  // Entries named in `order` come in that order; the others keep their place relative to the
  // entries that stood beside them before.
  void Reorder(const Schema& field, const Json& order, const Json& before, Json* list) {
    if (!order.is_array()) return Fail("$setElementOrder: want a list");
    auto index_in = [&](const Json& in, const Json& key) {
      for (size_t i = 0; i < in.size(); ++i) {
        if (KeyOf(field, in[i]) == key) return i;
      }
      return in.size();
    };
    std::vector<Json> ordered, others;
    for (const Json& entry : *list) {
      bool named = index_in(order, KeyOf(field, entry)) < order.size();
      (named ? ordered : others).push_back(entry);
    }
    std::stable_sort(ordered.begin(), ordered.end(), [&](const Json& a, const Json& b) {
      return index_in(order, KeyOf(field, a)) < index_in(order, KeyOf(field, b));
    });
    Json result = Json::array();
    size_t next = 0;
    for (const Json& other : others) {
      size_t place = index_in(before, KeyOf(field, other));
      auto stood_before = [&](const Json& entry) {
        size_t was = index_in(before, KeyOf(field, entry));
        return was == before.size() || was < place;
      };
      while (next < ordered.size() && stood_before(ordered[next])) {
        result.push_back(ordered[next++]);
      }
      result.push_back(other);
    }
    while (next < ordered.size()) result.push_back(ordered[next++]);
    *list = std::move(result);
  }

  void Fail(const std::string& why) {
    if (!failure) failure = BadRequest("strategic merge patch: " + why);
  }
};

}  // namespace

void ApplyMergePatch(const Json& patch, Json* target) { target->merge_patch(patch); }

MaybeError ApplyJsonPatch(const Json& operations, Json* target) {
  if (!operations.is_array()) return BadRequest("a JSON patch must be a list of operations");
  if (operations.size() > kMaxOperations) {
    return TooLarge(fmt::format("the allowed maximum operations in a JSON patch is {}, got {}",
                                kMaxOperations, operations.size()));
  }
  for (size_t i = 0; i < operations.size(); ++i) {
    MaybeError error = ApplyOperation(operations[i], i, target);
    if (error) return error;
  }
  return std::nullopt;
}

MaybeError ApplyStrategicMergePatch(const Schema& schema, const Json& patch, Json* target) {
  if (!patch.is_object()) return BadRequest("a strategic merge patch must be an object");
  StrategicMerge merge;
  merge.Object(&schema, patch, target);
  return merge.failure;
}

}  // namespace muster::kube::embedded
