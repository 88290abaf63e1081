#include "kube/embedded/json_fields.h"

#include <nlohmann/json.hpp>

namespace muster::kube::embedded {

using Json = nlohmann::json;

const Json* FieldAt(const Json& object, std::initializer_list<const char*> path) {
  const Json* at = &object;
  for (const char* name : path) {
    if (!at->is_object()) return nullptr;
    auto it = at->find(name);
    if (it == at->end()) return nullptr;
    at = &*it;
  }
  return at;
}

const std::string& StringAt(const Json& object, std::initializer_list<const char*> path) {
  static const auto* const kEmpty = new std::string;
  const Json* at = FieldAt(object, path);
  return at != nullptr && at->is_string() ? at->get_ref<const std::string&>() : *kEmpty;
}

std::optional<int64_t> IntAt(const Json& object, std::initializer_list<const char*> path) {
  const Json* at = FieldAt(object, path);
  if (at == nullptr || !at->is_number_integer()) return std::nullopt;
  return at->get<int64_t>();
}

bool BoolAt(const Json& object, std::initializer_list<const char*> path) {
  const Json* at = FieldAt(object, path);
  return at != nullptr && at->is_boolean() && at->get<bool>();
}

const Json& ListAt(const Json& object, std::initializer_list<const char*> path) {
  static const auto* const kEmpty = new Json(Json::array());
  const Json* at = FieldAt(object, path);
  return at != nullptr && at->is_array() ? *at : *kEmpty;
}

const Json& MapAt(const Json& object, std::initializer_list<const char*> path) {
  static const auto* const kEmpty = new Json(Json::object());
  const Json* at = FieldAt(object, path);
  return at != nullptr && at->is_object() ? *at : *kEmpty;
}

}  // namespace muster::kube::embedded
