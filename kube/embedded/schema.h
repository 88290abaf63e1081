// Shapes of API objects: which fields there are, of what type, and how lists merge.
//
// One form serves the built-in kinds (core_schema.cc, made from Kubernetes' OpenAPI document) and
// custom resources (spec.versions[].schema.openAPIV3Schema of their CRD).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/embedded/api_error.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::kube::embedded {

class Schema {
 public:
  enum class Type {
    kAny,
    kString,
    kInt32,
    kInt64,
    kNumber,
    kBoolean,
    kObject,  // named fields
    kMap,     // any key, values of `element`
    kList,    // of `element`
    kQuantity,
    kTime,       // RFC 3339, whole seconds
    kMicroTime,  // RFC 3339 with fractions
    kBytes,      // base64
    kIntOrString,
  };

  Type type = Type::kAny;
  std::map<std::string, std::shared_ptr<const Schema>, std::less<>> fields;  // kObject
  std::shared_ptr<const Schema> element;                                     // kMap, kList

  // Strategic merge patch (kList): entries are merged by merge_key, or as a set of primitives when
  // it is empty; without `merges` the list is replaced whole.
  bool merges = false;
  std::string merge_key;

  // Server-side apply: who owns what. An atomic map or object (kMap, kObject) has one owner, as has
  // an atomic list; the entries of a set, and of a list merged by keys, have their own.
  enum class ListType { kAtomic, kSet, kMap };
  struct ListKey {
    std::string name;
    std::string default_value;  // of entries without it; empty: none
  };
  bool atomic = false;
  ListType list_type = ListType::kAtomic;
  std::vector<ListKey> list_keys;  // kMap; those that an entry lacks don't count

  // Constraints of a CRD's schema; unset for built-in kinds.
  bool preserves_unknown = false;
  bool nullable = false;
  std::vector<std::string> required;
  std::vector<std::string> choices;  // enum of strings
  std::optional<double> minimum;
  std::optional<double> maximum;
  std::optional<size_t> min_length;
  std::optional<size_t> max_length;
  std::optional<size_t> min_items;
  std::optional<size_t> max_items;
  std::string default_json;  // text of `default`; empty: none

  // The schema of a field of an object or of a map's value; nullptr if unknown.
  const Schema* Field(std::string_view name) const;
};

// "Pod", "Node", ... or nullptr. Made on first use; lives for ever; thread-safe.
std::shared_ptr<const Schema> CoreSchema(std::string_view kind);

// A CRD's openAPIV3Schema. BadRequest text naming the field if it is malformed or nested more than
// 64 levels. `pattern`, `oneOf` and CEL rules are not enforced.
ApiResult<std::shared_ptr<const Schema>> SchemaFromOpenApi(const nlohmann::json& open_api);

struct SchemaFindings {
  // "spec.nodeName: want a string, got a number"
  std::vector<std::string> type_errors;
  // "spec.nodName"
  std::vector<std::string> unknown_fields;
  // Required, enum, bounds: CRD schemas only.
  FieldErrors constraints;
};

// Checks `object` against `schema` in place: drops nulls, fills in defaults, and drops unknown
// fields unless `keep_unknown`. Stops gathering past 16 findings of each sort.
SchemaFindings ApplySchema(const Schema& schema, bool keep_unknown, nlohmann::json* object);

}  // namespace muster::kube::embedded
