// Sets of an object's fields: what a manager of it owns, in server-side apply
// (sigs.k8s.io/structured-merge-diff v6 fieldpath/set.go).
#pragma once

#include <functional>
#include <map>
#include <string>

#include "nlohmann/json_fwd.hpp"

namespace muster::kube::embedded {

// A tree of path elements as metadata.managedFields writes them: "f:NAME" a field, "k:{KEYS}" an
// entry of a list merged by keys, "v:VALUE" an entry of a set. A field can be in the set without
// those beneath it, and the other way round. Inner nodes that hold nothing are never kept.
struct FieldSet {
  bool member = false;  // the field that leads here; of no meaning at the root
  std::map<std::string, FieldSet> children = {};

  bool empty() const { return !member && children.empty(); }
  bool operator==(const FieldSet&) const = default;
};

// From and to fieldsV1. What isn't in its form reads as absent.
FieldSet FieldSetFromJson(const nlohmann::json& fields);
nlohmann::json FieldSetJson(const FieldSet& set);

FieldSet Union(const FieldSet& a, const FieldSet& b);
FieldSet Intersection(const FieldSet& a, const FieldSet& b);
// What is in `a` and not in `b`, field by field: what is beneath a field of `b` stays.
FieldSet Difference(const FieldSet& a, const FieldSet& b);

// The paths in the set as the API writes them in conflicts: `.spec.ports[port=80].name`; those of
// a level before those beneath it.
void ForEachField(const FieldSet& set, const std::function<void(const std::string& path)>& visit);

}  // namespace muster::kube::embedded
