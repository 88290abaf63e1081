// Reading JSON of unknown shape: a missing or mistyped field reads as absent.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "nlohmann/json_fwd.hpp"

namespace muster::kube::embedded {

// The value at a path of object fields, or nullptr.
const nlohmann::json* FieldAt(const nlohmann::json& object,
                              std::initializer_list<const char*> path);

// "" if absent or no string. The reference lives as long as the object.
const std::string& StringAt(const nlohmann::json& object, std::initializer_list<const char*> path);

std::optional<int64_t> IntAt(const nlohmann::json& object, std::initializer_list<const char*> path);

// False if absent or no boolean.
bool BoolAt(const nlohmann::json& object, std::initializer_list<const char*> path);

// The array there, or an empty one.
const nlohmann::json& ListAt(const nlohmann::json& object, std::initializer_list<const char*> path);

// The object there, or an empty one.
const nlohmann::json& MapAt(const nlohmann::json& object, std::initializer_list<const char*> path);

}  // namespace muster::kube::embedded
