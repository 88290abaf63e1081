// What server-side apply asks of two versions of an object: merging, comparing, and taking away, by
// the shapes of its kind (sigs.k8s.io/structured-merge-diff v6 typed/).
//
// A null schema, and whatever a schema leaves open, is deduced from the value: maps are merged by
// their keys, lists are one value.
#pragma once

#include <optional>
#include <string>

#include "kube/embedded/field_set.h"
#include "kube/embedded/schema.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::kube::embedded {

// What `config` can't be applied for: ".spec.nam: field not declared in schema". nullopt: nothing.
std::optional<std::string> WhyNotApplicable(const Schema* schema, const nlohmann::json& config);

// The fields of an object: its leaves, entries of maps and lists, empty maps.
FieldSet FieldsOf(const Schema* schema, const nlohmann::json& object);

// No field is in two of them.
struct Comparison {
  FieldSet removed;
  FieldSet modified;
  FieldSet added;
};
Comparison Compare(const Schema* schema, const nlohmann::json& before, const nlohmann::json& after);

// `live` with what `config` says, which WhyNotApplicable has nothing against. Lists merged by keys
// take the order of `config`; entries that it doesn't name stay where they are relative to it.
nlohmann::json MergeConfig(const Schema* schema, const nlohmann::json& live,
                           const nlohmann::json& config);

// `object` without the fields of `set`. What is left of a map or list that loses all is null.
nlohmann::json WithoutFields(const Schema* schema, const nlohmann::json& object,
                             const FieldSet& set);

// `set` with the fields that the schema names above those in it: with .spec.replicas .spec too.
FieldSet WithNamedFields(const Schema* schema, const FieldSet& set);

}  // namespace muster::kube::embedded
