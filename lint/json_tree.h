// JSON as the tree that lint reads, and the tree as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "yaml/tree.h"

namespace muster::lint {

// All lines are 1. An error instead of a document if it isn't JSON, is nested too deeply, or has
// more values than that.
yaml::YamlFile ParseJson(std::string_view json, int64_t max_values = yaml::kMaxYamlValues);

// As kubectl would send it: what isn't quoted is a number or a boolean where it looks like one.
nlohmann::json JsonOf(const yaml::YamlValue& value);

}  // namespace muster::lint
