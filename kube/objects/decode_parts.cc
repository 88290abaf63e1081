#include "kube/objects/decode_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace muster::kube {
namespace {

constexpr std::string_view kLastApplied = "kubectl.kubernetes.io/last-applied-configuration";

OwnerReference ReadOwner(const JsonValue& owner) {
  OwnerReference result;
  result.api_version = owner.Get("apiVersion").String();
  result.kind = owner.Get("kind").String();
  result.name = owner.Get("name").String();
  result.uid = owner.Get("uid").String();
  result.controller = owner.Get("controller").Bool();
  return result;
}

std::string QuantityText(const JsonValue& value) {
  // Go's Quantity also reads a bare JSON number.
  if (value.IsNumber()) return value.Excerpt();
  return value.String();
}

std::optional<int64_t> ReadQuantity(const JsonValue& value, QuantityUnit unit) {
  const std::string text = QuantityText(value);
  const auto amount = ParseQuantity(text, unit);
  if (!amount.ok()) {
    value.RejectValue(std::string(amount.status().message()));
    return std::nullopt;
  }
  if (*amount < 0) {
    value.RejectValue(fmt::format("{} is negative", text));
    return std::nullopt;
  }
  return *amount;
}

std::optional<SelectorOperator> OperatorOf(std::string_view name, RequirementKind kind) {
  if (name == "In") return SelectorOperator::kIn;
  if (name == "NotIn") return SelectorOperator::kNotIn;
  if (name == "Exists") return SelectorOperator::kExists;
  if (name == "DoesNotExist") return SelectorOperator::kDoesNotExist;
  if (kind == RequirementKind::kLabelSelector) return std::nullopt;
  if (name == "Gt") return SelectorOperator::kGt;
  if (name == "Lt") return SelectorOperator::kLt;
  return std::nullopt;
}

// Calls visit(key, value) for each field, in the order of their keys, in which the API server sends
// them. In any other, adding them one by one to what is sorted would take time in the square of
// their number, so they are put in order first.
template <typename Visit>
void ForEachFieldByName(const JsonValue& map, Visit visit) {
  bool sorted = true;
  std::string_view last;
  map.ForEachField([&](std::string_view key, const JsonValue&) {
    sorted = sorted && last <= key;
    last = key;
  });
  if (sorted) {
    map.ForEachField(visit);
    return;
  }
  std::vector<std::pair<std::string_view, JsonValue>> fields;
  map.ForEachField(
      [&](std::string_view key, const JsonValue& value) { fields.emplace_back(key, value); });
  std::stable_sort(fields.begin(), fields.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [key, value] : fields) visit(key, value);
}

}  // namespace

StringMap ReadStringMap(const JsonValue& map) {
  size_t fields = 0;
  map.ForEachField([&](std::string_view, const JsonValue&) { ++fields; });
  StringMap result;
  result.reserve(fields);
  ForEachFieldByName(map, [&](std::string_view key, const JsonValue& value) {
    result.emplace(key, value.String());
  });
  return result;
}

std::vector<std::string> ReadStrings(const JsonValue& array) {
  std::vector<std::string> result;
  array.ForEach([&](const JsonValue& value) { result.push_back(value.String()); });
  return result;
}

ObjectMeta ReadMeta(const JsonValue& metadata) {
  ObjectMeta meta;
  meta.name = metadata.Get("name").String();
  meta.name_space = metadata.Get("namespace").String();
  meta.uid = metadata.Get("uid").String();
  meta.resource_version = metadata.Get("resourceVersion").String();
  meta.generation = metadata.Get("generation").Int();
  meta.creation_time = metadata.Get("creationTimestamp").Time().value_or(absl::InfinitePast());
  meta.deletion_time = metadata.Get("deletionTimestamp").Time();
  meta.labels = ReadStringMap(metadata.Get("labels"));
  ForEachFieldByName(metadata.Get("annotations"),
                     [&](std::string_view key, const JsonValue& value) {
                       if (key != kLastApplied) meta.annotations.emplace(key, value.String());
                     });
  meta.annotations.shrink_to_fit();
  metadata.Get("ownerReferences").ForEach([&](const JsonValue& owner) {
    meta.owners.push_back(ReadOwner(owner));
  });
  meta.finalizers = ReadStrings(metadata.Get("finalizers"));
  return meta;
}

