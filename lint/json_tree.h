// JSON as the tree that manifests are read from: an object as an API server has it.
#pragma once

#include <cstdint>
#include <string_view>

#include "yaml/tree.h"

namespace muster::lint {

// One document; everything in it stands in line 1. An error is what is no JSON, nested deeper than
// kMaxYamlDepth, or has more than `max_values` values.
yaml::YamlFile ParseJson(std::string_view json, int64_t max_values = yaml::kMaxYamlValues);

}  // namespace muster::lint
