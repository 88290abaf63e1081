// The pieces of JSON that several kinds share, read into typed views.
//
// Each function takes the value at the piece itself and reads an absent one as the API's default.
// A wrong type or an unusable value is kept by the value's reader (json_value.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kube/objects/json_value.h"
#include "kube/objects/meta.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "kube/objects/quantity.h"
#include "kube/objects/resource_list.h"

namespace muster::kube {

// Leaves out the annotation kubectl.kubernetes.io/last-applied-configuration: a copy of the object
// that nothing reads and that would be most of the memory.
ObjectMeta ReadMeta(const JsonValue& metadata);

StringMap ReadStringMap(const JsonValue& map);
std::vector<std::string> ReadStrings(const JsonValue& array);

// An amount at least zero. One that isn't reads as 0 and makes the object unusable.
int64_t ReadAmount(const JsonValue& quantity, QuantityUnit unit);
// Amounts below zero and amounts that aren't quantities make the object unusable.
ResourceList ReadResourceList(const JsonValue& map);

// Which operators a kind of requirement may have.
enum class RequirementKind { kLabelSelector, kNodeSelector };
Requirement ReadRequirement(const JsonValue& requirement, RequirementKind kind);
std::vector<Requirement> ReadRequirements(const JsonValue& array, RequirementKind kind);
// Absent for an absent value.
std::optional<LabelSelector> ReadLabelSelector(const JsonValue& selector);
std::vector<NodeSelectorTerm> ReadNodeSelectorTerms(const JsonValue& array);
NodeSelectorTerm ReadNodeSelectorTerm(const JsonValue& term);

// Absent for an absent value and for an unknown effect, which makes the object unusable.
std::optional<TaintEffect> ReadTaintEffect(const JsonValue& effect);
std::vector<Taint> ReadTaints(const JsonValue& array);
Toleration ReadToleration(const JsonValue& value);

Condition ReadCondition(const JsonValue& condition);
// The condition of this type, absent if there is none.
JsonValue FindCondition(const JsonValue& conditions, std::string_view type);

}  // namespace muster::kube