int64_t ReadAmount(const JsonValue& quantity, QuantityUnit unit) {
  return ReadQuantity(quantity, unit).value_or(0);
}

ResourceList ReadResourceList(const JsonValue& map) {
  ResourceList list;
  ForEachFieldByName(map, [&](std::string_view name, const JsonValue& value) {
    const auto amount = ReadQuantity(value, UnitOf(name));
    if (amount) list.Set(name, *amount);
  });
  return list;
}

Requirement ReadRequirement(const JsonValue& requirement, RequirementKind kind) {
  Requirement result;
  result.key = requirement.Get("key").String();
  const JsonValue name = requirement.Get("operator");
  const auto op = OperatorOf(name.View(), kind);
  if (!op) name.RejectValue(fmt::format("unknown operator \"{}\"", name.View()));
  result.op = op.value_or(SelectorOperator::kExists);
  result.values = ReadStrings(requirement.Get("values"));
  return result;
}

std::vector<Requirement> ReadRequirements(const JsonValue& array, RequirementKind kind) {
  std::vector<Requirement> result;
  array.ForEach([&](const JsonValue& value) { result.push_back(ReadRequirement(value, kind)); });
  return result;
}

std::optional<LabelSelector> ReadLabelSelector(const JsonValue& selector) {
  if (!selector.present()) return std::nullopt;
  LabelSelector result;
  for (auto& [key, value] : ReadStringMap(selector.Get("matchLabels"))) {
    result.requirements.push_back({key, SelectorOperator::kIn, {value}});
  }
  for (auto& requirement :
       ReadRequirements(selector.Get("matchExpressions"), RequirementKind::kLabelSelector)) {
    result.requirements.push_back(std::move(requirement));
  }
  return result;
}

NodeSelectorTerm ReadNodeSelectorTerm(const JsonValue& term) {
  return {ReadRequirements(term.Get("matchExpressions"), RequirementKind::kNodeSelector),
          ReadRequirements(term.Get("matchFields"), RequirementKind::kNodeSelector)};
}

std::vector<NodeSelectorTerm> ReadNodeSelectorTerms(const JsonValue& array) {
  std::vector<NodeSelectorTerm> result;
  array.ForEach([&](const JsonValue& term) { result.push_back(ReadNodeSelectorTerm(term)); });
  return result;
}

std::optional<TaintEffect> ReadTaintEffect(const JsonValue& effect) {
  const std::string_view name = effect.View();
  if (name.empty()) return std::nullopt;
  if (name == "NoSchedule") return TaintEffect::kNoSchedule;
  if (name == "PreferNoSchedule") return TaintEffect::kPreferNoSchedule;
  if (name == "NoExecute") return TaintEffect::kNoExecute;
  effect.RejectValue(fmt::format("unknown effect \"{}\"", name));
  return std::nullopt;
}

std::vector<Taint> ReadTaints(const JsonValue& array) {
  std::vector<Taint> result;
  array.ForEach([&](const JsonValue& value) {
    const JsonValue effect = value.Get("effect");
    const auto known = ReadTaintEffect(effect);
    if (!known) effect.RejectValue("a taint needs an effect");
    result.push_back({value.Get("key").String(), value.Get("value").String(),
                      known.value_or(TaintEffect::kNoSchedule)});
  });
  return result;
}

Toleration ReadToleration(const JsonValue& value) {
  Toleration toleration;
  toleration.key = value.Get("key").String();
  const JsonValue name = value.Get("operator");
  const std::string_view op = name.View();
  toleration.exists = op == "Exists";
  if (!toleration.exists && !op.empty() && op != "Equal") {
    name.RejectValue(fmt::format("unknown operator \"{}\"", op));
  }
  toleration.value = value.Get("value").String();
  toleration.effect = ReadTaintEffect(value.Get("effect"));
  return toleration;
}

Condition ReadCondition(const JsonValue& condition) {
  Condition result;
  result.status = condition.Get("status").String();
  result.reason = condition.Get("reason").String();
  result.message = condition.Get("message").String();
  result.last_transition =
      condition.Get("lastTransitionTime").Time().value_or(absl::InfinitePast());
  return result;
}

JsonValue FindCondition(const JsonValue& conditions, std::string_view type) {
  JsonValue found = conditions.Absent();
  conditions.ForEach([&](const JsonValue& condition) {
    if (!found.present() && condition.Get("type").View() == type) found = condition;
  });
  return found;
}

}  // namespace muster::kube
